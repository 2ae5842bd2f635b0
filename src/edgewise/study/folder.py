"""The results of a study, and its folder.

study.json        the plan, and the inputs that the study was made from
cells/            a unit per model and task, in the plan's order: the metric of every circuit and example, and costs
README.md         explains every file
tables.md .csv .json, curves.csv, figure.png .svg; of scorers, costs.png .svg
                  derived; except for the seconds of scorers, the same command gives the same bytes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Curve, Measure, Resampled, check_metric, mean_resampled, resample
from ..io.atomic import write_json
from ..io.records import convert_record, read_versioned_json
from ..recipes.recipe import Recipe
from ..recipes.run_info import ModelAccuracy
from ..runtime.store import FILE_PATTERN as STORE_FILE_PATTERN, Store, Unit
from .plan import BASELINES, TEST, VALIDATION, Plan

FORMAT, VERSION = "edgewise-study", 6
PLAN, CELLS = "study.json", "cells"
# A regular expression of the paths in a study's folder.
FILE_PATTERN = (
    r"study\.json|tables\.(md|csv|json)|curves\.csv|(figure|costs)\.(png|svg)|README\.md"
    rf"|{CELLS}/({STORE_FILE_PATTERN})"
)
# A measure, the name of a row, and the recipe that selects its circuits.
RowRecipe = tuple[Measure, str, Recipe]


@dataclass(frozen=True, eq=False)
class Repeats:
    """The curves of one row, one per seed, and the seed that each one's examples were drawn with.

    name  of the recipe, without hyper-parameters, or of the scorer or learner
    """

    measure: Measure
    name: str
    recipe: Recipe
    curves: tuple[Curve, ...]
    data_seeds: tuple[int, ...]

    @cached_property
    def areas(self) -> NDArray[np.float64]:
        """[seed] CPR or CMD."""
        return np.array([curve.area(self.measure) for curve in self.curves])

    @property
    def mean(self) -> float:
        """The mean area over seeds."""
        return float(self.areas.mean())

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds. None for a single one."""
        return float(self.areas.std(ddof=1)) if len(self.curves) > 1 else None

    @cached_property
    def resampled(self) -> Resampled:
        """The mean area over seeds, on resampled examples. Seeds that share examples share resamples."""
        curves = zip(self.curves, self.data_seeds, strict=True)
        return mean_resampled([resample(curve, self.measure, seed=seed) for curve, seed in curves])


@dataclass(frozen=True)
class Cost:
    """The cost of a scorer or learner, and its agreement with the known circuit.

    seconds             wall seconds of scoring or learning per training example, mean over draws of examples. Those of
                        a learner are the sum over its two rankings, without scores that it starts from.
    memory              estimated bytes beyond the model for one example
    aurocs, precisions  [seed] of the ranking for CMD, against the known circuit. Empty if none is known.
    """

    seconds: float
    memory: int
    aurocs: tuple[float, ...] = ()
    precisions: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Cell:
    """The results of a model on a task.

    n_edges     number of edges of the graph
    examples    split -> number of examples
    accuracy    accuracy of the model on the test examples, mean over seeds
    test        measure -> its rows. The first is the reference: greedy, or the first scorer. For every combination of
                methods there are the hyper-parameters that were best on validation.
    validation  measure -> every recipe, in the plan's order. Empty for scorers, of which none is chosen.
    overlap     measure -> 'greedy' or 'chosen' -> for every draw of examples, the mean overlap of circuits over
                resamples of train. Empty for scorers, and for rankings that were learned without resamples.
    costs       name -> cost of every scorer and learner. Empty for recipes.
    n_true      edges of the known circuit. None if scorers are not compared with one.
    """

    model: str
    task: str
    n_edges: int
    examples: Mapping[str, int]
    accuracy: ModelAccuracy
    test: Mapping[Measure, tuple[Repeats, ...]]
    validation: Mapping[Measure, tuple[Repeats, ...]] = field(default_factory=dict)
    overlap: Mapping[Measure, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    n_true: int | None = None

    def chosen(self, measure: Measure) -> Repeats:
        """Return the result on test of the recipe that was best on validation; of scorers, the best of the others."""
        if self.validation:
            return self.tested(measure)[best_informed(self.validation[measure]).name]
        return best(self.test[measure][1:] or self.test[measure])

    def tested(self, measure: Measure) -> dict[str, Repeats]:
        """Return the results on test by name."""
        return {repeats.name: repeats for repeats in self.test[measure]}


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: a cell for every model and task, in the order of `Plan.cells`.

    made_from  what `edgewise study` was called with, by which it recognises its own result. Empty in Python.
    """

    plan: Plan
    cells: tuple[Cell, ...]
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Study({', '.join(f'{cell.task} x {cell.model}' for cell in self.cells)}; {self.plan.seeds} seeds)"


def best(listed: Sequence[Repeats]) -> Repeats:
    """Return the repeats of the best mean area. Ties go to the first, which is the simpler."""
    return max(listed, key=lambda repeats: repeats.measure.better * repeats.mean)


def best_informed(listed: Sequence[Repeats]) -> Repeats:
    """Return the best of the repeats whose circuits are not random."""
    return best([repeats for repeats in listed if not isinstance(repeats.recipe.solver, BASELINES)])


def by_name(listed: Sequence[Repeats]) -> dict[str, list[Repeats]]:
    """Group by the recipe's name, which doesn't include hyper-parameters."""
    groups: dict[str, list[Repeats]] = {}
    for repeats in listed:
        groups.setdefault(repeats.name, []).append(repeats)
    return groups


def recipes_to_test(validation: Mapping[Measure, Sequence[Repeats]]) -> list[tuple[Measure, Recipe]]:
    """Return for every combination of methods the hyper-parameters that were best on validation."""
    return [(m, best(group).recipe) for m in BOTH_MEASURES for group in by_name(validation[m]).values()]


def named(recipes: Iterable[tuple[Measure, Recipe]]) -> list[RowRecipe]:
    """Return the rows of recipes, which are named after them."""
    return [(measure, recipe.name, recipe) for measure, recipe in recipes]


def collect_repeats(
    rows: Sequence[RowRecipe], curves: Iterable[Sequence[Curve]], data_seeds: tuple[int, ...]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return measure -> repeats, from the curves [row][seed]."""
    repeats = [Repeats(*row, tuple(of_row), data_seeds) for row, of_row in zip(rows, curves, strict=True)]
    return {measure: tuple(row for row in repeats if row.measure == measure) for measure in BOTH_MEASURES}


class StudyRecord(TypedDict):
    """The content of study.json."""

    plan: dict[str, Any]
    made_from: dict[str, Any]


class CellRecord(TypedDict):
    """The record of a cell. Its curves are arrays; its recipes are those of the plan."""

    n_edges: int
    examples: dict[str, int]
    accuracy: ModelAccuracy
    overlap: dict[str, dict[str, tuple[float, ...]]]
    costs: dict[str, Cost]
    n_true: int | None


def cell_unit(cell: Cell) -> Unit:
    """Return a cell as a unit of a store.

    Per split it has the arrays values, asked, kept [row, seed, size, ...] and full, empty [seed, example].
    """
    about = {
        "n_edges": cell.n_edges,
        "examples": dict(cell.examples),
        "accuracy": asdict(cell.accuracy),
        "overlap": {measure.name: dict(by_recipe) for measure, by_recipe in cell.overlap.items()},
        "costs": {name: asdict(cost) for name, cost in cell.costs.items()},
        "n_true": cell.n_true,
    }
    arrays = {}
    for split, by_measure in ((VALIDATION, cell.validation), (TEST, cell.test)):
        curves = [repeats.curves for listed in by_measure.values() for repeats in listed]
        for name, of_curve in (("values", "values"), ("asked", "n_requested"), ("kept", "n_kept")) if curves else ():
            arrays[f"{split}-{name}"] = np.array([[getattr(curve, of_curve) for curve in row] for row in curves])
        for name in ("full", "empty") if curves else ():
            arrays[f"{split}-{name}"] = np.array([getattr(curve, name) for curve in curves[0]])
    return Unit(arrays, about)


def read_cell(unit: Unit, plan: Plan, task: str, model: str) -> Cell:
    """Return the cell of a unit. Raise InputError if it can't be of this plan."""
    try:
        record: CellRecord = convert_record(CellRecord, unit.about, "its record")
        overlap: dict[Measure, dict[str, tuple[float, ...]]] = {}
        validation: dict[Measure, tuple[Repeats, ...]] = {}
        if plan.scorers:
            rows = [(measure, name, plan.scorer_recipe) for measure in BOTH_MEASURES for name in record["costs"]]
        else:
            overlap = {m: {who: record["overlap"][m.name][who] for who in ("greedy", "chosen")} for m in BOTH_MEASURES}
            validation = _read_repeats(unit, VALIDATION, named(plan.recipes(0)), plan, task)
            rows = named(recipes_to_test(validation))
        test = _read_repeats(unit, TEST, rows, plan, task)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # an InputError is a ValueError
        raise InputError(f"it isn't a cell of this study: {error}") from None
    sizes = record["n_edges"], record["examples"], record["accuracy"]
    return Cell(model, task, *sizes, test, validation, overlap, record["costs"], record["n_true"])


def _read_repeats(
    unit: Unit, split: str, rows: Sequence[RowRecipe], plan: Plan, task: str
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return the curves of a split, which `cell_unit` wrote."""
    values, full, empty, n_requested, n_kept = (
        unit.arrays[f"{split}-{name}"] for name in ("values", "full", "empty", "asked", "kept")
    )
    for name, array in (("values", values), ("full", full), ("empty", empty)):
        check_metric(f"{split}-{name}", array)
    if n_requested.dtype.kind != "i" or n_kept.dtype.kind != "i":
        raise InputError(f"{split} has numbers of edges that aren't whole")
    sizes, definition = plan.settings.sizes, plan.settings.faithfulness
    curves = [
        [
            Curve(sizes, tuple(requested[s]), tuple(remaining[s]), row_values[s], full[s], empty[s], definition)
            for s in range(plan.seeds)
        ]
        for requested, remaining, row_values in zip(n_requested.tolist(), n_kept.tolist(), values, strict=True)
    ]
    return collect_repeats(rows, curves, plan.data_seeds(task))


def write_study_data(folder: Path, study: Study) -> None:
    """Write the data of a study into an existing folder."""
    content = {"plan": study.plan.record(), "made_from": dict(study.made_from)}
    write_json(folder / PLAN, {"format": FORMAT, "version": VERSION, **content})
    store = Store(folder / CELLS)
    for number, cell in enumerate(study.cells):
        store.save(f"cell-{number:x}", cell_unit(cell))


def is_study(folder: Path) -> bool:
    """Return whether a folder holds a study."""
    return os.path.isfile(folder / PLAN)


def read_study(folder: str | Path) -> Study:
    """Return the study of a folder. Needs no model."""
    folder = Path(folder)
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    path = folder / PLAN
    record: StudyRecord = convert_record(StudyRecord, read_versioned_json(path, FORMAT, VERSION), str(path))
    try:
        plan = Plan.from_record(record["plan"])
    except InputError as error:
        raise InputError(f"{path} can't be read: {error}") from None
    store, cells = Store(folder / CELLS), []
    for number, (task, model) in enumerate(plan.cells):
        key = f"cell-{number:x}"
        unit = store.find(key)
        if unit is None:
            raise InputError(f"{folder / CELLS / key} is missing or damaged; run the study again")
        try:
            cells.append(read_cell(unit, plan, task, model))
        except InputError as error:
            raise InputError(f"{folder / CELLS / key}: {error}") from None
    return Study(plan, tuple(cells), record["made_from"])
