"""Compare two circuits, or two runs: shared edges, overlap by size, and differences of areas."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import Comparison, Measure, resample
from ..method import plain
from ..recipes.discovery import Discovery
from ..recipes.outcome import Outcome
from ..recipes.stability import jaccard
from ..results import read_result
from .circuit_summary import TOP, ScoredEdge, beside, describe, edge_tables
from .comparisons import DIFFERENCE_COLUMNS, difference_cells
from .formatting import describe_method, format_number, format_percent, short_name
from .open_circuit import OpenCircuit, open_circuit
from .tables import number_tables


@dataclass(frozen=True)
class SharedEdges:
    """How many edges two circuits share, and how many only the first or only the second has.

    `overlap` is the number of shared edges divided by the number of edges in either; 1 if both are empty.
    """

    shared: int
    only_here: int
    only_there: int
    overlap: float

    @classmethod
    def of(cls, here: Circuit, there: Circuit) -> SharedEdges:
        """Count the edges of two circuits of one graph."""
        overlap = jaccard(here, there)  # raises InputError for two graphs
        shared = int(np.count_nonzero(here.mask & there.mask))
        return cls(shared, here.n_edges - shared, there.n_edges - shared, overlap)


@dataclass(frozen=True)
class CircuitPair:
    """Two circuits: counts, and the strongest edges of each part, with the scores of a circuit that has them."""

    one: str
    other: str
    counts: SharedEdges
    shared: tuple[ScoredEdge, ...]
    only_here: tuple[ScoredEdge, ...]
    only_there: tuple[ScoredEdge, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        names = ("shared", "only_here", "only_there")
        strongest = {name: [asdict(edge) for edge in getattr(self, name)] for name in names}
        return {"one": self.one, "other": self.other, **asdict(self.counts), "strongest": strongest}


@dataclass(frozen=True)
class RecipeInBoth:
    """A recipe that two runs have: its circuits by size, and its areas.

    `sizes` [size] are the shares of edges that both runs have. `areas` (here, there) and `comparison`, here minus
    there, are None if areas can't be compared.
    """

    measure: Measure
    recipe: str
    sizes: tuple[float, ...]
    overlaps: tuple[SharedEdges, ...]
    areas: tuple[float, float] | None
    comparison: Comparison | None


@dataclass(frozen=True)
class RunPair:
    """Two runs on the same graph.

    Attributes
    ----------
    paired
        Whether areas were measured on the same examples in the same way, and so are compared example by example.
        Otherwise the examples of each run are resampled independently, and intervals are wider.
    notes
        Other differences between the runs.
    """

    one: str
    other: str
    paired: bool
    notes: tuple[str, ...]
    recipes: tuple[RecipeInBoth, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        overlaps, areas = [], []
        for recipe in self.recipes:
            names = {"benchmark": plain(recipe.measure), "method": recipe.recipe}
            sizes = zip(recipe.sizes, recipe.overlaps, strict=True)
            overlaps.append(names | {"sizes": [{"share": size} | asdict(counts) for size, counts in sizes]})
            if recipe.areas is not None and recipe.comparison is not None:
                values = dict(zip(("area", "other_area"), recipe.areas, strict=True))
                areas.append(names | values | recipe.comparison.record() | {"verdict": recipe.comparison.verdict})
        names = {"one": self.one, "other": self.other, "paired": self.paired, "notes": list(self.notes)}
        return names | {"overlap": overlaps, "areas": areas}


def pair_circuits(one: OpenCircuit, other: OpenCircuit, top: int = TOP) -> CircuitPair:
    """Compare two circuits of the same graph; shared edges have the first one's score."""
    here, there = one.circuit, other.circuit
    counts = SharedEdges.of(here, there)

    def strongest(mask: NDArray[np.bool_], score: NDArray[np.floating] | None) -> tuple[ScoredEdge, ...]:
        return describe(Circuit(here.graph, mask), score, top=top).strongest

    return CircuitPair(
        one.name,
        other.name,
        counts,
        strongest(here.mask & there.mask, one.score if one.score is not None else other.score),
        strongest(here.mask & ~there.mask, one.score),
        strongest(there.mask & ~here.mask, other.score),
    )


def pair_exported(
    one: str | Path,
    other: str | Path,
    measure: Measure,
    recipe: str | None = None,
    other_recipe: str | None = None,
    top: int = TOP,
) -> CircuitPair:
    """Compare the default circuit of a run with the circuit of the same size of another run or recipe.

    Without names of recipes, circuits are those that the runs exported.
    """
    here = open_circuit(one, recipe, measure.name)
    assert here.row is not None
    share = here.row.curve.shares[here.place]
    size = f"{share:.17g}" if share in read_result(other).settings.sizes else None
    return pair_circuits(here, open_circuit(other, other_recipe, measure.name, size), top)


def pair_runs(one: str | Path, other: str | Path) -> RunPair:
    """Compare two result folders by the recipes that both have."""
    here, there = read_result(one), read_result(other)
    if here.run.graph != there.run.graph:
        raise InputError(
            f"circuits of two graphs have no edges to share: {one} has {here.run.graph}, {other} {there.run.graph}"
        )
    matches = [
        (outcome, match)
        for outcome in here.outcomes
        for match in there.outcomes
        if match.measure == outcome.measure and match.name.lower() == outcome.name.lower()
    ]
    if not matches:
        raise InputError(f"{one} and {other} have no recipe in common: nothing can be compared")
    same_metric = (here.settings.metric, here.settings.faithfulness) == (
        there.settings.metric,
        there.settings.faithfulness,
    )
    paired = same_metric and here.run.test.prompts == there.run.test.prompts
    recipes = tuple(_pair_outcomes(outcome, match, same_metric, paired) for outcome, match in matches)
    return RunPair(str(one), str(other), paired, _notes(here, there, same_metric, paired), recipes)


def _pair_outcomes(here: Outcome, there: Outcome, same_metric: bool, paired: bool) -> RecipeInBoth:
    """Compare a recipe's circuits at the sizes that both runs have and that ask for an edge, and its areas."""
    circuits = dict(zip(here.curve.shares, here.circuits, strict=True))
    other_circuits = dict(zip(there.curve.shares, there.circuits, strict=True))
    nonempty = [here.curve.shares[place] for place in here.curve.nonempty_sizes]
    sizes = tuple(size for size in nonempty if size in other_circuits)
    overlaps = tuple(SharedEdges.of(circuits[size], other_circuits[size]) for size in sizes)
    if not same_metric or here.curve.shares != there.curve.shares:
        return RecipeInBoth(here.measure, here.name, sizes, overlaps, None, None)
    # Equal seeds draw equal examples, so that resamples are paired. Another seed makes them independent.
    other_area = there.resampled if paired else resample(there.curve, there.measure, seed=1)
    areas = here.resampled.estimate, other_area.estimate
    return RecipeInBoth(here.measure, here.name, sizes, overlaps, areas, here.resampled.minus(other_area))


def _notes(here: Discovery, there: Discovery, same_metric: bool, paired: bool) -> tuple[str, ...]:
    notes = []
    if not same_metric:
        notes.append("the runs measure faithfulness differently, so their areas aren't compared")
    elif not paired:
        notes.append(
            "unpaired: the runs were evaluated on other examples, so intervals of differences are wider than in one run"
        )
    values = [("model", short_name(here.run.model), short_name(there.run.model))]
    values += [("task", short_name(here.run.task), short_name(there.run.task))]
    for name in ("scorer", "ablation"):
        first, second = (describe_method(plain(getattr(result.settings, name))) for result in (here, there))
        values.append((name, first, second))
    notes += [f"another {name}: {first} here, {second} there" for name, first, second in values if first != second]
    if here.settings.sizes != there.settings.sizes:
        notes.append("the runs have other sizes, so their areas aren't compared")
    return tuple(notes)


def circuit_pair_tables(pair: CircuitPair, width: int) -> list[Table]:
    """Return the strongest edges of each part that has edges."""
    parts = (("shared", pair.shared), ("only here", pair.only_here), ("only there", pair.only_there))
    return beside([table for name, edges in parts if edges for table in edge_tables(name, edges, width)], width)


def run_pair_tables(pair: RunPair, width: int) -> list[Table]:
    """Return a table of overlaps by size for each measure, then one of areas and their differences."""
    overlaps: list[Table] = []
    areas: list[Table] = []
    for measure in dict.fromkeys(recipe.measure for recipe in pair.recipes):
        recipes = [recipe for recipe in pair.recipes if recipe.measure == measure]
        rows: list[tuple[Any, ...]] = [
            (recipe.recipe, *(format_number(counts.overlap, digits=2) for counts in recipe.overlaps))
            for recipe in recipes
        ]
        title = f"{measure.name}: overlap of circuits by size, in % of the edges"
        overlaps += number_tables(("recipe", *map(format_percent, recipes[0].sizes)), rows, width, title)
        rows = [
            (recipe.recipe, *map(format_number, recipe.areas), *difference_cells(recipe.comparison))
            for recipe in recipes
            if recipe.areas is not None and recipe.comparison is not None
        ]
        if rows:
            title = f"{measure.name} here minus there, {measure.improves}"
            areas += number_tables(("recipe", "here", "there", *DIFFERENCE_COLUMNS), rows, width, title, left=(3,))
    return [*overlaps, *areas]
