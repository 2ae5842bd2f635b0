"""The paper's tables as values: rows of entries per model and task, with spread over seeds and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..evaluate import BOTH_MEASURES, CMD, CPR, Curve, Measure
from ..evaluate.intervals import NOT_SIGNIFICANT
from ..recipes.recipe import GREEDY
from .folder import Cell, Repeats, Study, best, by_name
from .plan import TEST, VALIDATION

DIGITS = 4


@dataclass(frozen=True)
class Entry:
    """A number, its standard deviation over seeds (None for one seed), and its interval over evaluated examples.

    verdict  from the paired comparison with greedy: 'better', 'worse' or 'no significant difference'. Empty if there is
             none.
    """

    value: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    p: float | None = None
    verdict: str = ""


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


@dataclass(frozen=True)
class StudyTable:
    """A table in the paper's form.

    columns        (task, model) pairs
    is_difference  whether entries are differences to greedy
    is_contest     whether the best entry of a measure is marked
    faithfulness   the definition behind CMD and CPR. Empty for other tables.
    """

    name: str
    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
    is_difference: bool = False
    is_contest: bool = True
    faithfulness: str = ""

    def is_best(self, row: TableRow, column: int) -> bool:
        """Return whether an entry is the best of its measure, as rounded; none is, if all are equal."""
        entry = row.entries[column]
        if entry is None or not self.is_contest:
            return False
        rivals = [other.entries[column] for other in self.rows if other.about == row.about]
        rounded = [round(row.better * rival.value, DIGITS) for rival in rivals if rival is not None]
        return max(rounded) > min(rounded) and round(row.better * entry.value, DIGITS) == max(rounded)

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
            elif comparison.verdict == NOT_SIGNIFICANT:
                verdict = f"{NOT_SIGNIFICANT} from greedy"
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


def _entry(repeats: Repeats, greedy: Repeats | None = None, note: str = "") -> Entry:
    """Return the entry of a recipe, with the verdict of its comparison with greedy unless it is greedy."""
    interval = repeats.resampled.interval()
    verdict = ""
    if greedy is not None and repeats.recipe != greedy.recipe:
        verdict = repeats.resampled.minus(greedy.resampled).verdict
    return Entry(repeats.mean, repeats.spread, interval.low, interval.high, note, verdict=verdict)


def _mean_entry(values: Sequence[float]) -> Entry | None:
    """Return the mean of values over seeds or draws, with its spread. None without values."""
    array = np.array(values)
    return Entry(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None) if len(array) else None


def _main_table(study: Study) -> StudyTable:
    rows = []
    for measure in BOTH_MEASURES:
        name, paper = measure.name, measure.paper_recipe
        tested = [cell.tested(measure) for cell in study.cells]
        greedy_entries = [_entry(by_recipe[GREEDY.name]) for by_recipe in tested]
        rows.append(_row(measure, f"{name} Baseline ({GREEDY.name})", greedy_entries))
        if paper in tested[0]:
            paper_entries = [_entry(by_recipe[paper], by_recipe[GREEDY.name]) for by_recipe in tested]
            rows.append(_row(measure, f"{name} ({paper})", paper_entries))
        chosen_entries = []
        for cell, by_recipe in zip(study.cells, tested, strict=True):
            chosen = cell.chosen(measure)
            note = f"{chosen.name} ({chosen.parameter_text})".removesuffix(" ()")
            chosen_entries.append(_entry(by_recipe[chosen.name], by_recipe[GREEDY.name], note))
        rows.append(_row(measure, f"{name} (chosen on validation)", chosen_entries))
    measures = ", ".join(f"{measure.name} ({measure.improves})" for measure in BOTH_MEASURES)
    return _table(study, "main", f"The chosen recipes against the baseline on {TEST}: {measures}.", rows)


def _difference_table(study: Study, measure: Measure) -> StudyTable:
    """Every recipe minus greedy on test, paired."""

    def difference(cell: Cell, name: str) -> Entry:
        repeats = cell.tested(measure)[name]
        less = repeats.resampled.minus(cell.test[measure][0].resampled)
        return Entry(less.difference, None, less.low, less.high, repeats.recipe.parameter_text, less.p, less.verdict)

    names = [name for name in study.cells[0].tested(measure) if name != GREEDY.name]
    rows = [_row(measure, name, [difference(cell, name) for cell in study.cells]) for name in names]
    caption = (
        f"{measure.name} minus greedy's on {TEST} ({measure.improves}), paired over the same examples, with 95 % "
        "intervals. Hyper-parameters were chosen on validation."
    )
    return _table(study, f"test-{measure.name.lower()}", caption, rows, is_difference=True, is_contest=False)


def _ablation_table(study: Study, measure: Measure) -> StudyTable:
    """All recipes on validation, ordered as in the paper: by how many methods they combine."""
    groups = [by_name(cell.validation[measure]) for cell in study.cells]
    n_methods = {name: 0 if name == GREEDY.name else name.count("+") + 1 for name in groups[0]}
    rows = []
    for name in sorted(n_methods, key=n_methods.__getitem__):
        entries = []
        for group in groups:
            repeats = best(group[name])
            entries.append(_entry(repeats, group[GREEDY.name][0], repeats.recipe.parameter_text))
        rows.append(_row(measure, name, entries, group=n_methods[name]))
    caption = (
        f"{measure.name} ({measure.improves}) of all recipes on {VALIDATION}, each at its best setting there, which "
        "favours recipes with many settings."
    )
    return _table(study, f"ablation-{measure.name.lower()}", caption, rows)


def _sweep_table(study: Study, name: str, measure: Measure, recipe: str, what: str, parameter: str) -> StudyTable:
    """One recipe at every value of a hyper-parameter."""
    groups = [by_name(cell.validation[measure]).get(recipe, []) for cell in study.cells]
    rows = [
        _row(measure, f"{recipe} {same[0].recipe.parameters[parameter]:g}", [_entry(repeats) for repeats in same])
        for same in zip(*groups, strict=True)
    ]
    caption = f"{measure.name} ({measure.improves}) by {what}, on {VALIDATION}."
    return _table(study, name, caption, rows)


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
        return float(
            np.mean([remaining / requested for share, requested, remaining in sizes if requested and share < 1])
        )

    rows = []
    for measure in BOTH_MEASURES:
        for name in study.cells[0].tested(measure):
            repeats = [cell.tested(measure)[name] for cell in study.cells]
            entries = tuple(_mean_entry([mean_kept(curve) for curve in same.curves]) for same in repeats)
            rows.append(TableRow(f"edges of {measure.name}", 1, f"{measure.name} {name}", entries))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return _table(study, "kept", caption, rows, is_contest=False)
