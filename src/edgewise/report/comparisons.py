"""Compare recipes of a run or a study, two circuits, or two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import Comparison, Faithfulness, Measure, Resampled, resample
from ..method import as_known, plain
from ..recipes.discovery import Discovery
from ..recipes.outcome import Outcome
from ..recipes.stability import jaccard
from ..results import read_result
from ..study import Study
from .circuits import TOP, OpenCircuit, ScoredEdge, beside, describe, edge_tables, open_circuit
from .formatting import describe_method, format_interval, format_number, format_percent, short_name
from .tables import DEFAULT_WIDTH, INTERVAL, number_tables, significance_mark

DIFFERENCE_COLUMNS = ("difference", INTERVAL, "p")


@dataclass(frozen=True, eq=False)
class RecipeAreas:
    """The recipes that were evaluated on the same examples by the same measure: name -> area and its resamples."""

    task: str
    model: str
    measure: Measure
    faithfulness: Faithfulness
    areas: Mapping[str, Resampled]


@dataclass(frozen=True)
class RecipePair:
    """One recipe minus another, by their names."""

    group: RecipeAreas
    recipe: str
    other: str
    comparison: Comparison

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        group, comparison = self.group, self.comparison
        return {
            "task": group.task, "model": group.model, "faithfulness": plain(group.faithfulness),
            "benchmark": plain(group.measure), "method": self.recipe, "other": self.other,
            "area": group.areas[self.recipe].estimate, "other_area": group.areas[self.other].estimate,
            **comparison.record(), "verdict": comparison.verdict,
        }  # fmt: skip


def areas_of_run(result: Discovery) -> list[RecipeAreas]:
    """Return one group per measure."""
    run, faithfulness = result.run, result.settings.faithfulness
    return [
        RecipeAreas(run.task, run.model, measure, faithfulness, {row.name: row.resampled for row in result.of(measure)})
        for measure in result.measures
    ]


def areas_of_study(study: Study) -> list[RecipeAreas]:
    """Return one group per model, task and measure: recipes on test, with the parameters that validation chose."""
    faithfulness = study.plan.settings.faithfulness
    return [
        RecipeAreas(cell.task, cell.model, measure, faithfulness, {r.recipe.name: r.resampled for r in repeats})
        for cell in study.cells
        for measure, repeats in cell.test.items()
    ]


def compare_recipes(
    groups: Sequence[RecipeAreas], recipe: str | None = None, other: str | None = None
) -> list[RecipePair]:
    """Compare recipes in all groups that have them.

    With both names, `recipe` minus `other`. With `recipe` alone, all others minus it. With neither, all others minus
    the best of each group.
    """
    known = list(dict.fromkeys(name for group in groups for name in group.areas))
    recipe, other = (None if name is None else as_known("recipe", name, known) for name in (recipe, other))
    pairs = []
    for group in groups:
        areas, better = group.areas, group.measure.better
        best = max(areas, key=lambda name: better * areas[name].estimate)
        target = other or recipe or best
        names = [recipe] if recipe is not None and other is not None else [name for name in areas if name != target]
        for name in names:
            if name in areas and target in areas:
                pairs.append(RecipePair(group, name, target, areas[name].minus(areas[target])))
    if not pairs:
        raise InputError(f"{recipe} and {other} were never evaluated by the same measure")
    return pairs


def recipe_pair_tables(pairs: Sequence[RecipePair], width: int = DEFAULT_WIDTH) -> list[Table]:
    """Return a table of pairs from one group, with marks as in `MARKS_LEGEND`."""
    group, others = pairs[0].group, dict.fromkeys(pair.other for pair in pairs)
    name, place = group.measure.name, f"{short_name(group.task)}, {short_name(group.model)}"
    rows = [
        (pair.recipe, format_number(group.areas[pair.recipe].estimate), *_difference_cells(pair.comparison))
        for pair in pairs
    ]
    title = f"{name} minus that of {' or '.join(others)}: {place}"
    return number_tables(("recipe", name, *DIFFERENCE_COLUMNS), rows, width, title, left=(2,))


def _difference_cells(comparison: Comparison) -> tuple[Text, str, str]:
    text = f"{format_number(comparison.difference, signed=True)} {significance_mark(comparison)}".rstrip()
    style = "bold" if comparison.is_better else ""
    return Text(text, style), format_interval(comparison.low, comparison.high, signed=True), f"{comparison.p:.3f}"


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
    """Two circuits: counts, and the strongest edges of each part: shared, only_here, only_there."""

    one: str
    other: str
    counts: SharedEdges
    strongest: Mapping[str, tuple[ScoredEdge, ...]]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        record = asdict(self)
        return {"one": self.one, "other": self.other, **record["counts"], "strongest": record["strongest"]}

    def tables(self, width: int) -> list[Table]:
        """Return the strongest edges of each part that has edges."""
        parts = [(name.replace("_", " "), edges) for name, edges in self.strongest.items() if edges]
        return beside([table for name, edges in parts for table in edge_tables(name, edges, width)], width)


def pair_circuits(one: OpenCircuit, other: OpenCircuit, top: int = TOP) -> CircuitPair:
    """Compare two circuits of the same graph; shared edges have the first one's score."""
    here, there = one.circuit, other.circuit
    counts = SharedEdges.of(here, there)

    def strongest(mask: NDArray[np.bool_], score: NDArray[np.floating] | None) -> tuple[ScoredEdge, ...]:
        return describe(Circuit(here.graph, mask), score, top=top).strongest

    parts = {
        "shared": strongest(here.mask & there.mask, one.score if one.score is not None else other.score),
        "only_here": strongest(here.mask & ~there.mask, one.score),
        "only_there": strongest(there.mask & ~here.mask, other.score),
    }
    return CircuitPair(one.name, other.name, counts, parts)


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

    def tables(self, width: int) -> list[Table]:
        """Return a table of overlaps by size for each measure, then one of areas and their differences."""
        overlaps: list[Table] = []
        areas: list[Table] = []
        for measure in dict.fromkeys(recipe.measure for recipe in self.recipes):
            recipes = [recipe for recipe in self.recipes if recipe.measure == measure]
            rows: list[Sequence[Any]] = [
                (recipe.recipe, *(format_number(counts.overlap, digits=2) for counts in recipe.overlaps))
                for recipe in recipes
            ]
            title = f"{measure.name}: overlap of circuits by size, in % of the edges"
            overlaps += number_tables(("recipe", *map(format_percent, recipes[0].sizes)), rows, width, title)
            rows = [
                (recipe.recipe, *map(format_number, recipe.areas), *_difference_cells(recipe.comparison))
                for recipe in recipes
                if recipe.areas is not None and recipe.comparison is not None
            ]
            title = f"{measure.name} here minus there, {measure.improves}"
            heads = ("recipe", "here", "there", *DIFFERENCE_COLUMNS)
            areas += number_tables(heads, rows, width, title, left=(3,)) if rows else []
        return [*overlaps, *areas]


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
    settings, others = here.settings, there.settings
    same_metric = (settings.metric, settings.faithfulness) == (others.metric, others.faithfulness)
    paired = same_metric and here.run.test.prompts == there.run.test.prompts
    notes = []
    if not same_metric:
        notes.append("the runs measure faithfulness differently, so their areas aren't compared")
    elif not paired:
        notes.append(
            "unpaired: the runs were evaluated on other examples, so intervals of differences are wider than in one run"
        )
    facts = [
        {
            "model": short_name(result.run.model),
            "task": short_name(result.run.task),
            "scorer": describe_method(plain(result.settings.scorer)),
            "ablation": describe_method(plain(result.settings.ablation)),
        }
        for result in (here, there)
    ]
    notes += [f"another {k}: {facts[0][k]} here, {facts[1][k]} there" for k in facts[0] if facts[0][k] != facts[1][k]]
    if settings.sizes != others.sizes:
        notes.append("the runs have other sizes, so their areas aren't compared")
    recipes = tuple(_pair_outcomes(outcome, match, same_metric, paired) for outcome, match in matches)
    return RunPair(str(one), str(other), paired, tuple(notes), recipes)


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
