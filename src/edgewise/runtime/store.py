"""Store: a folder of finished units of work. Each is written atomically and has a digest of its content.

A partial unit is filled row by row, in any order. After a stop, its finished rows are read back.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..io.arrays import array_header, is_array, read_array, write_array
from ..io.atomic import (
    check_no_foreign_files,
    create_parents,
    file_digest,
    hold_lock,
    name_target_in_errors,
    open_draft,
    remove,
    remove_drafts,
    to_plain,
    write_json,
)
from ..io.records import read_versioned_json

# Name -> (shape of a row, type).
Columns = Mapping[str, tuple[tuple[int, ...], Any]]
PART, LOG, LOCK = ".part", "done.jsonl", "lock"
FORMAT, VERSION = "edgewise-unit", 2
ARRAY_NAME = re.compile(r"[\w-]+")
MARK = "store.json"
# A regular expression of the paths that a store may hold.
FILE_PATTERN = (
    rf"store\.json|lock|[a-z]+-[0-9a-f]+({re.escape(PART)}|\.\d+)?/([\w-]+\.npy|unit\.json|lock|{re.escape(LOG)})"
)


@dataclass(frozen=True, eq=False)
class Unit:
    """A finished unit: arrays by name (memory-mapped if they were read), and plain data about them."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    about: Any = None


class PartialUnit:
    """Arrays [row, ...] that are being filled, in memory or in a folder.

    In a folder, a log lists the finished rows with a digest of their values, so that half-written rows don't count.
    Disk space is reserved at the start, so that a full disk gives an error before the work is done.

    notes    first row of a `write_rows` -> its note
    seconds  time spent on the finished rows
    """

    def __init__(self, rows: int, columns: Columns, folder: Path | None = None) -> None:
        self.folder = folder
        self.notes: dict[int, Any] = {}
        self.seconds = 0.0
        self._shapes = {name: ((rows, *shape), np.dtype(dtype)) for name, (shape, dtype) in columns.items()}
        self._last_write = time.perf_counter()
        self._is_done = np.zeros(rows, bool)
        if folder is None:
            self._arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in self._shapes.items()}
            return
        for name, (shape, dtype) in self._shapes.items():
            path, header = folder / f"{name}.npy", array_header(shape, dtype)
            if not is_array(path, shape, dtype):
                size = len(header) + math.prod(shape) * dtype.itemsize
                try:
                    with name_target_in_errors(path), path.open("wb") as file:
                        file.write(header)
                        file.truncate(size)
                        if hasattr(os, "posix_fallocate"):
                            os.posix_fallocate(file.fileno(), 0, size)
                except InputError:
                    remove(path)
                    raise
        files = {name: read_array(folder / f"{name}.npy") for name in self._shapes}
        for line in (folder / LOG).read_bytes().splitlines() if (folder / LOG).is_file() else []:
            try:
                entry = json.loads(line)
                rows_done = entry["rows"]
                if _digest_rows(files[name][rows_done] for name in self._shapes) == entry["digest"]:
                    self._mark_done(rows_done, entry["about"], entry["seconds"])
            except (ValueError, KeyError, TypeError, IndexError):  # cut off when its process was killed
                continue

    @property
    def n_done(self) -> int:
        """The number of finished rows."""
        return int(self._is_done.sum())

    def is_missing(self, rows: Sequence[int]) -> bool:
        """Return whether any of these rows isn't finished."""
        return not self._is_done[list(rows)].all()

    def write_rows(self, rows: Sequence[int], note: Any = None, **arrays: NDArray[Any]) -> None:
        """Fill some rows of every array, each given as [row, ...]. The note is plain data."""
        rows, now = list(rows), time.perf_counter()
        seconds, self._last_write = now - self._last_write, now
        if self.folder is None:
            for name, values in arrays.items():
                self._arrays[name][rows] = values
        else:
            values_of = {name: np.ascontiguousarray(arrays[name], dtype) for name, (_, dtype) in self._shapes.items()}
            for name, values in values_of.items():
                start = len(array_header(*self._shapes[name]))
                path = self.folder / f"{name}.npy"
                with name_target_in_errors(path), path.open("r+b") as file:
                    for row, value in zip(rows, values, strict=True):
                        file.seek(start + row * value.nbytes)
                        file.write(value.tobytes())
            entry = {"rows": rows, "digest": _digest_rows(values_of.values()), "about": note, "seconds": seconds}
            with name_target_in_errors(self.folder / LOG), (self.folder / LOG).open("ab") as log:
                log.write(b"\n" + json.dumps(entry).encode())  # a new line, in case the last one was cut off
        self._mark_done(rows, note, seconds)

    def finished_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays. Every row must be finished."""
        assert self._is_done.all()
        if self.folder is None:
            return self._arrays
        return {name: read_array(self.folder / f"{name}.npy") for name in self._shapes}

    def _mark_done(self, rows: Sequence[int], note: Any, seconds: float) -> None:
        self._is_done[list(rows)] = True
        self.seconds += seconds
        if note is not None:
            self.notes[rows[0]] = note


def _digest_rows(arrays: Iterable[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """Finished units of work, and unfinished ones with their finished rows. Without a folder, nothing is stored.

    Several processes may share it; with `lock`, only one at a time.
    """

    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))

    def open(self, also_allowed: str = "") -> Store:
        """Return the store, after removing what a killed process left in it.

        The folder is created with the first unit, so that work that fails early leaves nothing behind. Raise InputError
        if it holds anything but units and files whose paths match `also_allowed`.
        """
        if self.folder is None or not os.path.lexists(self.folder):
            return self
        if self.folder.is_symlink() or not self.folder.is_dir():
            raise InputError(f"{self.folder} isn't a store that edgewise began; move it away")
        check_no_foreign_files(self.folder, f"{FILE_PATTERN}|{also_allowed}" if also_allowed else FILE_PATTERN)
        remove_drafts(self.folder)
        for unit in self.folder.iterdir():
            if not unit.name.endswith(PART):  # its process was killed just after the unit was finished
                remove(unit / LOG)
                remove(unit / LOCK)
        return self

    @contextmanager
    def lock(self, target: Path, also_allowed: str = "") -> Iterator[Store]:
        """Return the store, locked until the end of the `with`, so that only one process writes `target`.

        If no unit was finished, the folder is removed. `also_allowed` is as in `open`.
        """
        assert self.folder is not None
        self.open(also_allowed)
        with create_parents(self.folder):
            self._create()
            with hold_lock(self.folder / LOCK) as is_alone:
                if not is_alone:
                    raise InputError(
                        f"{target} is being written by another process; wait for it, or choose another place"
                    )
                try:
                    yield self
                finally:
                    for part in self.folder.glob(f"*{PART}"):
                        if not self.has(part.name.removesuffix(PART)):
                            remove(part)
                    if {path.name for path in self.folder.glob("*")} <= {MARK, LOCK}:
                        self.remove()
                    remove(self.folder / LOCK)

    def _create(self) -> None:
        assert self.folder is not None
        if not (self.folder / MARK).is_file():
            self.open()
            write_json(self.folder / MARK, {"format": "edgewise-store", "version": VERSION})

    @property
    def is_empty(self) -> bool:
        """Whether no unit, nor a part of one, is finished."""
        return self.folder is None or not any(self.has(path.name.removesuffix(PART)) for path in self.folder.glob("*"))

    def has(self, key: str) -> bool:
        """Return whether the unit of a key, or a part of it, was finished. It may be damaged."""
        if self.folder is None:
            return False
        log = self.folder / f"{key}{PART}" / LOG
        return (self.folder / key / "unit.json").is_file() or (log.is_file() and log.stat().st_size > 0)

    def find(self, key: str) -> Unit | None:
        """Return the unit of a key, or None if there is none or it is damaged: then its work is done again."""
        if self.folder is None or not (self.folder / key).is_dir():
            return None
        folder = self.folder / key
        try:
            record = read_versioned_json(folder / "unit.json", FORMAT, VERSION)
            unit = _read_unit(folder, record["arrays"], record["about"])
            return unit if record["digest"] == _digest(folder, unit.arrays, record["about"]) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def latest(self, stage: str) -> tuple[int, Unit] | None:
        """Return the largest NUMBER, and its unit, of the keys STAGE.NUMBER. Long work saves its state under these."""
        if self.folder is None:
            return None
        names = [path.name.rpartition(".")[2] for path in self.folder.glob(f"{stage}.*")]
        for number in sorted((int(name) for name in names if name.isdecimal()), reverse=True):
            unit = self.find(f"{stage}.{number}")
            if unit is not None:
                return number, unit
        return None

    def save(self, key: str, unit: Unit) -> Unit:
        """Write a unit atomically, unless the store has it, and return it."""
        if self.folder is not None:
            self._create()
            path = self.folder / key
            with open_draft(path) as draft, name_target_in_errors(path, draft):
                draft.mkdir()
                for name, array in unit.arrays.items():
                    write_array(draft / f"{name}.npy", array)
                self._move_into_place(draft, key, unit.about)
        return unit

    @contextmanager
    def open_partial(self, key: str, rows: int, columns: Columns) -> Iterator[PartialUnit]:
        """Return the partial unit of a key, with the rows that are finished. `finish` makes it a unit.

        It is empty if another process is filling the same one.
        """
        if self.folder is None:
            yield PartialUnit(rows, columns)
            return
        self._create()
        folder = self.folder / f"{key}{PART}"
        with name_target_in_errors(folder):
            folder.mkdir(exist_ok=True)
        with hold_lock(folder / LOCK) as is_alone:
            if is_alone:
                try:
                    yield PartialUnit(rows, columns, folder)
                except BaseException:
                    if not (folder / LOG).is_file():
                        remove(folder)  # nothing is finished
                    raise
                return
        with open_draft(self.folder / key) as draft:
            draft.mkdir()
            yield PartialUnit(rows, columns, draft)

    def finish(self, key: str, partial: PartialUnit, about: Any = None) -> Unit:
        """Make a unit of a partial unit, all of whose rows are finished."""
        arrays = partial.finished_arrays()
        if self.folder is None or partial.folder is None:
            return Unit(arrays, about)
        self._move_into_place(partial.folder, key, about)
        return _read_unit(self.folder / key, arrays, about)

    def _move_into_place(self, draft: Path, key: str, about: Any) -> None:
        """Make a folder of arrays the unit of a key. If another process was faster, keep that unit."""
        assert self.folder is not None
        path = self.folder / key
        write_unit_record(draft, about)
        if self.find(key) is None:
            remove(path)  # a damaged unit
            try:
                os.rename(draft, path)
            except OSError:
                if self.find(key) is None:
                    raise
            remove(path / LOG)
            remove(path / LOCK)
        remove(draft)

    def delete(self, key: str) -> None:
        if self.folder is not None:
            remove(self.folder / key)

    def remove(self) -> None:
        if self.folder is not None and (self.folder / MARK).is_file():
            shutil.rmtree(self.folder)


NO_STORE = Store()


@contextmanager
def open_partial_store(target: Path) -> Iterator[Store]:
    """Return a locked store beside `target` for unfinished work.

    The store is deleted at the end. After an error or a stop it stays, and the same command resumes from it.
    """
    with Store(target.parent / f".{target.name}.partial").lock(target) as store:
        yield store
        store.remove()


def write_unit_record(folder: Path, about: Any) -> None:
    """Write unit.json: the names of the arrays in a folder, the data about them, and the digest of both."""
    names = sorted(path.stem for path in folder.glob("*.npy"))
    about = json.loads(json.dumps(about, default=to_plain))  # as it will be read back
    record = {"about": about, "arrays": names, "digest": _digest(folder, names, about)}
    write_json(folder / "unit.json", {"format": FORMAT, "version": VERSION} | record)


def _digest(folder: Path, names: Iterable[str], about: Any) -> str:
    """Return a digest of a unit, without the times: the same work has the same digest."""
    arrays = [(name, file_digest(folder / f"{name}.npy")) for name in sorted(names)]
    return hashlib.sha256(json.dumps([arrays, _without_seconds(about)], sort_keys=True).encode()).hexdigest()


def _without_seconds(about: Any) -> Any:
    if isinstance(about, dict):
        return {name: _without_seconds(value) for name, value in about.items() if name != "seconds"}
    return [_without_seconds(value) for value in about] if isinstance(about, list) else about


def _read_unit(folder: Path, names: Iterable[str], about: Any) -> Unit:
    if not all(ARRAY_NAME.fullmatch(name) for name in names) or len(set(names)) < len(list(names)):
        raise InputError(f"{folder} is damaged")
    return Unit({name: read_array(folder / f"{name}.npy") for name in names}, about)
