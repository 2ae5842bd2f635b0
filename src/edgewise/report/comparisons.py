"""Paired comparisons of any two methods of a run or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ..errors import InputError, unknown_name
from ..evaluate import CONFIDENCE, Benchmark, Comparison, Faithfulness, Resampled, resample
from ..methods import plain
from ..results import Result
from ..study import Study
from .tables import short
from .words import shown


@dataclass(frozen=True, eq=False)
class Contest:
    """The methods that were measured on the same examples by the same metric: name -> area and its resamples."""

    task: str
    model: str
    benchmark: Benchmark
    faithfulness: Faithfulness
    methods: Mapping[str, Resampled]

    @property
    def best(self) -> str:
        """The method of the best area; of equals the first."""
        return max(self.methods, key=lambda name: self.benchmark.better * self.methods[name].estimate)


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
        about = {name: plain(getattr(contest, name)) for name in ("task", "model", "benchmark", "faithfulness")}
        names = {"method": self.one, "other": self.other}
        return about | names | areas | self.comparison.record() | {"verdict": self.comparison.verdict}


def contests_of_run(result: Result) -> list[Contest]:
    """A run has one contest per metric."""
    run, definition = result.run, result.rows[0].curve.definition
    return [
        Contest(run.task, run.model, b, definition, {row.name: resample(row.curve, b) for row in result.of(b)})
        for b in result.benchmarks
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
    method, other = (None if name is None else _as_known(name, known) for name in (method, other))
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


def _as_known(name: str, known: Sequence[str]) -> str:
    """A method's name as tables have it, from one in any case."""
    found = next((one for one in known if one.lower() == name.lower()), None)
    if found is None:
        raise unknown_name("method", name, list(known))
    return found


def pair_table(found: Sequence[Pair]) -> Table:
    """Pairs that share a contest, as a table; a star where the interval excludes 0."""
    contest, others = found[0].contest, {pair.other for pair in found}
    heading = (
        f"{contest.benchmark.name} less that of {' or '.join(others)}: {short(contest.task)}, {short(contest.model)}"
    )
    # Without edges, the longest names fit into 80 columns.
    table = Table(title=shown(heading), title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in (contest.benchmark.name, "difference", f"{CONFIDENCE:.0%} interval", "p"):
        table.add_column(shown(name), justify="right", no_wrap=True)
    for pair in found:
        area, less = contest.methods[pair.one].estimate, pair.comparison
        star = "*" if less.is_better or less.is_worse else " "
        numbers = (f"{area:.4f}", f"{less.difference:+.4f}{star}", f"{less.low:.4f}, {less.high:.4f}", f"{less.p:.3f}")
        table.add_row(shown(pair.one), *numbers, style="bold" if less.is_better else None)
    return table
