"""The study folder: a plan, and finished units of work; everything else is derived from them.

study.json        the plan; a folder goes on only with the plan that it was begun with
store/            finished units, by the digest of what they depend on: scores, selections, values, cells
README.md         what every file is
tables.md .csv .tex .json, curves.csv, figure.png .svg
                  derived; no timings, so that the same command gives the same bytes
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
    check_place,
    name_target_in_errors,
    parents_of,
    put_in_place,
    refuse_foreign,
    remove,
    remove_drafts,
    write_json,
)
from ..io.records import convert_record, read_format
from ..recipes.outcome import Competence
from ..recipes.recipe import Recipe
from ..runtime.store import FILES as STORE_FILES
from ..runtime.store import Store, Unit
from ..runtime.unit_keys import VERSIONS, custom_digests
from .cells import Cell, Repeats, Study, best, by_name
from .plan import TEST, VALIDATION, Plan

FORMAT, VERSION = "edgewise-study", 4
PLAN, STORE = "study.json", "store"
# Where a study that is to replace another is worked on, in the folder of unfinished work.
BESIDE = "study"
# The files of a study's folder, by their paths in it.
FILES = rf"study\.json|tables\.(md|csv|tex|json)|curves\.csv|figure\.(png|svg)|README\.md|store/({STORE_FILES})"
# What a study keeps with its plan: digests of what it reads and of one's own methods, and the versions then.
SEEN = ("methods", "files", "versions")
Choice = tuple[Measure, Recipe]


class StudyRecord(TypedDict):
    """What study.json says; the plan with digests of what it reads and of one's own methods, and the versions then."""

    threads: int
    plan: dict[str, Any]


class RepeatsRecord(TypedDict):
    """What is kept of a recipe's curves besides their values."""

    benchmark: str
    recipe: dict[str, Any]
    data_seeds: tuple[int, ...]
    asked: tuple[int, ...]
    kept: tuple[tuple[int, ...], ...]


class OverlapRecord(TypedDict):
    """The overlap of circuits, of every draw."""

    greedy: tuple[float, ...]
    chosen: tuple[float, ...]


class CellRecord(TypedDict):
    """What is kept of a cell besides its values."""

    model: str
    task: str
    examples: dict[str, int]
    competence: Competence
    overlap: dict[str, OverlapRecord]
    validation: list[RepeatsRecord]
    test: list[RepeatsRecord]


@dataclass(frozen=True)
class OpenStudy:
    """A study's folder while it is worked on, and whether earlier work goes on there.

    threads  how many the study was begun with: other numbers round otherwise
    """

    folder: Path
    resumes: bool
    threads: int


@contextmanager
def open_study(folder: Path, plan: Plan, overwrite: bool = False) -> Iterator[OpenStudy]:
    """Make a folder ready for a plan; no other process may work on it meanwhile.

    A folder of another plan is refused, unless nothing was finished there yet. With `overwrite` the plan begins anew,
    beside the folder, and takes its place when all is done: until then what was there stays whole, and the same call
    goes on after a stop. What is refused leaves no trace.
    """
    wanted = _wanted(plan)
    check_place(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    with Store(partial).lock(folder, f"{BESIDE}/({FILES})") as store:
        is_there = folder.is_dir() and any(folder.iterdir())
        if is_there and is_study(folder):
            read_record(folder)  # refuses what isn't ours, before anything is changed
        if is_there and (overwrite or not is_study(folder)):
            refuse_foreign(folder, FILES)
        if not (is_there and overwrite):
            with _begun(folder, wanted) as opened:
                yield opened
            return
        beside = partial / BESIDE
        if is_study(beside) and read_record(beside) != wanted:
            remove(beside)  # of another plan, which was given up
        with _begun(beside, wanted) as opened:
            yield opened
        with name_target_in_errors(folder):
            put_in_place(beside, folder)
        store.remove()


@contextmanager
def _begun(folder: Path, wanted: Mapping[str, Any]) -> Iterator[OpenStudy]:
    """The folder with its plan; if nothing was finished in a new one, it is removed."""
    from ..runtime.engine import thread_count  # torch isn't loaded to read a study

    is_new, store = not folder.exists(), Store(folder / STORE).open()
    with parents_of(folder):
        try:
            resumes = is_study(folder) and not store.is_empty
            if resumes:
                _refuse_other_plan(folder, wanted)
            threads = _read(folder)["threads"] if resumes else thread_count()
            remove_drafts(folder)
            write_json(folder / PLAN, {"format": FORMAT, "version": VERSION, "threads": threads, "plan": wanted})
            yield OpenStudy(folder, resumes, threads)
        except BaseException:
            if is_new and store.is_empty:
                remove(folder)
            raise


def _wanted(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, with digests of what it reads and of one's own methods, and the versions now."""
    # JSON has no tuples: compare what will be read back.
    seen = {"methods": custom_digests(plan.methods), "files": plan.files(), "versions": VERSIONS}
    return json.loads(json.dumps(plan.record() | seen))


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return os.path.isfile(folder / PLAN)


def read_plan(folder: Path) -> Plan:
    """The plan that the study in a folder was begun with."""
    found = read_record(folder)
    try:
        for name in SEEN:
            convert_record(list[str] if name == "versions" else dict[str, str], found.get(name), f"plan.{name}")
        return Plan.from_record({name: value for name, value in found.items() if name not in SEEN})
    except InputError as error:
        raise InputError(f"{folder / PLAN} can't be read: {error}") from None


def read_record(folder: Path) -> dict[str, Any]:
    """The plan as plain data, as `StudyRecord` has it."""
    return _read(folder)["plan"]


def _read(folder: Path) -> StudyRecord:
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    found: StudyRecord = convert_record(StudyRecord, read_format(folder / PLAN, FORMAT, VERSION), str(folder / PLAN))
    return found


def _refuse_other_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    found = read_record(folder)
    other = [name for name, value in plan.items() if found.get(name) != value]
    if other:
        raise InputError(
            f"{folder} holds a study of another plan ({', '.join(other)} differ); "
            "choose another folder, or begin anew with --overwrite"
        )


def cell_key(record: Mapping[str, Any], model: str, task: str) -> str:
    """The key of what a model and a task came to: of the plan as it was begun, so that any later version finds it."""
    return f"cell-{hashlib.sha256(json.dumps([record, model, task]).encode()).hexdigest()[:32]}"


def keep_cell(store: Store, key: str, cell: Cell) -> None:
    """Keep what a model and a task came to."""
    about = {
        "model": cell.model,
        "task": cell.task,
        "examples": dict(cell.examples),
        "competence": vars(cell.competence),
        "overlap": {b.name: {who: list(found) for who, found in both.items()} for b, both in cell.overlap.items()},
        **{split: _records(found) for split, found in (("validation", cell.validation), ("test", cell.test))},
    }
    store.save(key, Unit(_arrays("validation", cell.validation) | _arrays("test", cell.test), about))


def find_cell(store: Store, key: str, plan: Plan) -> Cell | None:
    """What a model and a task came to, if that was finished; refuses what can't have come of this plan."""
    unit = store.find(key)
    if unit is None or store.folder is None:
        return None
    where = str(store.folder / key)
    try:
        about: CellRecord = convert_record(CellRecord, unit.about, "its record")
        _check(about, plan)
        validation = _repeats(about, VALIDATION, [[choice] for choice in plan.recipes(0)], unit, plan)
        groups = [[(b, one.recipe) for one in same] for b in BOTH_MEASURES for same in by_name(validation[b]).values()]
        test = _repeats(about, TEST, groups, unit, plan)
        if any(best(validation[b]).recipe not in [one.recipe for one in test[b]] for b in BOTH_MEASURES):
            raise InputError("what was best on validation wasn't tested")
        overlap: dict[Measure, Mapping[str, tuple[float, ...]]] = {
            b: {"greedy": both["greedy"], "chosen": both["chosen"]}
            for b in BOTH_MEASURES
            for both in [about["overlap"][b.name]]
        }
    except InputError as error:
        raise InputError(
            f"{where} isn't what this study finished: {error}; remove it and run the study again"
        ) from None
    return Cell(about["model"], about["task"], about["examples"], about["competence"], validation, test, overlap)


def read_study(folder: str | Path) -> Study:
    """A finished study, read back from its folder without a model."""
    folder = Path(folder)
    plan, record, store = read_plan(folder), read_record(folder), Store(folder / STORE)
    cells = []
    for task in plan.tasks:
        for model in plan.models:
            cell = find_cell(store, cell_key(record, model, task), plan)
            if cell is None:
                raise InputError(f"the study in {folder} isn't finished; give the command that began it again")
            cells.append(cell)
    return Study(plan, tuple(cells))


def _arrays(split: str, found: Mapping[Measure, tuple[Repeats, ...]]) -> dict[str, np.ndarray]:
    """Values [recipe, seed, size, example], full and empty [seed, example]."""
    rows = [one.curves for repeats in found.values() for one in repeats]
    ends = {f"{split}-{name}": np.array([getattr(curve, name) for curve in rows[0]]) for name in ("full", "empty")}
    return {f"{split}-values": np.array([[curve.values for curve in curves] for curves in rows])} | ends


def _records(found: Mapping[Measure, tuple[Repeats, ...]]) -> list[dict[str, Any]]:
    return [
        {
            "benchmark": b.name,
            "recipe": one.recipe.record(),
            "data_seeds": list(one.data_seeds),
            "asked": list(one.curves[0].asked),
            "kept": [list(curve.kept) for curve in one.curves],
        }
        for b, repeats in found.items()
        for one in repeats
    ]


def _check(about: CellRecord, plan: Plan) -> None:
    if about["model"] not in plan.models or about["task"] not in plan.tasks:
        raise InputError("it is of another model or task")
    if set(about["overlap"]) != {b.name for b in BOTH_MEASURES}:
        raise InputError(f"it must have an overlap for each of {', '.join(b.name for b in BOTH_MEASURES)}")
    if not {VALIDATION, TEST} <= set(about["examples"]) or min(about["examples"].values()) < 1:
        raise InputError("it doesn't say how many examples there were")
    shares = [share for both in about["overlap"].values() for share in (*both["greedy"], *both["chosen"])]
    if not all(0 <= share <= 1 for share in (about["competence"].top, about["competence"].beats, *shares)):
        raise InputError("it has an accuracy or an overlap that is no share")


def _repeats(
    about: CellRecord, split: str, groups: Sequence[Sequence[Choice]], unit: Unit, plan: Plan
) -> dict[Measure, tuple[Repeats, ...]]:
    """The curves on a split, of one recipe of each of these groups."""
    records = about["validation"] if split == VALIDATION else about["test"]
    recipes = _chosen(records, groups, split)
    shape = (len(records), plan.seeds, len(plan.settings.sizes), about["examples"][split])
    values, full, empty = _curve_arrays(unit, split, shape)
    found: dict[Measure, list[Repeats]] = {b: [] for b in BOTH_MEASURES}
    for record, (measure, recipe), ours in zip(records, recipes, values, strict=True):
        seeds, asked = record["data_seeds"], record["asked"]
        if not len(record["kept"]) == len(seeds) == plan.seeds or not all(0 <= seed < plan.seeds for seed in seeds):
            raise InputError(f"{split} has other seeds than the plan")
        if any(not 0 <= less <= more for kept in record["kept"] for less, more in zip(kept, asked, strict=False)):
            raise InputError(f"{split} keeps more edges than it was asked for")
        curves = tuple(
            Curve(
                plan.settings.sizes, asked, kept, ours[seed], full[seed], empty[seed],
                plan.settings.faithfulness,
            )
            for seed, kept in enumerate(record["kept"])
        )  # fmt: skip
        found[measure].append(Repeats(measure, recipe, curves, seeds))
    return {b: tuple(repeats) for b, repeats in found.items()}


def _chosen(records: Sequence[RepeatsRecord], groups: Sequence[Sequence[Choice]], split: str) -> list[Choice]:
    """The recipe of each group that a record is of."""
    found = []
    for record, group in zip(records, groups, strict=False):
        given = (record["benchmark"], record["recipe"])
        found += [(b, one) for b, one in group if given == (b.name, json.loads(json.dumps(one.record())))][:1]
    if len(found) != len(records) or len(found) != len(groups):
        raise InputError(f"{split} has other recipes than the plan")
    return found


def _curve_arrays(unit: Unit, split: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values [recipe, seed, size, example], which is `shape`, full and empty [seed, example]."""
    names = tuple(f"{split}-{name}" for name in ("values", "full", "empty"))
    found = [unit.arrays.get(name, np.empty(0)) for name in names]
    ends = (shape[1], shape[3])
    if min(shape) < 1 or [array.shape for array in found] != [shape, ends, ends]:
        raise InputError(f"{split} has arrays of other shapes than its curves")
    for name, array in zip(names, found, strict=True):
        check_metric(name, array)
    return found[0], found[1], found[2]
