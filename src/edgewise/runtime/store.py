"""Store: a folder of units of work. A unit is a folder of arrays; it is finished when it has unit.json, written last.

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
    hold_lock,
    name_target_in_errors,
    remove,
    sync,
    write_json,
)
from ..io.records import read_versioned_json

# Name -> (shape of a row, type).
Columns = Mapping[str, tuple[tuple[int, ...], Any]]
MARK, RECORD, LOG, LOCK = "store.json", "unit.json", "done.jsonl", "lock"
FORMAT, VERSION = "edgewise-unit", 2
ARRAY_NAME = re.compile(r"[\w-]+")
# A regular expression of the paths that a store may hold.
FILE_PATTERN = r"store\.json|lock|[a-z]+-[0-9a-f]+(\.\d+)?/([\w-]+\.npy|unit\.json|lock|done\.jsonl)"


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

    def open(self) -> Store:
        """Return the store. Its folder is created with the first unit, so that work that fails early leaves nothing.

        Raise InputError if the folder holds anything but units.
        """
        if self.folder is not None and os.path.lexists(self.folder):
            if self.folder.is_symlink() or not self.folder.is_dir():
                raise InputError(f"{self.folder} isn't a store that edgewise began; move it away")
            check_no_foreign_files(self.folder, FILE_PATTERN)
        return self

    @contextmanager
    def lock(self, target: Path) -> Iterator[Store]:
        """Return the store, locked until the end of the `with`, so that only one process writes `target`.

        If no unit was finished, the folder is removed.
        """
        assert self.folder is not None
        self.open()
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
        """Whether no unit, nor a row of one, is finished."""
        return self.folder is None or not any(self.has(path.name) for path in self.folder.glob("*"))

    def has(self, key: str) -> bool:
        """Return whether the unit of a key, or a row of it, was finished. It may be damaged."""
        if self.folder is None:
            return False
        record, log = self.folder / key / RECORD, self.folder / key / LOG
        return record.is_file() or (log.is_file() and log.stat().st_size > 0)

    def find(self, key: str) -> Unit | None:
        """Return the unit of a key, or None if it isn't finished or can't be read: then its work is done again."""
        if self.folder is None or not (self.folder / key / RECORD).is_file():
            return None
        folder = self.folder / key
        try:
            record = read_versioned_json(folder / RECORD, FORMAT, VERSION)
            if not all(map(ARRAY_NAME.fullmatch, record["arrays"])):
                return None
            return Unit({name: read_array(folder / f"{name}.npy") for name in record["arrays"]}, record["about"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def latest(self, key: str) -> tuple[int, Unit] | None:
        """Return the largest NUMBER whose unit KEY.NUMBER can be read, and that unit. Long work saves its state so."""
        if self.folder is None:
            return None
        names = [path.name.rpartition(".")[2] for path in self.folder.glob(f"{key}.*")]
        for number in sorted((int(name) for name in names if name.isdecimal()), reverse=True):
            unit = self.find(f"{key}.{number}")
            if unit is not None:
                return number, unit
        return None

    def save(self, key: str, unit: Unit) -> Unit:
        """Write a unit, unless the store has it, and return it."""
        if self.folder is not None and self.find(key) is None:
            self._create()
            for name, array in unit.arrays.items():
                write_array(self.folder / key / f"{name}.npy", array)
            self._write_record(key, unit.arrays, unit.about)
        return unit

    @contextmanager
    def open_partial(self, key: str, rows: int, columns: Columns) -> Iterator[PartialUnit]:
        """Return the partial unit of a key, with the rows that are finished. `finish` makes it a unit.

        It is in memory if there is no folder, or if another process is filling the same one.
        """
        if self.folder is None:
            yield PartialUnit(rows, columns)
            return
        self._create()
        folder = self.folder / key
        with name_target_in_errors(folder):
            folder.mkdir(exist_ok=True)
        with hold_lock(folder / LOCK) as is_alone:
            if is_alone:
                remove(folder / RECORD)  # of a damaged unit
            try:
                yield PartialUnit(rows, columns, folder if is_alone else None)
            except BaseException:
                if is_alone and not self.has(key):
                    remove(folder)
                raise

    def finish(self, key: str, partial: PartialUnit, about: Any = None) -> Unit:
        """Make a unit of a partial unit, all of whose rows are finished."""
        arrays = partial.finished_arrays()
        if self.folder is not None and partial.folder is not None:
            for name in arrays:
                sync(partial.folder / f"{name}.npy")
            self._write_record(key, arrays, about)
            remove(partial.folder / LOG)
            remove(partial.folder / LOCK)
        return Unit(arrays, about)

    def _write_record(self, key: str, names: Iterable[str], about: Any) -> None:
        assert self.folder is not None
        record = {"format": FORMAT, "version": VERSION, "arrays": list(names), "about": about}
        write_json(self.folder / key / RECORD, record)

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
