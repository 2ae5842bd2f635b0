"""The paper's tables as values: rows of entries per model and task, with spread over seeds and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..evaluate import BOTH_MEASURES, CMD, CPR, Curve, Measure
from ..recipes.recipe import GREEDY
from .cell import Cell, Repeats, Study, best, by_name
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
    group    a line separates rows of different groups, and rows about different things
    """

    about: str
    better: int
    label: str
    entries: tuple[Entry | None, ...]
    group: int = 0


class Marks(NamedTuple):
    """How an entry is marked. `word` says why, for the terminal: 'best', 'better', 'worse' or nothing."""

    is_bold: bool = False
    is_underlined: bool = False
    word: str = ""


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

    def marks(self, row: TableRow, column: int) -> Marks:
        """Return the marks of an entry: the best is bold, those better than the baseline are underlined, as rounded."""
        entry, sign = row.entries[column], row.better
        if entry is None or not self.is_contest:
            return Marks()
        if self.is_difference:
            assert entry.low is not None and entry.high is not None
            is_better = sign * entry.value > 0
            # Equal examples give an interval without width, which is not significant.
            is_significant = entry.low < entry.high and (entry.low > 0 or entry.high < 0)
            word = ("better" if is_better else "worse") if is_significant else ""
            return Marks(word == "better", is_better, word)
        rivals = [other.entries[column] for other in self.rows if other.about == row.about]
        rounded = [round(sign * rival.value, DIGITS) for rival in rivals if rival is not None]
        value, first = round(sign * entry.value, DIGITS), rivals[0]
        is_best = value == max(rounded)
        is_better = self.baseline and first is not None and value > round(sign * first.value, DIGITS)
        return Marks(is_best, is_better, "best" if is_best else "")

    @property
    def lines(self) -> tuple[int, ...]:
        """The places of the rows that have a line above."""
        groups = [(row.about, row.group) for row in self.rows]
        return tuple(place for place in range(1, len(groups)) if groups[place] != groups[place - 1])


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
            tested = cell.tested(measure)[chosen.name]
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


def _table(study: Study, name: str, caption: str, rows: Sequence[TableRow], **flags: Any) -> StudyTable:
    return StudyTable(name, caption, tuple((cell.task, cell.model) for cell in study.cells), tuple(rows), **flags)


def _row(measure: Measure, label: str, entries: Sequence[Entry], group: int = 0) -> TableRow:
    return TableRow(measure.name, measure.better, label, tuple(entries), group)


def _entry(repeats: Repeats, note: str = "") -> Entry:
    interval = repeats.resampled.interval()
    return Entry(repeats.mean, repeats.spread, interval.low, interval.high, note)


def _mean_entry(values: Sequence[float]) -> Entry | None:
    """Return the mean of values over seeds or draws, with its spread. None without values."""
    array = np.array(values)
    return Entry(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None) if len(array) else None


def _main_table(study: Study) -> StudyTable:
    rows = []
    for measure in BOTH_MEASURES:
        name, paper = measure.name, measure.paper_recipe
        greedy_entries = [_entry(cell.test[measure][0]) for cell in study.cells]
        rows.append(_row(measure, f"{name} Baseline ({GREEDY.name})", greedy_entries))
        tested = [cell.tested(measure) for cell in study.cells]
        if paper in tested[0]:
            rows.append(_row(measure, f"{name} ({paper})", [_entry(by_recipe[paper]) for by_recipe in tested]))
        chosen_entries = []
        for cell, by_recipe in zip(study.cells, tested, strict=True):
            chosen = cell.chosen(measure)
            note = f"{chosen.name} ({chosen.parameter_text})".removesuffix(" ()")
            chosen_entries.append(_entry(by_recipe[chosen.name], note))
        rows.append(_row(measure, f"{name} (chosen on validation)", chosen_entries))
    measures = ", ".join(f"{measure.name} ({measure.improves})" for measure in BOTH_MEASURES)
    return _table(study, "main", f"The chosen recipes against the baseline on {TEST}: {measures}.", rows)


def _difference_table(study: Study, measure: Measure) -> StudyTable:
    """Every recipe minus greedy on test, paired."""

    def difference(cell: Cell, name: str) -> Entry:
        repeats = cell.tested(measure)[name]
        less = repeats.resampled.minus(cell.test[measure][0].resampled)
        return Entry(less.difference, None, less.low, less.high, repeats.recipe.parameter_text, less.p)

    names = [name for name in study.cells[0].tested(measure) if name != GREEDY.name]
    rows = [_row(measure, name, [difference(cell, name) for cell in study.cells]) for name in names]
    caption = (
        f"{measure.name} minus greedy's on {TEST} ({measure.improves}), paired over the same examples, with 95 % "
        "intervals: marked where the interval lies on the better side of 0. Hyper-parameters were chosen on validation."
    )
    return _table(study, f"test-{measure.name.lower()}", caption, rows, baseline=False, is_difference=True)


def _ablation_table(study: Study, measure: Measure) -> StudyTable:
    """All recipes on validation, ordered as in the paper: by how many methods they combine."""
    groups = [by_name(cell.validation[measure]) for cell in study.cells]
    n_methods = {name: 0 if name == GREEDY.name else name.count("+") + 1 for name in groups[0]}
    rows = []
    for name in sorted(n_methods, key=n_methods.__getitem__):
        bests = [best(group[name]) for group in groups]
        entries = [_entry(repeats, repeats.recipe.parameter_text) for repeats in bests]
        rows.append(_row(measure, name, entries, group=n_methods[name]))
    caption = f"{measure.name} ({measure.improves}) of all recipes on {VALIDATION}, each at its best setting there."
    return _table(study, f"ablation-{measure.name.lower()}", caption, rows)


def _sweep_table(study: Study, name: str, measure: Measure, recipe: str, what: str, parameter: str) -> StudyTable:
    """One recipe at every value of a hyper-parameter."""
    groups = [by_name(cell.validation[measure]).get(recipe, []) for cell in study.cells]
    rows = [
        _row(measure, f"{recipe} {same[0].recipe.parameters[parameter]:g}", [_entry(repeats) for repeats in same])
        for same in zip(*groups, strict=True)
    ]
    caption = f"{measure.name} ({measure.improves}) by {what}, on {VALIDATION}."
    return _table(study, name, caption, rows, baseline=False)


def _overlap_table(study: Study) -> StudyTable:
    rows = []
    for measure in BOTH_MEASURES:
        for who, label in (("greedy", GREEDY.name), ("chosen", "chosen on validation")):
            entries = tuple(_mean_entry(cell.overlap[measure][who]) for cell in study.cells)
            rows.append(TableRow(f"overlap of {measure.name}", 1, f"{measure.name} ({label})", entries))
    caption = "Stability: the mean Jaccard overlap of circuits over resamples of the training examples (1 is stable)."
    return _table(study, "overlap", caption, rows)


def _kept_table(study: Study) -> StudyTable:
    """The edges that pruning left: part of any difference between solvers is size."""

    def mean_kept(curve: Curve) -> float:
        sizes = zip(curve.shares, curve.n_requested, curve.n_kept, strict=True)
        return float(np.mean([kept / requested for share, requested, kept in sizes if requested and share < 1]))

    rows = []
    for measure in BOTH_MEASURES:
        for name in study.cells[0].tested(measure):
            repeats = [cell.tested(measure)[name] for cell in study.cells]
            entries = tuple(_mean_entry([mean_kept(curve) for curve in same.curves]) for same in repeats)
            rows.append(TableRow(f"edges of {measure.name}", 1, f"{measure.name} {name}", entries))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return _table(study, "kept", caption, rows, baseline=False, is_contest=False)
