"""Paired comparisons of any two methods of a run or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..errors import InputError, unknown_name
from ..evaluate.curve import BETTER
from ..evaluate.intervals import CONFIDENCE, Comparison, Resampled, resample
from ..formats.result_folder import Result
from ..study import Study
from .tables import short


@dataclass(frozen=True, eq=False)
class Contest:
    """The methods that were measured on the same examples by the same metric: name -> area and its resamples."""

    task: str
    model: str
    benchmark: str
    faithfulness: str
    methods: Mapping[str, Resampled]

    @property
    def best(self) -> str:
        """The method of the best area; of equals the first."""
        sign = BETTER[self.benchmark]
        return max(self.methods, key=lambda name: sign * self.methods[name].estimate)


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
        about = {name: getattr(contest, name) for name in ("task", "model", "benchmark", "faithfulness")}
        names = {"method": self.one, "other": self.other}
        return about | names | areas | self.comparison.record() | {"verdict": self.comparison.verdict}


def contests_of_run(result: Result) -> list[Contest]:
    """A run has one contest per metric."""
    task, model, definition = result.run["task"], result.run["model"], result.run["settings"]["faithfulness"]
    return [
        Contest(
            task, model, b, definition, {row.name: resample(row.curve, b) for row in result.rows if row.benchmark == b}
        )
        for b in dict.fromkeys(row.benchmark for row in result.rows)
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
    for name in (method, other):
        if name is not None and name not in known:
            raise unknown_name("method", name, known)
    found = []
    for contest in contests:
        target = other or method or contest.best
        if target not in contest.methods:
            continue
        ours = [method] if method is not None and other is not None else [n for n in contest.methods if n != target]
        for name in ours:
            if name in contest.methods:
                comparison = contest.methods[name].less(contest.methods[target])
                found.append(Pair(contest, name, target, comparison))
    if not found:
        raise InputError(f"{method} and {other} were never measured by the same metric")
    return found


def pair_table(found: Sequence[Pair]) -> Table:
    """Pairs that share a contest, as a table; a star where the interval excludes 0."""
    contest, others = found[0].contest, {pair.other for pair in found}
    heading = f"{contest.benchmark} less that of {' or '.join(others)}: {short(contest.task)}, {short(contest.model)}"
    # Without edges, the longest names fit into 80 columns.
    table = Table(title=escape(heading), title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in (contest.benchmark, "difference", f"{CONFIDENCE:.0%} interval", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in found:
        area, less = contest.methods[pair.one].estimate, pair.comparison
        star = "*" if less.is_better or less.is_worse else " "
        numbers = (f"{area:.4f}", f"{less.difference:+.4f}{star}", f"{less.low:.4f}, {less.high:.4f}", f"{less.p:.3f}")
        table.add_row(escape(pair.one), *numbers, style="bold" if less.is_better else None)
    return table
