"""Compare recipes of a run or a study, two circuits, or two runs.

Comparisons are the plain records that --json prints; tables are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Faithfulness, Measure, Resampled, resample
from ..method import as_known, plain
from ..recipes.discovery import Discovery
from ..recipes.stability import jaccard
from ..results import read_result
from ..study import Study
from ..study.plan import VALIDATION
from .circuit_summary import TOP, OpenCircuit, describe, open_circuit
from .formatting import describe_method, format_interval, format_number, format_percent, short_name
from .tables import DEFAULT_WIDTH, INTERVAL, mark_words, number_tables

Record = dict[str, Any]
DIFFERENCE_COLUMNS = ("difference", INTERVAL, "p")


@dataclass(frozen=True, eq=False)
class RecipeAreas:
    """The recipes that were evaluated on the same examples by the same measure: name -> area and its resamples.

    chosen  the recipe that was chosen, to compare the others with. If empty, it is the one of the best area.
    choice  how it was chosen, in words
    """

    task: str
    model: str
    measure: Measure
    faithfulness: Faithfulness
    areas: Mapping[str, Resampled]
    chosen: str = ""
    choice: str = "chosen on these same examples, so its lead is overestimated"

    @property
    def best(self) -> str:
        """The recipe to compare with if none is named."""
        return self.chosen or max(self.areas, key=lambda name: self.measure.better * self.areas[name].estimate)


def areas_of_run(result: Discovery) -> list[RecipeAreas]:
    """Return one group per measure."""
    run, faithfulness = result.run, result.settings.faithfulness
    groups = []
    for measure in result.measures:
        chosen, areas = result.best(measure), {row.name: row.resampled for row in result.of(measure)}
        group = RecipeAreas(run.task, run.model, measure, faithfulness, areas)
        if chosen.chosen_on != run.test.split:
            group = replace(group, chosen=chosen.name, choice=result.choice(measure))
        groups.append(group)
    return groups


def areas_of_study(study: Study) -> list[RecipeAreas]:
    """Return the areas on test, one group per model, task and measure.

    Validation chose the parameters of every recipe, and one recipe. Of scorers, none was chosen.
    """
    faithfulness, groups = study.plan.settings.faithfulness, []
    for cell in study.cells:
        for measure, repeats in cell.test.items():
            areas = {row.name: row.resampled for row in repeats}
            group = RecipeAreas(cell.task, cell.model, measure, faithfulness, areas)
            if measure in cell.validation:
                group = replace(group, chosen=cell.chosen(measure).name, choice=f"chosen on {VALIDATION}")
            groups.append(group)
    return groups


def compare_recipes(groups: Sequence[RecipeAreas], recipe: str | None = None, other: str | None = None) -> list[Record]:
    """Compare recipes in all groups that have them; return a record per pair, those of a group in a row.

    With both names, `recipe` minus `other`. With `recipe` alone, all others minus it. With neither, all others minus
    the chosen one of each group, or the best if none was chosen.
    """
    known = list(dict.fromkeys(name for group in groups for name in group.areas))
    recipe, other = (None if name is None else as_known("recipe", name, known) for name in (recipe, other))
    pairs: list[Record] = []
    for group in groups:
        areas = group.areas
        target = other or recipe or group.best
        names = [recipe] if recipe is not None and other is not None else [name for name in areas if name != target]
        about = {"task": group.task, "model": group.model, "faithfulness": plain(group.faithfulness)}
        for name in names:
            if name in areas and target in areas:
                pair = about | {"measure": plain(group.measure), "recipe": name, "other": target}
                pairs.append(pair | _compare_areas(areas[name], areas[target]))
    if not pairs and other is None:
        raise InputError(f"there is only one recipe, {' or '.join(known)}: nothing can be compared")
    if not pairs:
        raise InputError(f"{recipe} and {other} were never evaluated by the same measure")
    return pairs


def _compare_areas(area: Resampled, other: Resampled) -> Record:
    comparison = area.minus(other)
    values = {"area": area.estimate, "other_area": other.estimate}
    return values | comparison.record() | {"verdict": comparison.verdict}


def recipe_pair_tables(pairs: Sequence[Record], width: int = DEFAULT_WIDTH) -> list[Table]:
    """Return a table of pairs from one group, with marks as in `MARKS_LEGEND`."""
    first, others = pairs[0], dict.fromkeys(pair["other"] for pair in pairs)
    place = f"{short_name(first['task'])}, {short_name(first['model'])}"
    measure = describe_method(first["measure"])
    title = f"{measure} minus that of {' or '.join(others)}: {place}"
    rows = [(pair["recipe"], format_number(pair["area"]), *_difference_cells(pair)) for pair in pairs]
    return number_tables(("recipe", measure, *DIFFERENCE_COLUMNS), rows, width, title, left=(2,))


def _difference_cells(pair: Record) -> tuple[Text, str, str]:
    text = f"{format_number(pair['difference'], signed=True)} {mark_words(False, pair['verdict'])}".rstrip()
    return Text(text), format_interval(pair["low"], pair["high"], signed=True), f"{pair['p']:.3f}"


def count_shared(here: Circuit, there: Circuit) -> dict[str, float]:
    """Count the edges that two circuits of one graph share, and those that only one of them has.

    `overlap` is the number of shared edges divided by the number of edges in either; 1 if both are empty.
    """
    overlap = jaccard(here, there)  # raises InputError for two graphs
    shared = int(np.count_nonzero(here.mask & there.mask))
    only = {"only_here": here.n_edges - shared, "only_there": there.n_edges - shared}
    return {"shared": shared, **only, "overlap": overlap}


def pair_circuits(first: OpenCircuit, other: OpenCircuit, top: int = TOP) -> Record:
    """Compare two circuits of one graph: counts, and the strongest edges; shared ones have the first one's score."""
    here, there = first.circuit, other.circuit
    counts = count_shared(here, there)

    def strongest(mask: NDArray[np.bool_], score: NDArray[np.floating] | None) -> list[Record]:
        return describe(Circuit(here.graph, mask), score, top=top)["strongest"]  # type: ignore[no-any-return]

    parts = {
        "shared": strongest(here.mask & there.mask, first.score if first.score is not None else other.score),
        "only_here": strongest(here.mask & ~there.mask, first.score),
        "only_there": strongest(there.mask & ~here.mask, other.score),
    }
    return {
        "one": first.name, "other": other.name, "scores": [first.kind, other.kind], "unit": here.graph.unit, **counts,
        "strongest": parts,
    }  # fmt: skip


def pair_exported(
    first: Path,
    other: Path,
    measure: str,
    recipes: tuple[str | None, str | None] = (None, None),
    size: str | None = None,
    top: int = TOP,
) -> Record:
    """Compare a circuit of a run with the circuit of the same size of another run or recipe.

    Without names of recipes, circuits are those that the runs exported; without a size, the first has its default.
    """
    here = open_circuit(first, recipes[0], measure, size)
    assert here.outcome is not None
    share = here.outcome.curve.shares[here.size_index]
    size = f"{share:.17g}" if share in read_result(other).settings.sizes else None
    return pair_circuits(here, open_circuit(other, recipes[1], measure, size), top)


def pair_runs(first: str | Path, other: str | Path) -> Record:
    """Compare two result folders by the recipes that both have. Return a record of one, other, and

    paired   whether areas were measured on the same examples in the same way, and so are compared example by example.
             Otherwise the examples of each run are resampled independently, and intervals are wider.
    notes    other differences between the runs
    overlap  for each recipe, the shared edges of its circuits at the sizes that both runs have and that ask for an edge
    areas    for each recipe, its areas and their difference. Empty if areas can't be compared.
    """
    here, there = read_result(first), read_result(other)
    if here.run.graph != there.run.graph:
        raise InputError(
            f"circuits of two graphs have no edges to share: {first} has {here.run.graph.describe()}, {other} "
            f"{there.run.graph.describe()}"
        )
    settings, others = here.settings, there.settings
    same_metric = (settings.metric, settings.faithfulness) == (others.metric, others.faithfulness)
    paired = same_metric and here.run.test.prompts == there.run.test.prompts
    pairs = [
        (row, match)
        for row in here.outcomes
        for match in there.outcomes
        if (match.measure, match.name.lower()) == (row.measure, row.name.lower())
    ]
    if not pairs:
        raise InputError(f"{first} and {other} have no recipe in common: nothing can be compared")
    overlap, areas = [], []
    for row, match in pairs:
        names = {"measure": plain(row.measure), "recipe": row.name}
        circuits, matches = row.circuits, dict(zip(match.curve.shares, match.circuits, strict=True))
        places = [(place, row.curve.shares[place]) for place in row.curve.nonempty_sizes]
        sizes = [
            {"share": size} | count_shared(circuits[place], matches[size]) for place, size in places if size in matches
        ]
        overlap.append(names | {"sizes": sizes})
        if same_metric and row.curve.shares == match.curve.shares:
            # Equal seeds draw equal examples, so that resamples are paired. Another seed makes them independent.
            other_area = match.resampled if paired else resample(match.curve, match.measure, seed=1)
            areas.append(names | _compare_areas(row.resampled, other_area))
    notes = []
    if not same_metric:
        notes.append("the runs measure faithfulness differently, so their areas aren't compared")
    elif not paired:
        notes.append(
            "unpaired: the runs were evaluated on other examples, so intervals of differences are wider than in one run"
        )
    facts, other_facts = (
        {"model": short_name(result.run.model), "task": short_name(result.run.task)}
        | {name: describe_method(plain(getattr(result.settings, name))) for name in ("scorer", "ablation")}
        for result in (here, there)
    )
    for name, fact in facts.items():
        if fact != other_facts[name]:
            notes.append(f"another {name}: {fact} here, {other_facts[name]} there")
    if settings.sizes != others.sizes:
        notes.append("the runs have other sizes, so their areas aren't compared")
    record = {"one": str(first), "other": str(other), "unit": here.run.graph.unit, "paired": paired, "notes": notes}
    return record | {"overlap": overlap, "areas": areas}


def run_pair_tables(pair: Record, width: int) -> list[Table]:
    """Return a table of overlaps by size for each measure, then one of areas and their differences."""
    overlaps: list[Table] = []
    areas: list[Table] = []
    improves = {measure.name: f", {measure.improves}" for measure in BOTH_MEASURES}
    for measure in dict.fromkeys(describe_method(record["measure"]) for record in pair["overlap"]):
        records = [record for record in pair["overlap"] if describe_method(record["measure"]) == measure]
        shares = [format_percent(size["share"]) for size in records[0]["sizes"]]
        rows: list[Sequence[Any]] = [
            (record["recipe"], *(format_number(size["overlap"], digits=2) for size in record["sizes"]))
            for record in records
        ]
        title = f"{measure}: overlap of circuits by size, in % of the {pair['unit']}s"
        overlaps += number_tables(("recipe", *shares), rows, width, title)
        rows = [
            (record["recipe"], *map(format_number, (record["area"], record["other_area"])), *_difference_cells(record))
            for record in pair["areas"]
            if describe_method(record["measure"]) == measure
        ]
        if rows:
            title = f"{measure} here minus there{improves.get(measure, '')}"
            areas += number_tables(("recipe", "here", "there", *DIFFERENCE_COLUMNS), rows, width, title, left=(3,))
    return [*overlaps, *areas]
