"""Paired comparisons of any two recipes of a run or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from ..errors import InputError
from ..evaluate import Comparison, Faithfulness, Measure, Resampled
from ..method import as_known, plain
from ..recipes.discovery import Discovery
from ..study import Study
from .formatting import format_interval, format_number, short_name
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

    @property
    def best(self) -> str:
        """The recipe of the best area; ties go to the first."""
        return max(self.areas, key=lambda name: self.measure.better * self.areas[name].estimate)


@dataclass(frozen=True)
class RecipePair:
    """One recipe minus another, by their names."""

    group: RecipeAreas
    recipe: str
    other: str
    comparison: Comparison

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        group = self.group
        return {
            "task": group.task,
            "model": group.model,
            "faithfulness": plain(group.faithfulness),
            "benchmark": plain(group.measure),
            "method": self.recipe,
            "other": self.other,
            "area": group.areas[self.recipe].estimate,
            "other_area": group.areas[self.other].estimate,
            **self.comparison.record(),
            "verdict": self.comparison.verdict,
        }


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
        RecipeAreas(cell.task, cell.model, measure, faithfulness, {one.recipe.name: one.resampled for one in repeats})
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
        target = other or recipe or group.best
        names = [recipe] if recipe is not None and other is not None else [n for n in group.areas if n != target]
        for name in names:
            if name in group.areas and target in group.areas:
                comparison = group.areas[name].minus(group.areas[target])
                pairs.append(RecipePair(group, name, target, comparison))
    if not pairs:
        raise InputError(f"{recipe} and {other} were never evaluated by the same measure")
    return pairs


def recipe_pair_tables(pairs: Sequence[RecipePair], width: int = DEFAULT_WIDTH) -> list[Table]:
    """Return a table of pairs from one group, with marks as in `MARKS_LEGEND`."""
    group, others = pairs[0].group, dict.fromkeys(pair.other for pair in pairs)
    place = f"{short_name(group.task)}, {short_name(group.model)}"
    title = f"{group.measure.name} minus that of {' or '.join(others)}: {place}"
    rows = [
        (pair.recipe, format_number(group.areas[pair.recipe].estimate), *difference_cells(pair.comparison))
        for pair in pairs
    ]
    return number_tables(("recipe", group.measure.name, *DIFFERENCE_COLUMNS), rows, width, title, left=(2,))


def difference_cells(comparison: Comparison) -> tuple[Text, str, str]:
    """Return a difference with its mark, its interval and p, for `DIFFERENCE_COLUMNS`."""
    text = f"{format_number(comparison.difference, signed=True)} {significance_mark(comparison)}".rstrip()
    style = "bold" if comparison.is_better else ""
    return Text(text, style), format_interval(comparison.low, comparison.high, signed=True), f"{comparison.p:.3f}"
