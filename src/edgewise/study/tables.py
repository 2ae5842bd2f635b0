"""The tables of a study as values: rows of entries, with spread over seeds, interval, and comparison with a reference.

The columns of the paper's tables are models and tasks, those of a table of scorers measures and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.ranking import tied_ranks
from ..core.statistics import percentile_interval, resampling_weights
from ..evaluate import BOTH_MEASURES, CMD, CONFIDENCE, CPR, Curve, Measure
from ..recipes.recipe import GREEDY
from .folder import Cell, Repeats, Study, best, by_name
from .plan import TEST, VALIDATION

DIGITS = 4
RANK_RESAMPLES = 2000
# Measure or other number -> 1 if higher is better, -1 if lower is. The best entry of these is marked.
BETTER = {measure.name: measure.better for measure in BOTH_MEASURES}


@dataclass(frozen=True)
class Entry:
    """A number, its standard deviation over seeds (None for one seed), and its interval over evaluated examples.

    quantity   the measure, or what else the number is
    row        the name of the recipe, scorer or learner
    task, model
               empty for a number over several of them
    unit       unit of the value; empty for areas and shares
    p          p-value of the paired comparison with the reference, if the value is the difference from it
    verdict    result of that comparison: 'better', 'worse' or 'no significant difference'. Empty if there is none.
    best       whether it is the best of its measure, model and task in its table, as rounded
    """

    quantity: str
    row: str
    task: str
    model: str
    value: float
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    p: float | None = None
    verdict: str = ""
    unit: str = ""
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row of a table. Its entries are one per column, None if there is none. A line separates different groups."""

    label: str
    entries: tuple[Entry | None, ...]
    group: str = ""


@dataclass(frozen=True)
class StudyTable:
    """A table; `heads` are those of the columns of entries, in one or two parts: (task, model) or (measure,)."""

    name: str
    caption: str
    heads: tuple[tuple[str, ...], ...]
    rows: tuple[TableRow, ...]

    def mark_best(self, better: Mapping[str, int] = BETTER) -> StudyTable:
        """Return the table with the best entries marked, of the quantities for which `better` gives a direction.

        None is marked if all are equal.
        """
        groups: dict[tuple[str, ...], list[float]] = {}
        for entry in self.entries:
            groups.setdefault((entry.quantity, entry.task, entry.model), []).append(round(entry.value, DIGITS))

        def mark(entry: Entry | None) -> Entry | None:
            if entry is None or entry.quantity not in better:
                return entry
            rivals = groups[entry.quantity, entry.task, entry.model]
            extreme = max(rivals) if better[entry.quantity] > 0 else min(rivals)
            return replace(entry, best=round(entry.value, DIGITS) == extreme and len(set(rivals)) > 1)

        return replace(self, rows=tuple(replace(row, entries=tuple(map(mark, row.entries))) for row in self.rows))

    @property
    def entries(self) -> list[Entry]:
        """All entries, row by row."""
        return [entry for row in self.rows for entry in row.entries if entry is not None]

    @property
    def lines(self) -> tuple[int, ...]:
        """The places of the rows that have a line above."""
        return tuple(n for n in range(1, len(self.rows)) if self.rows[n].group != self.rows[n - 1].group)


def study_tables(study: Study) -> tuple[StudyTable, ...]:
    """Return all tables of a study.

    Of recipes: test first, as in the paper, then ablations and hyper-parameters on validation. Of scorers: one per
    model and task, then differences, then mean ranks.
    """
    differences = [_difference_table(study, measure) for measure in BOTH_MEASURES]
    if study.plan.scorers:
        ranks = [_rank_table(study)] if len(study.cells) > 1 else []
        tables = [*(_scorer_table(cell) for cell in study.cells), *differences, *ranks]
        return tuple(tables)
    tables = [_main_table(study), *differences, *(_ablation_table(study, measure) for measure in BOTH_MEASURES)]
    shrinkage = "standard errors kappa of shrinkage"
    sweeps = [
        _sweep_table(study, "tau", CPR, "Bootstrapping", "resamples tau of the bootstrap", "tau"),
        _sweep_table(study, "pnr", CMD, "ILP + PNR", "positive-negative ratios", "PNR"),
        *(_sweep_table(study, f"kappa-{m.name.lower()}", m, "ILP + Shrinkage", shrinkage, "kappa")
          for m in BOTH_MEASURES),
    ]  # fmt: skip
    tables += [table for table in sweeps if len(table.rows) > 1]
    definition = study.plan.settings.faithfulness.name
    tables = [replace(table, caption=f"{table.caption} Faithfulness: {definition}.") for table in tables]
    return (*tables, _overlap_table(study), _kept_table(study))


def _table(study: Study, name: str, caption: str, rows: Sequence[TableRow]) -> StudyTable:
    """Return a table in the paper's form, a column per cell."""
    return StudyTable(name, caption, tuple((cell.task, cell.model) for cell in study.cells), tuple(rows))


def _area(cell: Cell, repeats: Repeats, label: str = "", reference: Repeats | None = None, note: str = "") -> Entry:
    """Return the entry of an area, with the verdict of its comparison with the reference unless it is that."""
    interval = repeats.resampled.interval()
    verdict = ""
    if reference is not None and (repeats.name, repeats.recipe) != (reference.name, reference.recipe):
        verdict = repeats.resampled.minus(reference.resampled).verdict
    return Entry(
        repeats.measure.name, label or repeats.name, cell.task, cell.model, repeats.mean, repeats.spread, interval.low,
        interval.high, note, verdict=verdict,
    )  # fmt: skip


def _mean(cell: Cell, quantity: str, row: str, values: Sequence[float], unit: str = "") -> Entry | None:
    """Return the mean of values over seeds or draws, with its spread. None without values."""
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Entry(quantity, row, cell.task, cell.model, float(np.mean(values)), spread, unit=unit)


def _main_table(study: Study) -> StudyTable:
    rows = []
    for measure in BOTH_MEASURES:
        name, paper = measure.name, measure.paper_recipe
        references = [cell.test[measure][0] for cell in study.cells]
        shown = {f"{name} Baseline ({GREEDY.name})": references}
        if paper in study.cells[0].tested(measure):
            shown[f"{name} ({paper})"] = [cell.tested(measure)[paper] for cell in study.cells]
        chosen = f"{name} (chosen on validation)"
        shown[chosen] = [cell.chosen(measure) for cell in study.cells]
        for label, listed in shown.items():
            entries = []
            for cell, repeats, reference in zip(study.cells, listed, references, strict=True):
                note = f"{repeats.name} ({repeats.recipe.parameter_text})".removesuffix(" ()") * (label == chosen)
                entries.append(_area(cell, repeats, label, reference, note))
            rows.append(TableRow(label, tuple(entries), name))
    measures = ", ".join(f"{measure.name} ({measure.improves})" for measure in BOTH_MEASURES)
    caption = f"The chosen recipes against the baseline on {TEST}: {measures}."
    return _table(study, "main", caption, rows).mark_best()


def _difference_table(study: Study, measure: Measure) -> StudyTable:
    """Every row minus the reference on test, paired."""

    def difference(cell: Cell, name: str) -> Entry | None:
        repeats = cell.tested(measure).get(name)
        if repeats is None:  # a scorer that doesn't suit the model
            return None
        less = repeats.resampled.minus(cell.test[measure][0].resampled)
        return Entry(
            measure.name, name, cell.task, cell.model, less.difference, None, less.low, less.high,
            repeats.recipe.parameter_text, less.p, less.verdict,
        )  # fmt: skip

    reference = study.cells[0].test[measure][0].name
    names = dict.fromkeys(repeats.name for cell in study.cells for repeats in cell.test[measure][1:])
    rows = [TableRow(name, tuple(difference(cell, name) for cell in study.cells)) for name in names]
    caption = (
        f"{measure.name} minus {reference.lower()}'s on {TEST} ({measure.improves}), paired over the same examples, "
        "with 95 % intervals." + " Hyper-parameters were chosen on validation." * (not study.plan.scorers)
    )
    return _table(study, f"test-{measure.name.lower()}", caption, rows)


def _ablation_table(study: Study, measure: Measure) -> StudyTable:
    """All recipes on validation, ordered as in the paper: by how many methods they combine."""
    groups = [by_name(cell.validation[measure]) for cell in study.cells]
    n_methods = {name: 0 if name == GREEDY.name else name.count("+") + 1 for name in groups[0]}
    rows = []
    for name in sorted(n_methods, key=n_methods.__getitem__):
        entries = []
        for cell, group in zip(study.cells, groups, strict=True):
            repeats = best(group[name])
            entries.append(_area(cell, repeats, "", group[GREEDY.name][0], repeats.recipe.parameter_text))
        rows.append(TableRow(name, tuple(entries), str(n_methods[name])))
    caption = (
        f"{measure.name} ({measure.improves}) of all recipes on {VALIDATION}, each at its best setting there, which "
        "favours recipes with many settings."
    )
    return _table(study, f"ablation-{measure.name.lower()}", caption, rows).mark_best()


def _sweep_table(study: Study, name: str, measure: Measure, recipe: str, what: str, parameter: str) -> StudyTable:
    """One recipe at every value of a hyper-parameter."""
    groups = [by_name(cell.validation[measure]).get(recipe, []) for cell in study.cells]
    rows = []
    for same in zip(*groups, strict=True):
        label = f"{recipe} {same[0].recipe.parameters[parameter]:g}"
        rows.append(TableRow(label, tuple(_area(cell, r, label) for cell, r in zip(study.cells, same, strict=True))))
    caption = f"{measure.name} ({measure.improves}) by {what}, on {VALIDATION}."
    return _table(study, name, caption, rows).mark_best()


def _overlap_table(study: Study) -> StudyTable:
    rows = []
    for measure in BOTH_MEASURES:
        for who, name in (("greedy", GREEDY.name), ("chosen", "chosen on validation")):
            label, quantity = f"{measure.name} ({name})", f"overlap of {measure.name}"
            entries = tuple(_mean(cell, quantity, label, cell.overlap[measure][who]) for cell in study.cells)
            rows.append(TableRow(label, entries, measure.name))
    caption = "Stability: the mean Jaccard overlap of circuits over resamples of the training examples (1 is stable)."
    better = {f"overlap of {measure.name}": 1 for measure in BOTH_MEASURES}
    return _table(study, "overlap", caption, rows).mark_best(better)


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
            label, quantity = f"{measure.name} {name}", f"edges of {measure.name}"
            entries = tuple(
                _mean(cell, quantity, label, [mean_kept(curve) for curve in cell.tested(measure)[name].curves])
                for cell in study.cells
            )
            rows.append(TableRow(label, entries, measure.name))
    caption = (
        f"Edges kept as a share of those asked for, on {TEST}: the mean over the sizes that ask for some, but not all."
    )
    return _table(study, "kept", caption, rows)


def _scorer_table(cell: Cell) -> StudyTable:
    """The areas of all scorers, their cost, and their agreement with the known circuit."""
    measures, rows = BOTH_MEASURES[::-1], []
    for name, cost in cell.costs.items():
        areas = [_area(cell, cell.tested(measure)[name], "", cell.test[measure][0]) for measure in measures]
        numbers: dict[str, tuple[Sequence[float], str]] = {
            "seconds per example": ([cost.seconds], "s"),
            "memory": ([cost.memory / 1e6], "MB"),
        }
        if cell.n_true is not None:
            numbers |= {"AUROC": (cost.aurocs, ""), "precision": (cost.precisions, "")}
        others = [_mean(cell, about, name, values, unit) for about, (values, unit) in numbers.items()]
        rows.append(TableRow(name, (*areas, *others)))
    heads = tuple((measure.name,) for measure in measures) + tuple((about,) for about in numbers)
    place = f"{cell.task}, {cell.model}" if cell.task != cell.model else cell.model
    caption = f"{place}: {', '.join(f'{measure.name} ({measure.improves})' for measure in measures)}, and cost."
    return StudyTable("scorers", caption, heads, tuple(rows)).mark_best()


def _rank_table(study: Study) -> StudyTable:
    """The mean rank over cells of every scorer that is in all cells, the best for the first measure on top."""
    by_measure = {measure: mean_ranks(study, measure) for measure in BOTH_MEASURES[::-1]}
    rows = [
        TableRow(name, tuple(ranks[name] for ranks in by_measure.values())) for name in next(iter(by_measure.values()))
    ]
    caption = (
        f"Mean rank over the {len(study.cells)} models and tasks, 1 is best, with its {CONFIDENCE:.0%} interval over "
        "resamples of them, of scorers that are in all."
    )
    return StudyTable("ranks", caption, tuple((measure.name,) for measure in by_measure), tuple(rows))


def mean_ranks(study: Study, measure: Measure) -> dict[str, Entry]:
    """Return the mean rank over cells of every scorer that is in all cells, the best first.

    A scorer's rank in a cell is its place by mean area over seeds; equal areas share the mean of their places. The
    interval is that of the mean over cells drawn with replacement.
    """
    cells = [{name: repeats.mean for name, repeats in cell.tested(measure).items()} for cell in study.cells]
    names = [name for name in cells[0] if all(name in areas for areas in cells)]
    ranks = np.stack([tied_ranks(-measure.better * np.array([cell[name] for name in names])) for cell in cells])
    draws = resampling_weights(len(cells), RANK_RESAMPLES, 0) @ ranks  # [resample, scorer]
    low, high = percentile_interval(draws, CONFIDENCE)
    numbers = zip(names, ranks.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    entries = [Entry(f"rank for {measure.name}", name, "", "", mean, None, *ends) for name, mean, *ends in numbers]
    return {entry.row: entry for entry in sorted(entries, key=lambda entry: entry.value)}
