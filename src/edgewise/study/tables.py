"""The paper's tables as values: rows of entries per model and task, with spread over seeds and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..evaluate import BOTH_MEASURES, CMD, CPR, Measure
from ..recipes.recipe import GREEDY
from .folder import Repeats, Study, best, by_name
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


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    about    the measure, or what else is measured. Rows of the same are compared with each other.
    better   1 if higher is better, -1 if lower is
    entries  one per column. None if there is none.
    rule     whether a line is drawn above the row
    """

    about: str
    better: int
    label: str
    entries: tuple[Entry | None, ...]
    rule: bool = False


@dataclass(frozen=True)
class StudyTable:
    """A table in the paper's form.

    columns        (task, model) pairs
    baseline       whether the first row of a measure is the baseline. Better entries are underlined.
    is_difference  whether entries are differences to greedy. Bold then means that the interval excludes 0.
    is_contest     whether the best entry of a measure is bold
    faithfulness   the definition behind CMD and CPR. Empty for other tables.
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
        """Return whether an entry is bold (the best) and underlined (better than the baseline), as rounded."""
        entry, sign = row.entries[column], row.better
        if entry is None or not self.is_contest:
            return False, False
        if self.is_difference:
            assert entry.low is not None and entry.high is not None
            # Equal examples give an interval without width, which is not significant.
            is_significant = entry.low < entry.high and (entry.low > 0 if sign > 0 else entry.high < 0)
            return is_significant, sign * entry.value > 0
        rivals = [other.entries[column] for other in self.rows if other.about == row.about]
        rounded = [round(sign * rival.value, DIGITS) for rival in rivals if rival is not None]
        value, first = round(sign * entry.value, DIGITS), rivals[0]
        is_better = self.baseline and first is not None and value > round(sign * first.value, DIGITS)
        return value == max(rounded), is_better


def study_tables(study: Study) -> tuple[StudyTable, ...]:
    """Return all tables: test first, as in the paper, then ablations and hyper-parameters on validation."""
    tables = [
        _main_table(study),
        *(_difference_table(study, measure) for measure in BOTH_MEASURES),
        *(_ablation_table(study, measure) for measure in BOTH_MEASURES),
    ]
    shrinkage = "standard errors kappa of shrinkage"
    sweeps = [
        _sweep_table(study, "tau", CPR, "Bootstrapping", "resamples tau of the bootstrap", "tau"),
        _sweep_table(study, "pnr", CMD, "ILP + PNR", "positive-negative ratios", "PNR"),
        *(_sweep_table(study, f"kappa-{m.name.lower()}", m, "ILP + Shrinkage", shrinkage, "kappa")
          for m in BOTH_MEASURES),
    ]  # fmt: skip
    tables += [table for table in sweeps if len(table.rows) > 1]
    definition = study.plan.settings.faithfulness.name
    tables = [
        replace(table, caption=f"{table.caption} Faithfulness: {definition}.", faithfulness=definition)
        for table in tables
    ]
    return (*tables, _overlap_table(study), _kept_table(study))


def verdicts(study: Study) -> list[dict[str, Any]]:
    """Return, for every cell and measure, the recipe chosen on validation and how it compares with greedy on test."""
    records = []
    for cell in study.cells:
        for measure in BOTH_MEASURES:
            chosen, greedy = cell.chosen(measure), cell.test[measure][0]
            tested = cell.on_test(measure, chosen)
            comparison = tested.resampled.minus(greedy.resampled)
            if chosen == GREEDY:
                verdict = "no recipe was better than greedy on validation"
            elif comparison.verdict == "not significant":
                verdict = "not significantly different from greedy"
            else:
                verdict = f"{comparison.verdict} than greedy"
            records.append(
                {
                    "task": cell.task, "model": cell.model, "benchmark": measure.name,
                    "chosen": chosen.name, "parameters": chosen.parameter_text,
                    "test": tested.mean, "greedy": greedy.mean, **comparison.record(), "verdict": verdict,
                }
            )  # fmt: skip
    return records


def _row(measure: Measure, label: str, entries: Sequence[Entry | None], rule: bool = False) -> TableRow:
    return TableRow(measure.name, measure.better, label, tuple(entries), rule)


def _columns(study: Study) -> tuple[tuple[str, str], ...]:
    return tuple((cell.task, cell.model) for cell in study.cells)


def _entry(repeats: Repeats | None, note: str = "") -> Entry | None:
    if repeats is None:
        return None
    interval = repeats.resampled.interval()
    return Entry(repeats.mean, repeats.spread, interval.low, interval.high, note)


def _mean_entry(values: Sequence[float]) -> Entry | None:
    """Return the mean of values over seeds or draws, with its spread. None without values."""
    array = np.array(values)
    return Entry(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None) if len(array) else None


def _main_table(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        name, paper = measure.name, measure.paper_recipe
        chosen_entries = []
        for cell in study.cells:
            chosen = cell.chosen(measure)
            note = f"{chosen.name} ({chosen.parameter_text})" if chosen.parameter_text else chosen.name
            chosen_entries.append(_entry(cell.on_test(measure, chosen), note))
        greedy_entries = [_entry(cell.test[measure][0]) for cell in study.cells]
        paper_entries = [_entry(by_name(cell.test[measure]).get(paper, [None])[0]) for cell in study.cells]
        rows.append(_row(measure, f"{name} Baseline ({GREEDY.name})", greedy_entries, bool(rows)))
        if any(paper_entries):
            rows.append(_row(measure, f"{name} ({paper})", paper_entries))
        rows.append(_row(measure, f"{name} (chosen on validation)", chosen_entries))
    measures = ", ".join(f"{measure.name} ({measure.improves})" for measure in BOTH_MEASURES)
    caption = f"The chosen recipes against the baseline on {TEST}: {measures}."
    return StudyTable("main", caption, _columns(study), tuple(rows))


def _difference_table(study: Study, measure: Measure) -> StudyTable:
    """Every recipe minus greedy on test, paired."""
    rows = []
    for name in by_name(study.cells[0].test[measure]):
        entries = []
        for cell in study.cells:
            (repeats,) = by_name(cell.test[measure])[name]
            less = repeats.resampled.minus(cell.test[measure][0].resampled)
            entries.append(Entry(less.difference, None, less.low, less.high, repeats.recipe.parameter_text, less.p))
        if name != GREEDY.name:
            rows.append(_row(measure, name, entries))
    caption = (
        f"{measure.name} minus greedy's on {TEST} ({measure.improves}), paired over the same examples, with 95 % "
        "intervals: marked where the interval lies on the better side of 0. Hyper-parameters were chosen on validation."
    )
    return StudyTable(f"test-{measure.name.lower()}", caption, _columns(study), tuple(rows), False, True)


def _ablation_table(study: Study, measure: Measure) -> StudyTable:
    """All recipes on validation, ordered as in the paper: by how many methods they combine."""
    groups = [by_name(cell.validation[measure]) for cell in study.cells]
    names = sorted(groups[0], key=_count_methods)
    rows = []
    for name, previous in zip(names, (names[0], *names), strict=False):
        bests = [best(group[name]) for group in groups]
        entries = [_entry(repeats, repeats.recipe.parameter_text) for repeats in bests]
        rows.append(_row(measure, name, entries, rule=_count_methods(name) != _count_methods(previous)))
    caption = f"{measure.name} ({measure.improves}) of all recipes on {VALIDATION}, each at its best setting there."
    return StudyTable(f"ablation-{measure.name.lower()}", caption, _columns(study), tuple(rows))


def _count_methods(name: str) -> int:
    return 0 if name == GREEDY.name else name.count("+") + 1


def _sweep_table(study: Study, name: str, measure: Measure, recipe: str, what: str, parameter: str) -> StudyTable:
    """One recipe at every value of a hyper-parameter."""
    groups = [by_name(cell.validation[measure]).get(recipe, []) for cell in study.cells]
    rows = [
        _row(measure, f"{recipe} {same[0].recipe.parameters[parameter]:g}", [_entry(repeats) for repeats in same])
        for same in zip(*groups, strict=True)
    ]
    caption = f"{measure.name} ({measure.improves}) by {what}, on {VALIDATION}."
    return StudyTable(name, caption, _columns(study), tuple(rows), baseline=False)


def _overlap_table(study: Study) -> StudyTable:
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        for who, label in (("greedy", GREEDY.name), ("chosen", "chosen on validation")):
            entries = tuple(_mean_entry(cell.overlap[measure][who]) for cell in study.cells)
            rule = bool(rows) and who == "greedy"
            rows.append(TableRow(f"overlap of {measure.name}", 1, f"{measure.name} ({label})", entries, rule))
    caption = "Stability: the mean Jaccard overlap of circuits over resamples of the training examples (1 is stable)."
    return StudyTable("overlap", caption, _columns(study), tuple(rows))


def _kept_table(study: Study) -> StudyTable:
    """The edges that pruning left: part of any difference between solvers is size."""
    rows: list[TableRow] = []
    for measure in BOTH_MEASURES:
        for name in by_name(study.cells[0].test[measure]):
            entries = []
            for cell in study.cells:
                (repeats,) = by_name(cell.test[measure])[name]
                sizes = [zip(curve.shares, curve.n_requested, curve.n_kept, strict=True) for curve in repeats.curves]
                shares = [[kept / asked for share, asked, kept in of if asked and share < 1] for of in sizes]
                entries.append(_mean_entry([float(np.mean(of)) for of in shares]))
            rule = bool(rows) and name == GREEDY.name
            rows.append(TableRow(f"edges of {measure.name}", 1, f"{measure.name} {name}", tuple(entries), rule))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return StudyTable("kept", caption, _columns(study), tuple(rows), baseline=False, is_contest=False)
