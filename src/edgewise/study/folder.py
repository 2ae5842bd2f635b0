"""The study folder: a plan and finished units of work. Everything else is derived from them.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Curve, Measure, check_metric
from ..io.atomic import (
    check_folder_path,
    check_no_foreign_files,
    create_parents,
    name_target_in_errors,
    remove,
    remove_drafts,
    replace_folder,
    write_json,
)
from ..io.records import convert_record, read_format
from ..recipes.outcome import ModelAccuracy
from ..recipes.recipe import Recipe
from ..runtime.store import FILES as STORE_FILES, Store, Unit
from ..runtime.unit_keys import VERSIONS, custom_digests
from .cells import Cell, Repeats, Study, recipes_to_test
from .plan import TEST, VALIDATION, Plan

FORMAT, VERSION = "edgewise-study", 5
PLAN, STORE = "study.json", "store"
# A study that will replace another is run here, inside the folder of unfinished work.
REPLACEMENT = "study"
# The files of a study's folder, by their paths in it.
FILES = rf"study\.json|tables\.(md|csv|tex|json)|curves\.csv|figure\.(png|svg)|README\.md|store/({STORE_FILES})"
# Stored with the plan: digests of custom methods and of the files that it reads, and versions.
SOURCES = ("methods", "files", "versions")


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
    """The folder of a running study, whether it resumes earlier work, and the number of threads that it started with.

    A resumed study uses the same number of threads, because another number changes rounding.
    """

    folder: Path
    resumes: bool
    threads: int


@contextmanager
def open_study(folder: Path, plan: Plan, overwrite: bool = False) -> Iterator[OpenStudy]:
    """Prepare a folder for a plan and lock it against other processes.

    With `overwrite`, the study is run beside the folder and replaces it when it is finished. Until then the old folder
    stays as it is, and the same call resumes.

    Raises
    ------
    InputError
        If the folder holds finished work of another plan, or files that aren't a study's. Nothing is changed then.
    """
    record = _plan_record(plan)
    check_folder_path(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    with Store(partial).lock(folder, f"{REPLACEMENT}/({FILES})") as store:
        exists = folder.is_dir() and any(folder.iterdir())
        if exists and is_study(folder):
            read_record(folder)
        if exists and (overwrite or not is_study(folder)):
            check_no_foreign_files(folder, FILES)
        if not (exists and overwrite):
            with _start(folder, record) as opened:
                yield opened
            return
        replacement = partial / REPLACEMENT
        if is_study(replacement) and read_record(replacement) != record:
            remove(replacement)  # an unfinished study of another plan
        with _start(replacement, record) as opened:
            yield opened
        with name_target_in_errors(folder):
            replace_folder(replacement, folder)
        store.remove()


@contextmanager
def _start(folder: Path, record: Mapping[str, Any]) -> Iterator[OpenStudy]:
    """Write the plan into a folder. A new folder is removed if nothing was finished in it."""
    from ..runtime.engine import thread_count  # imports torch, which reading a study doesn't need

    is_new, store = not folder.exists(), Store(folder / STORE).open()
    with create_parents(folder):
        try:
            resumes = is_study(folder) and not store.is_empty
            if resumes:
                stored = read_record(folder)
                if different := [name for name, value in record.items() if stored.get(name) != value]:
                    raise InputError(
                        f"{folder} holds a study of another plan ({', '.join(different)} differ); "
                        "choose another folder, or replace it with --overwrite"
                    )
            threads = _read_study_file(folder)["threads"] if resumes else thread_count()
            remove_drafts(folder)
            write_json(folder / PLAN, {"format": FORMAT, "version": VERSION, "threads": threads, "plan": record})
            yield OpenStudy(folder, resumes, threads)
        except BaseException:
            if is_new and store.is_empty:
                remove(folder)
            raise


def _plan_record(plan: Plan) -> dict[str, Any]:
    """Return the plan as it will be read back from JSON, with `SOURCES`."""
    sources = {"methods": custom_digests(plan.methods), "files": plan.files(), "versions": VERSIONS}
    record: dict[str, Any] = json.loads(json.dumps(plan.record() | sources))
    return record


def is_study(folder: Path) -> bool:
    """Return whether a folder holds a study, finished or not."""
    return os.path.isfile(folder / PLAN)


def read_record(folder: Path) -> dict[str, Any]:
    """Return the plan of a study folder as plain data, with `SOURCES`."""
    return _read_study_file(folder)["plan"]


def read_plan(folder: Path) -> Plan:
    """Return the plan of a study folder."""
    record = read_record(folder)
    try:
        for name in SOURCES:
            convert_record(list[str] if name == "versions" else dict[str, str], record.get(name), f"plan.{name}")
        return Plan.from_record({name: value for name, value in record.items() if name not in SOURCES})
    except InputError as error:
        raise InputError(f"{folder / PLAN} can't be read: {error}") from None


def _read_study_file(folder: Path) -> StudyRecord:
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    record: StudyRecord = convert_record(StudyRecord, read_format(folder / PLAN, FORMAT, VERSION), str(folder / PLAN))
    return record


def read_study(folder: str | Path) -> Study:
    """Return the finished study of a folder. Needs no model."""
    folder = Path(folder)
    plan, record, store = read_plan(folder), read_record(folder), Store(folder / STORE)
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
        for name in ("values", "asked", "kept"):
            arrays[f"{split}-{name}"] = np.array([[getattr(curve, name) for curve in row] for row in curves])
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
    """Return the curves of a split: measure -> recipes."""
    arrays = {name: unit.arrays[f"{split}-{name}"] for name in ("values", "full", "empty", "asked", "kept")}
    for name in ("values", "full", "empty"):
        check_metric(f"{split}-{name}", arrays[name])
    if arrays["asked"].dtype.kind != "i" or arrays["kept"].dtype.kind != "i":
        raise InputError(f"{split} has numbers of edges that aren't whole")
    data_seeds = {seed: data_seed for data_seed, seeds in plan.data_seeds(task).items() for seed in seeds}
    seeds, settings = range(plan.seeds), plan.settings
    repeats: dict[Measure, list[Repeats]] = {measure: [] for measure in BOTH_MEASURES}
    rows = zip(recipes, arrays["asked"].tolist(), arrays["kept"].tolist(), arrays["values"], strict=True)
    for (measure, recipe), asked, kept, values in rows:
        curves = tuple(
            Curve(
                settings.sizes, tuple(asked[seed]), tuple(kept[seed]), values[seed], arrays["full"][seed],
                arrays["empty"][seed], settings.faithfulness,
            )
            for seed in seeds
        )  # fmt: skip
        repeats[measure].append(Repeats(measure, recipe, curves, tuple(data_seeds[seed] for seed in seeds)))
    return {measure: tuple(listed) for measure, listed in repeats.items()}
