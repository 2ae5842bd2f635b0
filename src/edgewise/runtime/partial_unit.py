"""Arrays that are filled row by row, in any order, and survive a stop: what was put there is found again."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..io.arrays import array_header, is_array, read_array
from ..io.atomic import hold_lock, name_target_in_errors, open_draft, remove

# Name -> shape of a row, and type.
Columns = Mapping[str, tuple[tuple[int, ...], Any]]
PART, LOG, LOCK = ".part", "done.jsonl", "lock"


class PartialUnit:
    """Arrays [row, ...] that are being filled: in memory, or in a folder beside a log of the rows that are done.

    Rows are written by ordinary writes into space that was asked for before, so that a full disk is an error in words
    rather than the end of the process; each entry of the log has a digest of its rows, so that half a row never counts.
    """

    def __init__(self, rows: int, columns: Columns, folder: Path | None = None, log: int = -1) -> None:
        self.folder = folder
        self.notes: dict[int, Any] = {}
        self.seconds = 0.0
        self._shapes = {name: ((rows, *shape), np.dtype(kind)) for name, (shape, kind) in columns.items()}
        self._log, self._since = log, time.perf_counter()
        self._done = np.zeros(rows, bool)
        if folder is None:
            self._arrays = {name: np.empty(shape, kind) for name, (shape, kind) in self._shapes.items()}
        else:
            self._starts = {name: _allocate(folder / f"{name}.npy", *how) for name, how in self._shapes.items()}
            self._read_log(folder / LOG)

    @property
    def n_done(self) -> int:
        """How many rows are done."""
        return int(self._done.sum())

    def is_missing(self, rows: Sequence[int]) -> bool:
        """Whether any of these rows isn't done."""
        return not self._done[list(rows)].all()

    def put(self, rows: Sequence[int], about: Any = None, **arrays: NDArray[Any]) -> None:
        """Fill some rows of every array, each given as [row, ...]; `about` is kept with the first of them."""
        places = list(rows)
        now = time.perf_counter()
        spent, self._since = now - self._since, now
        if self.folder is None:
            for name, values in arrays.items():
                self._arrays[name][places] = values
        else:
            written = {name: np.ascontiguousarray(arrays[name], self._shapes[name][1]) for name in self._shapes}
            for name, values in written.items():
                self._write(name, places, values)
            entry = {"rows": places, "digest": _digest(written.values()), "about": about, "seconds": spent}
            # On a line of its own, whatever the last one was cut short by.
            _write_all(self._log, b"\n" + json.dumps(entry).encode(), self.folder / LOG)
        self._count(places, about, spent)

    def finished(self) -> dict[str, NDArray[Any]]:
        """The arrays, all of whose rows are done."""
        assert self._done.all()
        if self.folder is None:
            return self._arrays
        return {name: read_array(self.folder / f"{name}.npy") for name in self._shapes}

    def _count(self, rows: Sequence[int], about: Any, seconds: float) -> None:
        self._done[list(rows)] = True
        self.seconds += seconds
        if about is not None:
            self.notes[rows[0]] = about

    def _write(self, name: str, rows: Sequence[int], values: NDArray[Any]) -> None:
        assert self.folder is not None
        path, size = self.folder / f"{name}.npy", values[0].nbytes
        handle = os.open(path, os.O_WRONLY)
        try:
            for row, value in zip(rows, values, strict=True):
                os.lseek(handle, self._starts[name] + row * size, os.SEEK_SET)
                _write_all(handle, value.tobytes(), path)
        finally:
            os.close(handle)

    def _read_log(self, log: Path) -> None:
        """Count the rows that were done before, as far as log and arrays are whole."""
        assert self.folder is not None
        arrays = {name: read_array(self.folder / f"{name}.npy") for name in self._shapes}
        for line in log.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                rows = entry["rows"]
                if _digest(arrays[name][rows] for name in self._shapes) == entry["digest"]:
                    self._count(rows, entry["about"], entry["seconds"])
            except (ValueError, KeyError, TypeError, IndexError):  # cut short when its process was killed
                continue


@contextmanager
def open_partial_unit(store: Path, key: str, rows: int, columns: Columns) -> Iterator[PartialUnit]:
    """The filling of a key in a store: the one that was begun there, unless another process is at it."""
    folder = store / f"{key}{PART}"
    with name_target_in_errors(folder):
        folder.mkdir(exist_ok=True)
    with hold_lock(folder / LOCK, wait=False) as is_alone:
        if is_alone:
            with _open_log(folder) as log:
                try:
                    yield PartialUnit(rows, columns, folder, log)
                except BaseException:
                    if not os.fstat(log).st_size:
                        remove(folder)  # nothing was done
                    raise
            return
    with open_draft(store / key) as draft, _open_log(draft) as log:
        yield PartialUnit(rows, columns, draft, log)


@contextmanager
def _open_log(folder: Path) -> Iterator[int]:
    with name_target_in_errors(folder / LOG):
        folder.mkdir(exist_ok=True)
        log = os.open(folder / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        yield log
    finally:
        os.close(log)


def _allocate(path: Path, shape: tuple[int, ...], kind: np.dtype) -> int:
    """Make a .npy of a shape, with space on the disk for all of it, unless it is there; says where its rows begin."""
    header = array_header(shape, kind)
    if not is_array(path, shape, kind):
        try:
            with name_target_in_errors(path), path.open("wb") as file:
                file.write(header)
                file.flush()
                _reserve(file.fileno(), len(header) + math.prod(shape) * kind.itemsize)
        except InputError:
            remove(path)
            raise
    return len(header)


def _reserve(handle: int, size: int) -> None:
    """Have the disk set space aside for a file of some size: a disk that is full says so now."""
    try:
        os.posix_fallocate(handle, 0, size)
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", errno.EINVAL) not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        os.truncate(handle, size)  # a system that can't


def _write_all(handle: int, data: bytes, path: Path) -> None:
    view = memoryview(data)
    with name_target_in_errors(path):
        while view:
            view = view[os.write(handle, view) :]


def _digest(arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
