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
from collections.abc import Iterator, Mapping
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
from ..runtime.store import FILES as STORE_FILES
from ..runtime.store import Store, Unit
from ..runtime.unit_keys import VERSIONS, custom_digests
from .cells import Cell, Repeats, Study, best, by_name
from .plan import TEST, VALIDATION, Plan

FORMAT, VERSION = "edgewise-study", 4
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


class RepeatsRecord(TypedDict):
    """What a cell's record holds of one recipe. The values of its curves are arrays."""

    benchmark: str
    recipe: dict[str, Any]
    data_seeds: tuple[int, ...]
    asked: tuple[int, ...]
    kept: tuple[tuple[int, ...], ...]


class OverlapRecord(TypedDict):
    """The overlap of circuits for every draw of examples."""

    greedy: tuple[float, ...]
    chosen: tuple[float, ...]


class CellRecord(TypedDict):
    """The record of a cell. `competence` is the model's accuracy."""

    model: str
    task: str
    examples: dict[str, int]
    competence: ModelAccuracy
    overlap: dict[str, OverlapRecord]
    validation: list[RepeatsRecord]
    test: list[RepeatsRecord]


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
            cell = find_cell(store, cell_key(record, model, task), plan)
            if cell is None:
                raise InputError(f"the study in {folder} isn't finished; run the command that began it again")
            cells.append(cell)
    return Study(plan, tuple(cells))


def cell_key(record: Mapping[str, Any], model: str, task: str) -> str:
    """Return the store's key of a cell. It depends on the stored plan only, so that later versions find it."""
    return f"cell-{hashlib.sha256(json.dumps([record, model, task]).encode()).hexdigest()[:32]}"


def save_cell(store: Store, key: str, cell: Cell) -> None:
    """Save a finished cell: values [recipe, seed, size, example], full and empty [seed, example] per split."""
    record: dict[str, Any] = {
        "model": cell.model,
        "task": cell.task,
        "examples": dict(cell.examples),
        "competence": vars(cell.accuracy),
        "overlap": {m.name: {who: list(means) for who, means in both.items()} for m, both in cell.overlap.items()},
    }
    arrays = {}
    for split, by_measure in ((VALIDATION, cell.validation), (TEST, cell.test)):
        listed = [repeats for same in by_measure.values() for repeats in same]
        record[split] = [
            {
                "benchmark": repeats.measure.name,
                "recipe": repeats.recipe.record(),
                "data_seeds": list(repeats.data_seeds),
                "asked": list(repeats.curves[0].asked),
                "kept": [list(curve.kept) for curve in repeats.curves],
            }
            for repeats in listed
        ]
        arrays[f"{split}-values"] = np.array([[curve.values for curve in repeats.curves] for repeats in listed])
        for end in ("full", "empty"):
            arrays[f"{split}-{end}"] = np.array([getattr(curve, end) for curve in listed[0].curves])
    store.save(key, Unit(arrays, record))


def find_cell(store: Store, key: str, plan: Plan) -> Cell | None:
    """Return a cell if it is finished. Raise InputError if it can't be of this plan."""
    unit = store.find(key)
    if unit is None or store.folder is None:
        return None
    try:
        record: CellRecord = convert_record(CellRecord, unit.about, "its record")
        accuracy, examples = record["competence"], record["examples"]
        if record["model"] not in plan.models or record["task"] not in plan.tasks:
            raise InputError("it is of another model or task")
        if set(record["overlap"]) != {measure.name for measure in BOTH_MEASURES}:
            raise InputError("it must have an overlap for each of CMD and CPR")
        if not {VALIDATION, TEST} <= set(examples) or min(examples.values()) < 1:
            raise InputError("it doesn't say how many examples there were")
        shares = [share for both in record["overlap"].values() for share in (*both["greedy"], *both["chosen"])]
        if not all(0 <= share <= 1 for share in (accuracy.top, accuracy.beats, *shares)):
            raise InputError("its accuracies and overlaps must be shares, from 0 to 1")
        validation = _read_repeats(unit, VALIDATION, record["validation"], examples[VALIDATION], plan)
        test = _read_repeats(unit, TEST, record["test"], examples[TEST], plan)
        tried = [(m, repeats.recipe) for m in BOTH_MEASURES for repeats in validation[m]]
        if tried != list(plan.recipes(0)):
            raise InputError("validation has other recipes than the plan")
        for measure in BOTH_MEASURES:
            recipes = [repeats.recipe for repeats in test[measure]]
            if [recipe.name for recipe in recipes] != list(by_name(validation[measure])):
                raise InputError("test has other recipes than the plan")
            if best(validation[measure]).recipe not in recipes:
                raise InputError("the best recipe on validation wasn't tested")
    except InputError as error:
        raise InputError(
            f"{store.folder / key} isn't a cell of this study: {error}; remove it and run the study again"
        ) from None
    overlap: dict[Measure, Mapping[str, tuple[float, ...]]] = {
        measure: {"greedy": both["greedy"], "chosen": both["chosen"]}
        for measure in BOTH_MEASURES
        for both in [record["overlap"][measure.name]]
    }
    return Cell(record["model"], record["task"], examples, accuracy, validation, test, overlap)


def _read_repeats(
    unit: Unit, split: str, records: list[RepeatsRecord], n_examples: int, plan: Plan
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return the curves of a split: measure -> recipes."""
    recipes = {json.dumps([m.name, recipe.record()], sort_keys=True): (m, recipe) for m, recipe in plan.recipes(0)}
    shape = (len(records), plan.seeds, len(plan.settings.sizes), n_examples)
    shapes = {"values": shape, "full": (shape[1], shape[3]), "empty": (shape[1], shape[3])}
    arrays = {name: unit.arrays.get(f"{split}-{name}", np.empty(0)) for name in shapes}
    for name, array in arrays.items():
        if array.shape != shapes[name] or not array.size:
            raise InputError(f"{split} has {name} of shape {array.shape}, but its curves need {shapes[name]}")
        check_metric(f"{split}-{name}", array)
    repeats: dict[Measure, list[Repeats]] = {measure: [] for measure in BOTH_MEASURES}
    for row, record in enumerate(records):
        text = json.dumps([record["benchmark"], record["recipe"]], sort_keys=True)
        if text not in recipes:
            raise InputError(f"{split} has other recipes than the plan")
        measure, recipe = recipes[text]
        seeds, asked, kept = record["data_seeds"], record["asked"], record["kept"]
        if not len(kept) == len(seeds) == plan.seeds or not all(0 <= seed < plan.seeds for seed in seeds):
            raise InputError(f"{split} has other seeds than the plan")
        if any(not 0 <= k <= a for row_kept in kept for k, a in zip(row_kept, asked, strict=False)):
            raise InputError(f"{split} keeps more edges than it was asked for")
        curves = tuple(
            Curve(
                plan.settings.sizes, asked, kept[seed], arrays["values"][row, seed], arrays["full"][seed],
                arrays["empty"][seed], plan.settings.faithfulness,
            )
            for seed in range(plan.seeds)
        )  # fmt: skip
        repeats[measure].append(Repeats(measure, recipe, curves, seeds))
    return {measure: tuple(listed) for measure, listed in repeats.items()}
