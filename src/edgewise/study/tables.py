"""The paper's tables as values: rows of entries per model and task, with spread over seeds and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..evaluate import BOTH_MEASURES, CMD, CPR, Comparison, Curve, Measure
from ..recipes.recipe import GREEDY, Recipe
from .cells import Cell, Repeats, Study, best, by_name
from .plan import TEST, VALIDATION

DIGITS = 4


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
    """A row: what it is about, its method, and an entry per column (None if it has none).

    about   the benchmark's metric, or what else is measured: rows of the same are rivals
    better  1 if higher is better, -1 if lower is
    rule    whether a line goes above it
    """

    about: str
    better: int
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
        entry, sign = row.entries[column], row.better
        if entry is None or not self.is_contest:
            return False, False
        if self.is_difference:
            assert entry.low is not None and entry.high is not None
            # An interval without any width comes from equal examples, which tell nothing apart.
            sure = entry.low < entry.high and (entry.low > 0 if sign > 0 else entry.high < 0)
            return sure, sign * entry.value > 0
        rivals = [other.entries[column] for other in self.rows if other.about == row.about]
        shown = [round(sign * rival.value, DIGITS) for rival in rivals if rival is not None]
        mine = round(sign * entry.value, DIGITS)
        first = rivals[0]
        better = self.baseline and first is not None and mine > round(sign * first.value, DIGITS)
        return mine == max(shown), better


def study_tables(study: Study) -> tuple[StudyTable, ...]:
    """All tables: test first, as the paper has it, then ablations and hyper-parameters on validation."""
    tables = [
        _main(study),
        *(_differences(study, b) for b in BOTH_MEASURES),
        *(_ablation(study, b) for b in BOTH_MEASURES),
    ]
    sweeps = (_tau(study), _pnr(study), *(_kappa(study, b) for b in BOTH_MEASURES))
    tables += [table for table in sweeps if len(table.rows) > 1]  # a single value was no choice
    definition = study.plan.settings.faithfulness.name
    words = f" Faithfulness: {definition}."
    tables = [replace(table, caption=table.caption + words, faithfulness=definition) for table in tables]
    return (*tables, _overlap(study), _kept(study))


def verdicts(study: Study) -> list[dict[str, Any]]:
    """For every column and metric: what was chosen on validation, and whether it beats greedy on test."""
    found = []
    for cell in study.cells:
        for measure in BOTH_MEASURES:
            chosen = cell.chosen(measure)
            ours, greedy = cell.on_test(measure, chosen), cell.test[measure][0]
            comparison = ours.resampled.minus(greedy.resampled)
            found.append(
                {
                    "task": cell.task, "model": cell.model, "benchmark": measure.name,
                    "chosen": chosen.name, "parameters": chosen.parameter_text,
                    "test": ours.mean, "greedy": greedy.mean, **comparison.record(),
                    "verdict": _verdict(chosen, comparison),
                }
            )  # fmt: skip
    return found


def _verdict(chosen: Recipe, comparison: Comparison) -> str:
    if chosen == GREEDY:
        return "nothing was better than greedy on validation"
    verdict = comparison.verdict
    return "not significantly different from greedy" if verdict == "not significant" else f"{verdict} than greedy"


def _row(measure: Measure, label: str, entries: tuple[Entry | None, ...], rule: bool = False) -> TableRow:
    return TableRow(measure.name, measure.better, label, entries, rule)


def _columns(study: Study) -> tuple[tuple[str, str], ...]:
    return tuple((cell.task, cell.model) for cell in study.cells)


def _entry(repeats: Repeats | None, note: str = "") -> Entry | None:
    if repeats is None:
        return None
    interval = repeats.resampled.interval()
    return Entry(repeats.mean, repeats.spread, interval.low, interval.high, note)


def _main(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        papers = measure.paper_recipe
        greedy = tuple(_entry(cell.test[measure][0]) for cell in study.cells)
        theirs = tuple(_entry(_named(cell.test[measure], papers)) for cell in study.cells)
        ours = tuple(_chosen_entry(cell, measure) for cell in study.cells)
        rows += [
            _row(measure, f"{measure.name} Baseline ({GREEDY.name})", greedy, bool(rows)),
            *([_row(measure, f"{measure.name} ({papers})", theirs)] if any(theirs) else []),
            _row(measure, f"{measure.name} (chosen on validation)", ours),
        ]
    metrics = ", ".join(f"{b.name} ({b.improves})" for b in BOTH_MEASURES)
    caption = f"The chosen methods against the baseline on {TEST}: {metrics}."
    return StudyTable("main", caption, _columns(study), tuple(rows))


def _chosen_entry(cell: Cell, measure: Measure) -> Entry | None:
    chosen = cell.chosen(measure)
    note = f"{chosen.name} ({chosen.parameter_text})" if chosen.parameter_text else chosen.name
    return _entry(cell.on_test(measure, chosen), note)


def _named(repeats: Sequence[Repeats], name: str) -> Repeats | None:
    return next((one for one in repeats if one.recipe.name == name), None)


def _differences(study: Study, measure: Measure) -> StudyTable:
    """Every combination less greedy on test, paired."""
    rows = []
    for name in by_name(study.cells[0].test[measure]):
        entries = []
        for cell in study.cells:
            ours = _named(cell.test[measure], name)
            assert ours is not None
            found = ours.resampled.minus(cell.test[measure][0].resampled)
            entries.append(Entry(found.difference, None, found.low, found.high, ours.recipe.parameter_text, found.p))
        if name != GREEDY.name:
            rows.append(_row(measure, name, tuple(entries)))
    caption = (
        f"{measure.name} less greedy's on {TEST} ({measure.improves}), paired over the same examples, with 95 % "
        "intervals: marked where the interval lies on the better side of 0. Hyper-parameters were chosen on validation."
    )
    return StudyTable(f"test-{measure.name.lower()}", caption, _columns(study), tuple(rows), False, True)


def _ablation(study: Study, measure: Measure) -> StudyTable:
    rows = []
    for name in by_name(study.cells[0].validation[measure]):
        groups = [best(by_name(cell.validation[measure])[name]) for cell in study.cells]
        rows.append(_row(measure, name, tuple(_entry(one, one.recipe.parameter_text) for one in groups)))
    rows = [replace(row, rule=_is_new_group(row, before)) for row, before in _pairs(rows)]
    caption = (
        f"{measure.name} ({measure.improves}) of all combinations on {VALIDATION}, each at its best setting there."
    )
    return StudyTable(f"ablation-{measure.name.lower()}", caption, _columns(study), tuple(rows))


def _pairs(rows: Sequence[TableRow]) -> list[tuple[TableRow, TableRow | None]]:
    """Rows in the order of the paper, by how much they combine; each with the one before."""
    ordered = sorted(rows, key=_parts)
    return list(zip(ordered, (None, *ordered[:-1]), strict=True))


def _parts(row: TableRow) -> int:
    return 0 if row.label == GREEDY.name else row.label.count("+") + 1


def _is_new_group(row: TableRow, before: TableRow | None) -> bool:
    return before is not None and _parts(row) != _parts(before)


def _tau(study: Study) -> StudyTable:
    return _sweep(study, "tau", CPR, "Bootstrapping", "resamples tau of the bootstrap", "tau")


def _pnr(study: Study) -> StudyTable:
    return _sweep(study, "pnr", CMD, "ILP + PNR", "positive-negative ratios", "PNR")


def _kappa(study: Study, measure: Measure) -> StudyTable:
    words = "standard errors kappa of shrinkage"
    return _sweep(study, f"kappa-{measure.name.lower()}", measure, "ILP + Shrinkage", words, "kappa")


def _sweep(study: Study, name: str, measure: Measure, combination: str, words: str, parameter: str) -> StudyTable:
    """One combination at every value of its hyper-parameter."""
    groups = [by_name(cell.validation[measure]).get(combination, []) for cell in study.cells]
    rows = [
        _row(measure, f"{combination} {same[0].recipe.parameters[parameter]:g}", tuple(_entry(one) for one in same))
        for same in zip(*groups, strict=True)
    ]
    caption = f"{measure.name} ({measure.improves}) by {words}, on {VALIDATION}."
    return StudyTable(name, caption, _columns(study), tuple(rows), baseline=False)


def _overlap(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        for who, words in (("greedy", GREEDY.name), ("chosen", "chosen on validation")):
            draws = [np.array(cell.overlap[measure][who]) for cell in study.cells]
            entries = tuple(
                Entry(float(d.mean()), float(d.std(ddof=1)) if len(d) > 1 else None) if len(d) else None for d in draws
            )
            rule = bool(rows) and who == "greedy"
            rows.append(TableRow(f"overlap of {measure.name}", 1, f"{measure.name} ({words})", entries, rule))
    caption = "Stability: the mean Jaccard overlap of circuits over resamples of the training examples (1 is stable)."
    return StudyTable("overlap", caption, _columns(study), tuple(rows))


def _kept(study: Study) -> StudyTable:
    """How much of what was asked for pruning left: part of any difference between solvers is size."""
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        for name in by_name(study.cells[0].test[measure]):
            found = [_named(cell.test[measure], name) for cell in study.cells]
            shares = [np.array([_share_kept(curve) for curve in one.curves]) for one in found if one is not None]
            entries = tuple(Entry(float(s.mean()), float(s.std(ddof=1)) if len(s) > 1 else None) for s in shares)
            rule = bool(rows) and name == GREEDY.name
            rows.append(TableRow(f"edges of {measure.name}", 1, f"{measure.name} {name}", entries, rule))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return StudyTable("kept", caption, _columns(study), tuple(rows), baseline=False, is_contest=False)


def _share_kept(curve: Curve) -> float:
    sizes = zip(curve.shares, curve.asked, curve.kept, strict=True)
    return float(np.mean([kept / asked for share, asked, kept in sizes if asked and share < 1]))
