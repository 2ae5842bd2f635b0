"""The results of a study, and its folder: a plan and finished units of work. The rest is derived from them.

study.json        the plan; a folder is only resumed with the plan that it was started with
store/            finished units, by the digest of what they depend on: scores, selections, values, cells
README.md         explains every file
tables.md .csv .tex .json, curves.csv, figure.png .svg
                  derived; without timings, so that the same command gives the same bytes
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Curve, Measure, Resampled, check_metric, mean_resampled, resample
from ..io import atomic
from ..io.records import convert_record, read_versioned_json
from ..recipes.recipe import Recipe
from ..recipes.run_info import ModelAccuracy
from ..runtime.store import FILE_PATTERN as STORE_FILE_PATTERN, Store, Unit
from ..runtime.unit_keys import VERSIONS, code_digest, custom_digests
from .plan import BASELINES, TEST, VALIDATION, Plan

FORMAT, VERSION = "edgewise-study", 5
PLAN, STORE = "study.json", "store"
# A study that will replace another is run here, inside the folder of unfinished work.
REPLACEMENT = "study"
# A regular expression of the paths in a study's folder.
FILE_PATTERN = (
    r"study\.json|tables\.(md|csv|tex|json)|curves\.csv|figure\.(png|svg)|README\.md"
    rf"|store/({STORE_FILE_PATTERN})"
)
# Stored with the plan: digests of custom methods and of the files that it reads, and versions.
SOURCES = ("methods", "files", "versions")


@dataclass(frozen=True, eq=False)
class Repeats:
    """The curves of one recipe, one per seed, and the seed that each one's examples were drawn with."""

    measure: Measure
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


@dataclass(frozen=True, eq=False)
class Cell:
    """The results of a model on a task.

    examples    split -> number of examples
    accuracy    of the model on the test examples, mean over seeds
    validation  measure -> every recipe, in the plan's order
    test        measure -> for every combination of methods the hyper-parameters that were best on validation. Greedy is
                first.
    overlap     measure -> 'greedy' or 'chosen' -> for every draw of examples, the mean overlap of circuits over
                resamples of train. Empty for rankings that were learned without resamples.
    """

    model: str
    task: str
    examples: Mapping[str, int]
    accuracy: ModelAccuracy
    validation: Mapping[Measure, tuple[Repeats, ...]]
    test: Mapping[Measure, tuple[Repeats, ...]]
    overlap: Mapping[Measure, Mapping[str, tuple[float, ...]]]

    def chosen(self, measure: Measure) -> Recipe:
        """Return the recipe that was best on validation."""
        return best_informed(self.validation[measure]).recipe

    def tested(self, measure: Measure) -> dict[str, Repeats]:
        """Return the results on test by the recipe's name, which doesn't include hyper-parameters."""
        return {repeats.recipe.name: repeats for repeats in self.test[measure]}


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: a cell for every model and task, in the order of the paper's columns, tasks first."""

    plan: Plan
    cells: tuple[Cell, ...]

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
        groups.setdefault(repeats.recipe.name, []).append(repeats)
    return groups


def recipes_to_test(validation: Mapping[Measure, Sequence[Repeats]]) -> list[tuple[Measure, Recipe]]:
    """Return for every combination of methods the hyper-parameters that were best on validation."""
    return [(m, best(group).recipe) for m in BOTH_MEASURES for group in by_name(validation[m]).values()]


def collect_repeats(
    recipes: Sequence[tuple[Measure, Recipe]], curves: Iterable[Sequence[Curve]], data_seeds: tuple[int, ...]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return measure -> repeats, from the curves [recipe][seed]."""
    rows = [Repeats(m, recipe, tuple(row), data_seeds) for (m, recipe), row in zip(recipes, curves, strict=True)]
    return {measure: tuple(row for row in rows if row.measure == measure) for measure in BOTH_MEASURES}


class StudyRecord(TypedDict):
    """The content of study.json: the plan, with `SOURCES`, and the number of threads."""

    threads: int
    plan: dict[str, Any]


class CellRecord(TypedDict):
    """The record of a cell. Its curves are arrays; its recipes are those of the plan."""

    examples: dict[str, int]
    accuracy: ModelAccuracy
    overlap: dict[str, dict[str, tuple[float, ...]]]


@dataclass(frozen=True)
class OpenStudy:
    """The folder of a running study, and the number of threads that it began with.

    resumes      whether earlier work is there
    is_finished  whether all cells are there
    """

    folder: Path
    resumes: bool
    threads: int
    is_finished: bool = False


@contextmanager
def open_study(folder: Path, plan: Plan, overwrite: bool = False) -> Iterator[OpenStudy]:
    """Prepare a folder for a plan and lock it against other processes.

    With `overwrite`, the study is run beside the folder and replaces it when it is finished. Until then the old folder
    stays as it is, and the same call resumes. Raise InputError, without changing anything, if the folder holds finished
    work of another plan, or files that aren't a study's.
    """
    versions = [*VERSIONS, f"code {code_digest()}"]
    sources = {"methods": custom_digests(plan.methods), "files": plan.files(), "versions": versions}
    record: dict[str, Any] = json.loads(json.dumps(plan.record() | sources))  # as it will be read back
    atomic.check_folder_path(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    with Store(partial).lock(folder, f"{REPLACEMENT}/({FILE_PATTERN})") as unfinished:
        exists = folder.is_dir() and any(folder.iterdir())
        if exists and is_study(folder):
            read_study_file(folder)  # raises if this isn't one of edgewise's files
        if exists and (overwrite or not is_study(folder)):
            atomic.check_no_foreign_files(folder, FILE_PATTERN)
        replaces = exists and overwrite
        target = partial / REPLACEMENT if replaces else folder
        if replaces and is_study(target) and read_study_file(target)["plan"] != record:
            atomic.remove(target)  # an unfinished study of another plan
        with _start(target, record) as opened:
            yield opened
        if replaces:
            with atomic.name_target_in_errors(folder):
                atomic.replace_folder(target, folder)
            unfinished.remove()


@contextmanager
def _start(folder: Path, record: Mapping[str, Any]) -> Iterator[OpenStudy]:
    """Write the plan into a folder. A new folder is removed if nothing was finished in it."""
    from ..runtime.engine import thread_count  # imports torch, which reading a study doesn't need

    is_new, store = not folder.exists(), Store(folder / STORE).open()
    with atomic.create_parents(folder):
        try:
            stored = read_study_file(folder) if is_study(folder) and not store.is_empty else None
            different = [name for name, value in record.items() if stored and stored["plan"].get(name) != value]
            if different:
                raise InputError(
                    f"{folder} holds a study of another plan ({', '.join(different)} differ); "
                    "choose another folder, or replace it with overwrite=True"
                )
            threads = stored["threads"] if stored else thread_count()
            atomic.remove_drafts(folder)
            atomic.write_json(folder / PLAN, {"format": FORMAT, "version": VERSION, "threads": threads, "plan": record})
            keys = [cell_key(record, model, task) for model in record["models"] for task in record["tasks"]]
            yield OpenStudy(folder, stored is not None, threads, all(map(store.has, keys)))
        except BaseException:
            if is_new and store.is_empty:
                atomic.remove(folder)
            raise


def is_study(folder: Path) -> bool:
    """Return whether a folder holds a study, finished or not."""
    return os.path.isfile(folder / PLAN)


def read_plan(folder: Path) -> Plan:
    """Return the plan of a study folder."""
    record = read_study_file(folder)["plan"]
    try:
        return Plan.from_record({name: value for name, value in record.items() if name not in SOURCES})
    except InputError as error:
        raise InputError(f"{folder / PLAN} can't be read: {error}") from None


def read_study_file(folder: Path) -> StudyRecord:
    """Return the content of study.json."""
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    content = read_versioned_json(folder / PLAN, FORMAT, VERSION)
    record: StudyRecord = convert_record(StudyRecord, content, str(folder / PLAN))
    return record


def read_study(folder: str | Path) -> Study:
    """Return the finished study of a folder. Needs no model."""
    folder = Path(folder)
    plan, record, store = read_plan(folder), read_study_file(folder)["plan"], Store(folder / STORE)
    cells = []
    for task in plan.tasks:
        for model in plan.models:
            cell = find_cell(store, cell_key(record, model, task), plan, model, task)
            if cell is None:
                raise InputError(f"the study in {folder} isn't finished; run the command that began it again")
            cells.append(cell)
    return Study(plan, tuple(cells))


def cell_key(record: Mapping[str, Any], model: str, task: str) -> str:
    """Return the store's key of a cell. It depends on the stored plan only, so that later versions find it."""
    return f"cell-{hashlib.sha256(json.dumps([record, model, task]).encode()).hexdigest()[:32]}"


def save_cell(store: Store, key: str, cell: Cell) -> None:
    """Save a finished cell: per split values, asked, kept [recipe, seed, size, ...] and full, empty [seed, example]."""
    overlap = {measure.name: dict(by_recipe) for measure, by_recipe in cell.overlap.items()}
    record = {"examples": dict(cell.examples), "accuracy": vars(cell.accuracy), "overlap": overlap}
    arrays = {}
    for split, by_measure in ((VALIDATION, cell.validation), (TEST, cell.test)):
        curves = [repeats.curves for listed in by_measure.values() for repeats in listed]
        for name, field in (("values", "values"), ("asked", "n_requested"), ("kept", "n_kept")):
            arrays[f"{split}-{name}"] = np.array([[getattr(curve, field) for curve in row] for row in curves])
        for name in ("full", "empty"):
            arrays[f"{split}-{name}"] = np.array([getattr(curve, name) for curve in curves[0]])
    store.save(key, Unit(arrays, record))


def find_cell(store: Store, key: str, plan: Plan, model: str, task: str) -> Cell | None:
    """Return a cell if it is finished. Raise InputError if it can't be of this plan."""
    unit = store.find(key)
    if unit is None or store.folder is None:
        return None
    try:
        record: CellRecord = convert_record(CellRecord, unit.about, "its record")
        overlap = {m: {who: record["overlap"][m.name][who] for who in ("greedy", "chosen")} for m in BOTH_MEASURES}
        validation = _read_repeats(unit, VALIDATION, plan.recipes(0), plan, task)
        test = _read_repeats(unit, TEST, recipes_to_test(validation), plan, task)
    except (InputError, KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"{store.folder / key} isn't a cell of this study: {error}; remove it and run the study again"
        ) from None
    return Cell(model, task, record["examples"], record["accuracy"], validation, test, overlap)


def _read_repeats(
    unit: Unit, split: str, recipes: Sequence[tuple[Measure, Recipe]], plan: Plan, task: str
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return the curves of a split, which `save_cell` wrote."""
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
    return collect_repeats(recipes, curves, plan.data_seeds(task))
