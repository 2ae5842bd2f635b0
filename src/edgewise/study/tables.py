"""The paper's tables as values: rows of entries per model and task, with spread over seeds and interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..evaluate.curve import BETTER, Curve
from ..evaluate.intervals import Comparison
from ..recipes import GREEDY, Recipe
from ..statistics import Bootstrap, Shrinkage
from .outcome import Cell, Repeats, Study, best, by_name
from .plan import BENCHMARKS, TEST, VALIDATION

DIGITS = 4
# What the paper chose for all its models and tasks.
PAPERS_CHOICE = {"CMD": "ILP + PNR", "CPR": "ILP + Bootstrapping"}
IMPROVES = {"CMD": "lower is better", "CPR": "higher is better"}


@dataclass(frozen=True)
class Entry:
    """A number, its standard deviation over seeds (None for one seed), and its interval over evaluated examples."""

    value: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    p: float | None = None

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON and CSV."""
        return dict(vars(self))


@dataclass(frozen=True)
class TableRow:
    """A row: which of the benchmark's metrics it is about, its method, and an entry per column (None if it has none).

    rule    whether a line goes above it
    """

    benchmark: str
    label: str
    entries: tuple[Entry | None, ...]
    rule: bool = False


@dataclass(frozen=True)
class StudyTable:
    """A table in the paper's form.

    columns   (task, model)
    baseline  whether the first row of a metric is what others are compared with (and underlined if better)
    is_difference   whether entries are differences to greedy: then bold means that the interval excludes 0
    is_contest      whether the best of a metric is bold
    faithfulness    the definition behind CMD and CPR; empty for a table of something else
    """

    name: str
    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
    baseline: bool = True
    is_difference: bool = False
    is_contest: bool = True
    faithfulness: str = ""

    def marks(self, row: TableRow, column: int) -> tuple[bool, bool]:
        """Whether an entry is bold (the best of its metric) and underlined (better than the baseline), as shown."""
        entry, sign = row.entries[column], BETTER.get(row.benchmark, 1)
        if entry is None or not self.is_contest:
            return False, False
        if self.is_difference:
            assert entry.low is not None and entry.high is not None
            sure = entry.low > 0 if sign > 0 else entry.high < 0
            return sure, sign * entry.value > 0
        rivals = [other.entries[column] for other in self.rows if other.benchmark == row.benchmark]
        shown = [round(sign * rival.value, DIGITS) for rival in rivals if rival is not None]
        mine = round(sign * entry.value, DIGITS)
        first = rivals[0]
        better = self.baseline and first is not None and mine > round(sign * first.value, DIGITS)
        return mine == max(shown), better


def study_tables(study: Study) -> tuple[StudyTable, ...]:
    """All tables: test first, as the paper has it, then ablations and hyper-parameters on validation."""
    tables = [_main(study), *(_differences(study, b) for b in BENCHMARKS), *(_ablation(study, b) for b in BENCHMARKS)]
    sweeps = (_tau(study), _pnr(study), *(_kappa(study, b) for b in BENCHMARKS))
    tables += [table for table in sweeps if len(table.rows) > 1]  # a single value was no choice
    definition = study.plan.settings.faithfulness
    words = f" Faithfulness: {definition}."
    tables = [replace(table, caption=table.caption + words, faithfulness=definition) for table in tables]
    return (*tables, _overlap(study), _kept(study))


def verdicts(study: Study) -> list[dict[str, Any]]:
    """For every column and metric: what was chosen on validation, and whether it beats greedy on test."""
    found = []
    for cell in study.cells:
        for benchmark in BENCHMARKS:
            chosen = cell.chosen(benchmark)
            ours, greedy = cell.on_test(benchmark, chosen), cell.test[benchmark][0]
            comparison = ours.resampled.less(greedy.resampled)
            found.append(
                {
                    "task": cell.task, "model": cell.model, "benchmark": benchmark,
                    "chosen": chosen.name, "parameters": chosen.parameters,
                    "test": ours.mean, "greedy": greedy.mean, **comparison.record(),
                    "verdict": _verdict(chosen, comparison),
                }
            )  # fmt: skip
    return found


def _verdict(chosen: Recipe, comparison: Comparison) -> str:
    if chosen == GREEDY:
        return "nothing was better than greedy on validation"
    found = comparison.verdict
    return f"{found} from greedy" if found == "not told apart" else f"{found} than greedy"


def _columns(study: Study) -> tuple[tuple[str, str], ...]:
    return tuple((cell.task, cell.model) for cell in study.cells)


def _entry(repeats: Repeats | None, note: str = "") -> Entry | None:
    if repeats is None:
        return None
    interval = repeats.resampled.interval()
    return Entry(repeats.mean, repeats.spread, interval.low, interval.high, note)


def _main(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for benchmark in BENCHMARKS:
        papers = PAPERS_CHOICE[benchmark]
        greedy = tuple(_entry(cell.test[benchmark][0]) for cell in study.cells)
        theirs = tuple(_entry(_named(cell.test[benchmark], papers)) for cell in study.cells)
        ours = tuple(_chosen_entry(cell, benchmark) for cell in study.cells)
        rows += [
            TableRow(benchmark, f"{benchmark} Baseline (Greedy)", greedy, bool(rows)),
            *([TableRow(benchmark, f"{benchmark} ({papers})", theirs)] if any(theirs) else []),
            TableRow(benchmark, f"{benchmark} (chosen on validation)", ours),
        ]
    caption = f"The chosen methods against the baseline on {TEST}: CMD (lower is better), CPR (higher is better)."
    return StudyTable("main", caption, _columns(study), tuple(rows))


def _chosen_entry(cell: Cell, benchmark: str) -> Entry | None:
    chosen = cell.chosen(benchmark)
    note = f"{chosen.name} ({chosen.parameters})" if chosen.parameters else chosen.name
    return _entry(cell.on_test(benchmark, chosen), note)


def _named(repeats: Sequence[Repeats], name: str) -> Repeats | None:
    return next((one for one in repeats if one.recipe.name == name), None)


def _differences(study: Study, benchmark: str) -> StudyTable:
    """Every combination less greedy on test, paired."""
    rows = []
    for name in by_name(study.cells[0].test[benchmark]):
        entries = []
        for cell in study.cells:
            ours = _named(cell.test[benchmark], name)
            assert ours is not None
            found = ours.resampled.less(cell.test[benchmark][0].resampled)
            entries.append(Entry(found.difference, None, found.low, found.high, ours.recipe.parameters, found.p))
        if name != "Greedy":
            rows.append(TableRow(benchmark, name, tuple(entries)))
    caption = (
        f"{benchmark} less greedy's on {TEST} ({IMPROVES[benchmark]}), paired over the same examples, with 95 % "
        "intervals: bold where the interval lies on the better side of 0. Hyper-parameters were chosen on validation."
    )
    return StudyTable(f"test-{benchmark.lower()}", caption, _columns(study), tuple(rows), False, True)


def _ablation(study: Study, benchmark: str) -> StudyTable:
    rows = []
    for name in by_name(study.cells[0].validation[benchmark]):
        groups = [best(by_name(cell.validation[benchmark])[name]) for cell in study.cells]
        rows.append(TableRow(benchmark, name, tuple(_entry(one, one.recipe.parameters) for one in groups)))
    rows = [TableRow(r.benchmark, r.label, r.entries, _is_new_group(r, before)) for r, before in _pairs(rows)]
    caption = (
        f"{benchmark} ({IMPROVES[benchmark]}) of all combinations on {VALIDATION}, each at its best setting there."
    )
    return StudyTable(f"ablation-{benchmark.lower()}", caption, _columns(study), tuple(rows))


def _pairs(rows: Sequence[TableRow]) -> list[tuple[TableRow, TableRow | None]]:
    """Rows in the order of the paper, by how much they combine; each with the one before."""
    ordered = sorted(rows, key=_parts)
    return list(zip(ordered, (None, *ordered[:-1]), strict=True))


def _parts(row: TableRow) -> int:
    return 0 if row.label == "Greedy" else row.label.count("+") + 1


def _is_new_group(row: TableRow, before: TableRow | None) -> bool:
    return before is not None and _parts(row) != _parts(before)


def _tau(study: Study) -> StudyTable:
    return _sweep(
        study, "tau", "CPR", "Bootstrapping", "resamples tau of the bootstrap",
        lambda recipe: recipe.filter.resamples if isinstance(recipe.filter, Bootstrap) else None,
    )  # fmt: skip


def _pnr(study: Study) -> StudyTable:
    return _sweep(study, "pnr", "CMD", "ILP + PNR", "positive-negative ratios", lambda recipe: recipe.pnr)


def _kappa(study: Study, benchmark: str) -> StudyTable:
    return _sweep(
        study, f"kappa-{benchmark.lower()}", benchmark, "ILP + Shrinkage", "standard errors kappa of shrinkage",
        lambda recipe: recipe.filter.kappa if isinstance(recipe.filter, Shrinkage) else None,
    )  # fmt: skip


def _sweep(
    study: Study, name: str, benchmark: str, combination: str, words: str, value: Callable[[Recipe], float | None]
) -> StudyTable:
    """One combination at every value of its hyper-parameter."""
    groups = [by_name(cell.validation[benchmark]).get(combination, []) for cell in study.cells]
    rows = [
        TableRow(benchmark, f"{combination} {value(same[0].recipe):g}", tuple(_entry(one) for one in same))
        for same in zip(*groups, strict=True)
    ]
    caption = f"{benchmark} ({IMPROVES[benchmark]}) by {words}, on {VALIDATION}."
    return StudyTable(name, caption, _columns(study), tuple(rows), baseline=False)


def _overlap(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for benchmark in BENCHMARKS:
        for who, words in (("greedy", "Greedy"), ("chosen", "chosen on validation")):
            draws = [np.array(cell.overlap[benchmark][who]) for cell in study.cells]
            entries = tuple(Entry(float(d.mean()), float(d.std(ddof=1)) if len(d) > 1 else None) for d in draws)
            rule = bool(rows) and who == "greedy"
            rows.append(TableRow(f"overlap of {benchmark}", f"{benchmark} ({words})", entries, rule))
    caption = "Stability: the mean Jaccard overlap of circuits over resamples of the training examples (1 is stable)."
    return StudyTable("overlap", caption, _columns(study), tuple(rows))


def _kept(study: Study) -> StudyTable:
    """How much of what was asked for pruning left: part of any difference between solvers is size."""
    rows: list[TableRow] = []
    for benchmark in BENCHMARKS:
        for name in by_name(study.cells[0].test[benchmark]):
            found = [_named(cell.test[benchmark], name) for cell in study.cells]
            shares = [np.array([_share_kept(curve) for curve in one.curves]) for one in found if one is not None]
            entries = tuple(Entry(float(s.mean()), float(s.std(ddof=1)) if len(s) > 1 else None) for s in shares)
            rule = bool(rows) and name == "Greedy"
            rows.append(TableRow(f"edges of {benchmark}", f"{benchmark} {name}", entries, rule))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return StudyTable("kept", caption, _columns(study), tuple(rows), baseline=False, is_contest=False)


def _share_kept(curve: Curve) -> float:
    sizes = zip(curve.shares, curve.asked, curve.kept, strict=True)
    return float(np.mean([kept / asked for share, asked, kept in sizes if asked and share < 1]))
