"""A folder of finished units, each written whole and with a digest of all that it holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import InputError
from ..io.arrays import read_array, write_array
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
from ..io.records import read_format
from .partial_unit import LOCK, LOG, PART, Columns, PartialUnit, open_partial_unit

FORMAT, VERSION = "edgewise-unit", 2
NAME = re.compile(r"[\w-]+")
MARK = "store.json"
# The files of a store, by their paths in it.
FILES = rf"store\.json|lock|[a-z]+-[0-9a-f]+({re.escape(PART)}|\.\d+)?/([\w-]+\.npy|unit\.json|{LOCK}|{re.escape(LOG)})"


@dataclass(frozen=True, eq=False)
class Unit:
    """A finished unit: arrays by name (memory-mapped if they were read), and what there is to say about them."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    about: Any = None


@dataclass(frozen=True)
class Store:
    """Where finished units are kept; without a folder, nowhere. Several processes may share it."""

    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))

    def open(self, also: str = "") -> Store:
        """The store, what a killed process left in it removed; refuses a folder that isn't a store.

        It may hold units and files whose paths match `also`, and nothing else. The folder is made with the first unit,
        so that work which is refused leaves nothing behind.
        """
        if self.folder is None or not os.path.lexists(self.folder):
            return self
        if self.folder.is_symlink() or not self.folder.is_dir():
            raise InputError(f"{self.folder} isn't a store that edgewise began; move it away")
        check_no_foreign_files(self.folder, f"{FILES}|{also}" if also else FILES)
        remove_drafts(self.folder)
        for unit in self.folder.iterdir():
            if not unit.name.endswith(PART):
                for name in (LOG, LOCK):  # its process was killed just after it finished the unit
                    remove(unit / name)
        return self

    @contextmanager
    def lock(self, target: Path, also: str = "") -> Iterator[Store]:
        """The store, which no other process may hold meanwhile: two of them would write the same `target`.

        If nothing was finished, no trace of it is left. `also` is as in `open`.
        """
        assert self.folder is not None
        self.open(also)
        with create_parents(self.folder):
            self._begin()
            with hold_lock(self.folder / LOCK, wait=False) as is_alone:
                if not is_alone:
                    raise InputError(
                        f"{target} is being written by another process; wait for it, or choose another place"
                    )
                try:
                    yield self
                finally:
                    self._tidy()

    def _tidy(self) -> None:
        """Give the lock back; where nothing was finished, leave nothing."""
        assert self.folder is not None
        for part in self.folder.glob(f"*{PART}"):
            if not self.has(part.name.removesuffix(PART)):
                remove(part)
        if {path.name for path in self.folder.glob("*")} <= {MARK, LOCK}:
            self.remove()
        remove(self.folder / LOCK)

    def _begin(self) -> None:
        """Make the folder, if it isn't there."""
        assert self.folder is not None
        if not (self.folder / MARK).is_file():
            self.open()
            write_json(self.folder / MARK, {"format": "edgewise-store", "version": VERSION})

    @property
    def is_empty(self) -> bool:
        """Whether no unit was ever finished, nor a part of one."""
        return self.folder is None or not any(self.has(one.name.removesuffix(PART)) for one in self.folder.glob("*"))

    def has(self, key: str) -> bool:
        """Whether a unit, or a part of it, was finished under a key, whole or damaged since."""
        if self.folder is None:
            return False
        log = self.folder / f"{key}{PART}" / LOG
        return (self.folder / key / "unit.json").is_file() or (log.is_file() and log.stat().st_size > 0)

    def find(self, key: str) -> Unit | None:
        """The unit that was kept under a key; one that isn't whole any more is not found, and its work done again."""
        if self.folder is None or not (self.folder / key).is_dir():
            return None
        folder = self.folder / key
        try:
            record = read_format(folder / "unit.json", FORMAT, VERSION)
            found = _read(folder, record["arrays"], record["about"])
            return found if record["digest"] == _digest(folder, found.arrays, record["about"]) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self, key: str, unit: Unit) -> Unit:
        """Keep a unit, whole or not at all; what is kept under the key already is the same."""
        if self.folder is not None:
            self._begin()
            path = self.folder / key
            with open_draft(path) as draft, name_target_in_errors(path, draft):
                draft.mkdir()
                for name, array in unit.arrays.items():
                    write_array(draft / f"{name}.npy", array)
                self._put(draft, key, unit.about)
        return unit

    @contextmanager
    def open_partial(self, key: str, rows: int, columns: Columns) -> Iterator[PartialUnit]:
        """Arrays [row, ...] to fill in parts, which are found again after a stop; `finish` makes a unit of them."""
        if self.folder is None:
            yield PartialUnit(rows, columns)
            return
        self._begin()
        with open_partial_unit(self.folder, key, rows, columns) as filling:
            yield filling

    def finish(self, key: str, filling: PartialUnit, about: Any = None) -> Unit:
        """The unit that a filling has become, all of its rows done."""
        arrays = filling.finished()
        if self.folder is None or filling.folder is None:
            return Unit(arrays, about)
        self._put(filling.folder, key, about)
        return _read(self.folder / key, arrays, about)

    def _put(self, draft: Path, key: str, about: Any) -> None:
        """Let a filled folder become the unit of a key; if another process kept that meanwhile, that one stays."""
        assert self.folder is not None
        path = self.folder / key
        write_about(draft, about)
        if self.find(key) is None:
            remove(path)  # what is there isn't whole
            try:
                os.rename(draft, path)
            except OSError:
                if self.find(key) is None:  # otherwise another process was faster
                    raise
            for name in (LOG, LOCK):  # only now that the unit is complete
                remove(path / name)
        remove(draft)

    def latest(self, stage: str) -> tuple[int, Unit] | None:
        """Of units kept under STAGE.NUMBER, as long work leaves on its way, that of the largest number."""
        if self.folder is None:
            return None
        names = [path.name.rpartition(".")[2] for path in self.folder.glob(f"{stage}.*")]
        numbers = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
        found = ((number, self.find(f"{stage}.{number}")) for number in numbers)
        return next(((number, unit) for number, unit in found if unit is not None), None)

    def delete(self, key: str) -> None:
        """Remove a unit that is of no more use."""
        if self.folder is not None:
            remove(self.folder / key)

    def remove(self) -> None:
        """Forget everything."""
        if self.folder is not None and (self.folder / MARK).is_file():
            shutil.rmtree(self.folder)


NO_STORE = Store()


@contextmanager
def open_partial_store(target: Path) -> Iterator[Store]:
    """The store that unfinished work is kept in, beside the target, which no other process may work on meanwhile.

    It is gone once the work is done. After a failure or a stop it stays, for the same command to go on from.
    """
    with Store(target.parent / f".{target.name}.partial").lock(target) as store:
        yield store
        store.remove()


def write_about(draft: Path, about: Any) -> None:
    """Finish a draft: what there is to say, the arrays that lie there, and the digest of both."""
    names = sorted(path.stem for path in draft.glob("*.npy"))
    said = json.loads(json.dumps(about, default=to_plain))  # as it will be read back
    record = {"about": said, "arrays": names, "digest": _digest(draft, names, said)}
    write_json(draft / "unit.json", {"format": FORMAT, "version": VERSION} | record)


def _digest(folder: Path, names: Iterable[str], about: Any) -> str:
    """Of all that a unit holds but times: the same work has the same digest."""
    arrays = [(name, file_digest(folder / f"{name}.npy")) for name in sorted(names)]
    return hashlib.sha256(json.dumps([arrays, _timeless(about)], sort_keys=True).encode()).hexdigest()


def _timeless(about: Any) -> Any:
    if isinstance(about, dict):
        return {name: _timeless(value) for name, value in about.items() if name != "seconds"}
    return [_timeless(value) for value in about] if isinstance(about, list) else about


def _read(folder: Path, names: Iterable[str], about: Any) -> Unit:
    if not all(NAME.fullmatch(name) for name in names) or len(set(names)) < len(list(names)):
        raise InputError(f"{folder} is damaged")
    return Unit({name: read_array(folder / f"{name}.npy") for name in names}, about)
