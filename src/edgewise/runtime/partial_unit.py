"""PartialUnit: arrays that are filled row by row, in any order. After a stop, finished rows are read back."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..io.arrays import array_header, is_array, read_array
from ..io.atomic import name_target_in_errors, remove

# Name -> (shape of a row, type).
Columns = Mapping[str, tuple[tuple[int, ...], Any]]
PART, LOG, LOCK = ".part", "done.jsonl", "lock"


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
        else:
            for name, (shape, dtype) in self._shapes.items():
                _allocate(folder / f"{name}.npy", shape, dtype)
            self._read_log(folder)

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
            entry = {"rows": rows, "digest": _digest(values_of.values()), "about": note, "seconds": seconds}
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

    def _read_log(self, folder: Path) -> None:
        """Mark the rows as done whose values are as the log says."""
        arrays = {name: read_array(folder / f"{name}.npy") for name in self._shapes}
        lines = (folder / LOG).read_bytes().splitlines() if (folder / LOG).is_file() else []
        for line in lines:
            try:
                entry = json.loads(line)
                rows = entry["rows"]
                if _digest(arrays[name][rows] for name in self._shapes) == entry["digest"]:
                    self._mark_done(rows, entry["about"], entry["seconds"])
            except (ValueError, KeyError, TypeError, IndexError):  # cut off when its process was killed
                continue


def _allocate(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Create a .npy file and reserve its space on the disk, unless it is already there with this shape and type."""
    if is_array(path, shape, dtype):
        return
    header = array_header(shape, dtype)
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


def _digest(arrays: Iterable[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
