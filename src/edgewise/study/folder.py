"""The study folder: a plan, and finished units of work; everything else is derived from them.

study.json        the plan; a folder goes on only with the plan that it was begun with
store/            finished units, by the digest of what they depend on: scores, selections, values, cells
tables.md .csv .tex .json, curves.csv    derived; no timings, so that the same command gives the same bytes
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import write_json
from ..errors import InputError
from ..evaluate import BENCHMARKS, Benchmark, Curve
from ..reading import read_format
from ..store import VERSIONS, Store, Unit, own_digests
from .measured import Competence
from .outcome import Cell, Repeats
from .plan import Plan
from .recipes import Recipe

FORMAT, VERSION = "edgewise-study", 3
PLAN, STORE = "study.json", "store"
# What `whole_file` leaves behind when it is killed; nobody else's hidden files.
DRAFT = re.compile(r"\.(study|tables|curves|figure)\b.*\..+")


def open_study(folder: Path, plan: Plan, overwrite: bool = False) -> bool:
    """Make the folder ready for a plan, and say whether earlier work goes on.

    A folder of another plan is refused, or emptied with `overwrite`, unless nothing was finished there yet. What was
    being written when a study was killed is removed.
    """
    # JSON has no tuples: compare what will be read back.
    seen = {"methods": own_digests(plan.methods), "files": plan.files(), "versions": VERSIONS}
    wanted = json.loads(json.dumps(plan.record() | seen))
    known, store = folder / PLAN, Store(folder / STORE)
    if folder.is_dir() and any(folder.iterdir()):
        if not known.is_file() and not any(folder.glob(f".{PLAN}.*")):
            raise InputError(f"{folder} exists and isn't a study that edgewise began; choose another one")
        if known.is_file():
            read_record(folder)  # refuses what isn't ours, before anything is removed
        if overwrite:
            shutil.rmtree(folder)
        elif not store.is_empty:
            _refuse_other_plan(folder, wanted)
    goes_on = known.is_file() and not store.is_empty
    folder.mkdir(parents=True, exist_ok=True)
    for draft in folder.glob(".*"):
        if DRAFT.fullmatch(draft.name):
            draft.unlink(missing_ok=True)
    write_json(known, {"format": FORMAT, "version": VERSION, "plan": wanted})
    return goes_on


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
