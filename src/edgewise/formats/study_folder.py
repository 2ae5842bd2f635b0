"""The study folder: finished units of work, each written whole as it finishes, and the tables made of them.

study.json        the plan; a folder goes on only with the plan that it was begun with
cells/MODEL--TASK/data-SEED/
  scores/ ...     [example, edge] scores of train (and of other splits, if the plan asks for them)
  SPLIT-selected-SEED.npz    every recipe's circuits: distinct masks as packed bits, and which recipe and size has which
  SPLIT-values-PART.npz      the metric of distinct circuits [circuit, example]
tables.md .csv .tex .json, curves.csv    derived; no timings, so that the same command gives the same bytes
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .write import read_json, whole_file, write_json

FORMAT, VERSION = "edgewise-study", 2
LARGEST_READ = 100_000_000
PLAN, CELLS = "study.json", "cells"
# What `whole_file` and `whole_folder` leave behind when they are killed; nobody else's hidden files.
DRAFT = re.compile(r"\.(study|tables|figure|scores|overlap|train|validation|test)\b.*\..+")


@dataclass(frozen=True, eq=False)
class Selected:
    """Circuits of several recipes.

    made_for     a digest of the recipes
    masks        [circuit, byte] distinct circuits as packed bits
    place        [recipe, size] which of them a recipe has at a size
    asked, kept  [recipe, size] edges
    """

    made_for: str
    masks: NDArray[np.uint8]
    place: NDArray[np.int64]
    asked: NDArray[np.int64]
    kept: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Values:
    """The metric of circuits [circuit, example]; `full` and `empty` are [example], `accuracy` is the model's.

    made_for     a digest of the circuits
    """

    made_for: str
    values: NDArray[np.float64]
    full: NDArray[np.float64]
    empty: NDArray[np.float64]
    accuracy: float


def open_study(folder: Path, plan: Mapping[str, Any], overwrite: bool = False) -> bool:
    """Make the folder ready for a plan, and say whether earlier work goes on.

    A folder of another plan is refused, or emptied with `overwrite`, unless nothing was finished there yet. What was
    being written when a study was killed is removed.
    """
    # JSON has no tuples: compare what will be read back.
    plan = json.loads(json.dumps(plan))
    known = folder / PLAN
    if folder.is_dir() and any(folder.iterdir()):
        if not known.is_file() and not any(folder.glob(f".{PLAN}.*")):
            raise InputError(f"{folder} exists and isn't a study that edgewise began; choose another one")
        if known.is_file():
            read_plan(folder)  # refuses what isn't ours, before anything is removed
        if overwrite:
            shutil.rmtree(folder)
        elif _has_work(folder):
            _refuse_other_plan(folder, plan)
    goes_on = known.is_file() and _has_work(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for draft in sorted(folder.rglob(".*")):
        if DRAFT.fullmatch(draft.name):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)
    write_json(known, {"format": FORMAT, "version": VERSION, "plan": plan})
    return goes_on


def _has_work(folder: Path) -> bool:
    """Whether any unit was finished; what is hidden is a draft."""
    cells = folder / CELLS
    parts = (path.relative_to(cells).parts for path in cells.rglob("*") if path.is_file())
    return any(not any(part.startswith(".") for part in path) for path in parts)


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return (folder / PLAN).is_file()


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan, as plain data, that the study in a folder was begun with."""
    if not is_study(folder):
        raise InputError(f"{folder} isn't a study; give a folder made by `edgewise study`")
    found = read_json(folder / PLAN)
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
        raise InputError(f"{folder / PLAN} isn't of format {FORMAT} version {VERSION}; choose another folder")
    return dict(found["plan"])


def _refuse_other_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    found = read_plan(folder)
    other = [name for name, value in plan.items() if found.get(name) != value]
    if other:
        raise InputError(
            f"{folder} holds a study of another plan ({', '.join(other)} differ); "
            "choose another folder, or begin anew with --overwrite"
        )


def fingerprint(path: Path) -> str:
    """A hash of a file's contents, or of the names, sizes and times of all files below a folder, or of a large file:
    a plan that reads other files is another plan."""
    if path.is_file() and path.stat().st_size <= LARGEST_READ:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    about = [(str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return hashlib.sha256(repr(about).encode()).hexdigest()


def cell_name(model: str, task: str) -> str:
    """The folder's name of a model and a task. Paths and hub names become plain, with a hash, so that none collide."""
    plain = "--".join(re.sub(r"[^A-Za-z0-9.=_-]+", "+", name) for name in (model, task))
    if all(re.fullmatch(r"\w([.=]?[\w-])*", name, re.ASCII) and "--" not in name for name in (model, task)):
        return plain
    return f"{plain.lstrip('.')}-{hashlib.sha256(repr((model, task)).encode()).hexdigest()[:8]}"


def digest(what: bytes) -> str:
    """A short name for what a unit was made for."""
    return hashlib.sha256(what).hexdigest()[:16]


def write_arrays(path: Path, unit: Selected | Values) -> None:
    """Write a finished unit, whole or not at all."""
    with whole_file(path) as draft:
        np.savez_compressed(draft, **vars(unit))


def read_selected(path: Path, made_for: str) -> Selected | None:
    """A unit's circuits, if it was finished, and for these recipes."""
    arrays = _arrays(path, made_for)
    return None if arrays is None else Selected(**arrays)


def read_values(path: Path, made_for: str | None = None) -> Values | None:
    """A unit's values, if it was finished, and for these circuits (None: for any)."""
    arrays = _arrays(path, made_for)
    return None if arrays is None else Values(**(arrays | {"accuracy": float(arrays["accuracy"])}))


def _arrays(path: Path, made_for: str | None) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        with np.load(path) as file:
            arrays = dict(file)
        arrays["made_for"] = str(arrays["made_for"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path} can't be read: {error}; remove it, and its work is done again") from None
    return arrays if made_for in (None, arrays["made_for"]) else None
