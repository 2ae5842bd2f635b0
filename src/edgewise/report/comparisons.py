"""Paired comparisons of any two methods of a run or a study."""

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
from .tables import BETTER, INTERVAL, SURE, WIDTH, is_sure, number_tables

DIFFERENCE = ("difference", INTERVAL, "p")
LEGEND = f"{SURE}: the interval excludes 0; {BETTER}: on the better side"


@dataclass(frozen=True, eq=False)
class Contest:
    """The methods that were measured on the same examples by the same metric: name -> area and its resamples."""

    task: str
    model: str
    measure: Measure
    faithfulness: Faithfulness
    methods: Mapping[str, Resampled]

    @property
    def best(self) -> str:
        """The method of the best area; of equals the first."""
        return max(self.methods, key=lambda name: self.measure.better * self.methods[name].estimate)


@dataclass(frozen=True)
class Pair:
    """One method less another: `one` and `other` are their names."""

    contest: Contest
    one: str
    other: str
    comparison: Comparison

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        contest = self.contest
        areas = {"area": contest.methods[self.one].estimate, "other_area": contest.methods[self.other].estimate}
        about = {name: plain(getattr(contest, name)) for name in ("task", "model", "faithfulness")}
        about["benchmark"] = plain(contest.measure)
        names = {"method": self.one, "other": self.other}
        return about | names | areas | self.comparison.record() | {"verdict": self.comparison.verdict}


def contests_of_run(result: Discovery) -> list[Contest]:
    """A run has one contest per metric."""
    run, definition = result.run, result.settings.faithfulness
    return [
        Contest(run.task, run.model, b, definition, {row.name: row.resampled for row in result.of(b)})
        for b in result.measures
    ]


def contests_of_study(study: Study) -> list[Contest]:
    """A study has one per metric, model and task: its combinations on test, as validation chose their parameters."""
    return [
        Contest(
            cell.task,
            cell.model,
            b,
            study.plan.settings.faithfulness,
            {one.recipe.name: one.resampled for one in repeats},
        )
        for cell in study.cells
        for b, repeats in cell.test.items()
    ]


def pairs(contests: Sequence[Contest], method: str | None = None, other: str | None = None) -> list[Pair]:
    """The method less the other one, wherever both were measured; without `other`, all methods less `method`; without
    either, all methods less the best of each contest."""
    known = list(dict.fromkeys(name for contest in contests for name in contest.methods))
    method, other = (None if name is None else as_known("method", name, known) for name in (method, other))
    found = []
    for contest in contests:
        target = other or method or contest.best
        if target not in contest.methods:
            continue
        ours = [method] if method is not None and other is not None else [n for n in contest.methods if n != target]
        for name in ours:
            if name in contest.methods:
                comparison = contest.methods[name].minus(contest.methods[target])
                found.append(Pair(contest, name, target, comparison))
    if not found:
        raise InputError(f"{method} and {other} were never measured by the same metric")
    return found


def pair_tables(found: Sequence[Pair], width: int = WIDTH) -> list[Table]:
    """Pairs that share a contest, as a table with marks as `LEGEND` has them."""
    contest, others = found[0].contest, {pair.other for pair in found}
    where = f"{short_name(contest.task)}, {short_name(contest.model)}"
    heading = f"{contest.measure.name} less that of {' or '.join(others)}: {where}"
    rows = [
        (pair.one, format_number(contest.methods[pair.one].estimate), *difference_cells(pair.comparison))
        for pair in found
    ]
    return number_tables(("method", contest.measure.name, *DIFFERENCE), rows, width, heading, left=(2,))


def difference_cells(less: Comparison) -> tuple[Text, str, str]:
    """A difference with its marks, its interval and p, for the columns of `DIFFERENCE`."""
    marks = BETTER * less.is_better + SURE * is_sure(less)
    difference = Text(
        f"{format_number(less.difference, signed=True)} {marks}".rstrip(), "bold" if less.is_better else ""
    )
    return difference, format_interval(less.low, less.high, signed=True), f"{less.p:.3f}"
