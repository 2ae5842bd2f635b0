"""The study folder: a plan, and finished units of work; everything else is derived from them.

study.json        the plan; a folder goes on only with the plan that it was begun with
store/            finished units, by the digest of what they depend on: scores, selections, values, cells
tables.md .csv .tex .json, curves.csv    derived; no timings, so that the same command gives the same bytes
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import check_place, parents_of, put_in_place, refuse_foreign, remove, remove_drafts, speaking_of, write_json
from ..errors import InputError
from ..evaluate import BENCHMARKS, Benchmark, Curve
from ..reading import read_format
from ..store import VERSIONS, Store, Unit, own_digests
from .measured import Competence
from .outcome import Cell, Repeats
from .plan import Plan
from .recipes import Recipe

FORMAT, VERSION = "edgewise-study", 4
PLAN, STORE = "study.json", "store"
# The files of a study's folder, by their paths in it.
FILES = r"study\.json|tables\.(md|csv|tex|json)|curves\.csv|figure\.png|store/.+"


@dataclass(frozen=True)
class OpenStudy:
    """A study's folder while it is worked on, and whether earlier work goes on there.

    threads  how many the study was begun with: other numbers round otherwise
    """

    folder: Path
    goes_on: bool
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
    is_there = folder.is_dir() and any(folder.iterdir())
    if is_there and is_study(folder):
        read_record(folder)  # refuses what isn't ours, before anything is changed
    if is_there and (overwrite or not is_study(folder)):
        refuse_foreign(folder, FILES)
    if not (is_there and overwrite):
        with _held(folder, folder, wanted) as opened:
            yield opened
        return
    beside = folder.with_name(f".{folder.name}.partial")
    if is_study(beside) and read_record(beside) != wanted:
        remove(beside)  # of another plan, which was given up
    with Store(folder / STORE).held(folder):
        with _held(beside, folder, wanted) as opened:
            yield opened
        with speaking_of(folder):
            put_in_place(beside, folder)


@contextmanager
def _held(folder: Path, target: Path, wanted: Mapping[str, Any]) -> Iterator[OpenStudy]:
    from ..models import thread_count  # torch isn't loaded to read a study

    is_new, store = not folder.exists(), Store(folder / STORE)
    with parents_of(folder):
        try:
            with store.held(target):
                goes_on = is_study(folder) and not store.is_empty
                if goes_on:
                    _refuse_other_plan(folder, wanted)
                threads = _threads(folder) if goes_on else thread_count()
                remove_drafts(folder)
                about = {"format": FORMAT, "version": VERSION, "threads": threads, "plan": wanted}
                write_json(folder / PLAN, about)
                yield OpenStudy(folder, goes_on, threads)
        except BaseException:
            if is_new and not (folder / STORE).exists():
                remove(folder)
            raise


def _wanted(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, with digests of what it reads and of one's own methods, and the versions now."""
    # JSON has no tuples: compare what will be read back.
    seen = {"methods": own_digests(plan.methods), "files": plan.files(), "versions": VERSIONS}
    return json.loads(json.dumps(plan.record() | seen))


def _threads(folder: Path) -> int:
    return int(read_format(folder / PLAN, FORMAT, VERSION)["threads"])


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return (folder / PLAN).is_file()


def read_plan(folder: Path) -> Plan:
    """The plan that the study in a folder was begun with."""
    try:
        return Plan.from_record(read_record(folder))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} holds a study of another version of edgewise: {error}") from None


def read_record(folder: Path) -> dict[str, Any]:
    """The plan as plain data, with digests of what it reads and of one's own methods, and the versions then."""
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    found = read_format(folder / PLAN, FORMAT, VERSION).get("plan")
    if not isinstance(found, dict):
        raise InputError(f"{folder / PLAN} has no plan; choose another folder")
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
    store.keep(key, Unit(_arrays("validation", cell.validation) | _arrays("test", cell.test), about))


def find_cell(store: Store, key: str, plan: Plan) -> Cell | None:
    """What a model and a task came to, if that was finished."""
    unit = store.find(key)
    if unit is None:
        return None
    about = unit.about
    overlap = {
        BENCHMARKS[b](): {who: tuple(found) for who, found in both.items()} for b, both in about["overlap"].items()
    }
    validation, test = (_repeats(about[split], split, unit, plan) for split in ("validation", "test"))
    names = (about["model"], about["task"], about["examples"])
    return Cell(*names, Competence(**about["competence"]), validation, test, overlap)


def _arrays(split: str, found: Mapping[Benchmark, tuple[Repeats, ...]]) -> dict[str, np.ndarray]:
    """Values [recipe, seed, size, example], full and empty [seed, example]."""
    rows = [one.curves for repeats in found.values() for one in repeats]
    ends = {f"{split}-{name}": np.array([getattr(curve, name) for curve in rows[0]]) for name in ("full", "empty")}
    return {f"{split}-values": np.array([[curve.values for curve in curves] for curves in rows])} | ends


def _records(found: Mapping[Benchmark, tuple[Repeats, ...]]) -> list[dict[str, Any]]:
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


def _repeats(records: list[Any], split: str, unit: Unit, plan: Plan) -> dict[Benchmark, tuple[Repeats, ...]]:
    found: dict[Benchmark, list[Repeats]] = {}
    values, full, empty = (unit.arrays[f"{split}-{name}"] for name in ("values", "full", "empty"))
    for record, ours in zip(records, values, strict=True):
        curves = tuple(
            Curve(
                plan.settings.sizes, tuple(record["asked"]), tuple(kept), ours[seed], full[seed], empty[seed],
                plan.settings.faithfulness,
            )
            for seed, kept in enumerate(record["kept"])
        )  # fmt: skip
        benchmark = BENCHMARKS[record["benchmark"]]()
        recipe, seeds = Recipe.from_record(record["recipe"]), tuple(record["data_seeds"])
        found.setdefault(benchmark, []).append(Repeats(benchmark, recipe, curves, seeds))
    return {b: tuple(repeats) for b, repeats in found.items()}
