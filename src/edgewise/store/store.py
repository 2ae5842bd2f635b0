"""A folder of finished units, each written whole and with the digests of its arrays."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..disk import draft_name, file_digest, remove_drafts, write_json
from ..errors import InputError
from ..reading import read_format

FORMAT, VERSION = "edgewise-unit", 1
MARK = "store.json"


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

    def open(self) -> Store:
        """The store, what a killed process left in it removed; refuses a folder that isn't a store.

        The folder is made with the first unit, so that work which is refused leaves nothing behind.
        """
        if self.folder is not None and self.folder.is_dir():
            if any(self.folder.iterdir()) and not (self.folder / MARK).is_file():
                raise InputError(f"{self.folder} isn't a store that edgewise began; move it away")
            remove_drafts(self.folder)
        return self

    @property
    def is_empty(self) -> bool:
        """Whether no unit was ever finished."""
        return self.folder is None or not any(self.folder.glob("*/unit.json"))

    def has(self, key: str) -> bool:
        """Whether a unit was finished under a key, whole or damaged since."""
        return self.folder is not None and (self.folder / key / "unit.json").is_file()

    def find(self, key: str) -> Unit | None:
        """The unit that was kept under a key; one that isn't whole any more is removed, and its work done again.

        One that can't be read just now is not found, but stays.
        """
        if self.folder is None or not (self.folder / key).is_dir():
            return None
        folder = self.folder / key
        try:
            (folder / "unit.json").read_bytes()  # fails as it is, rather than in words
            record = read_format(folder / "unit.json", FORMAT, VERSION)
            if any(file_digest(folder / f"{name}.npy") != known for name, known in record["arrays"].items()):
                raise InputError(f"{folder} is damaged")
            return _read(folder, record["arrays"], record["about"])
        except (InputError, FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass
        return None

    def keep(self, key: str, unit: Unit) -> Unit:
        """Keep a unit, whole or not at all; what is kept under the key already is the same."""

        def fill(draft: Path) -> Any:
            for name, array in unit.arrays.items():
                np.save(draft / f"{name}.npy", array)
            return unit.about

        if self.folder is not None and not self.has(key):
            self.make(key, fill)
        return unit

    def make(self, key: str, fill: Callable[[Path], Any]) -> Unit:
        """Keep what `fill` writes, as NAME.npy, into a folder that it is given; it returns what there is to say."""
        assert self.folder is not None
        with self.draft(key) as draft:
            about = fill(draft)
            names = write_about(draft, about)
        return _read(self.folder / key, names, about)

    @contextmanager
    def draft(self, key: str) -> Iterator[Path]:
        """A folder to fill with NAME.npy and `write_about`; it is kept under the key if nothing goes wrong.

        If another process kept the unit meanwhile, that one stays.
        """
        assert self.folder is not None
        self.open()
        if not (self.folder / MARK).is_file():
            write_json(self.folder / MARK, {"format": "edgewise-store", "version": VERSION})
        path = self.folder / key
        draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=draft_name(path)))
        try:
            yield draft
            draft.chmod(0o755)
            if not self.has(key):
                shutil.rmtree(path, ignore_errors=True)  # what is there without a record is of no use
                try:
                    draft.rename(path)
                except OSError:
                    if not self.has(key):  # otherwise another process was faster
                        raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            if [path.name for path in self.folder.iterdir()] == [MARK]:
                self.remove()

    def latest(self, stage: str) -> tuple[int, Unit] | None:
        """Of units kept under STAGE.NUMBER, as long work leaves on its way, that of the largest number."""
        if self.folder is None:
            return None
        numbers = sorted((int(path.name.rpartition(".")[2]) for path in self.folder.glob(f"{stage}.*")), reverse=True)
        found = ((number, self.find(f"{stage}.{number}")) for number in numbers)
        return next(((number, unit) for number, unit in found if unit is not None), None)

    def forget(self, key: str) -> None:
        """Remove a unit that is of no more use."""
        if self.folder is not None:
            shutil.rmtree(self.folder / key, ignore_errors=True)

    def remove(self) -> None:
        """Forget everything."""
        if self.folder is not None and (self.folder / MARK).is_file():
            shutil.rmtree(self.folder)


NOTHING = Store()


def write_about(draft: Path, about: Any) -> tuple[str, ...]:
    """Finish a draft: what there is to say, and the digests of the arrays that lie there, whose names it gives."""
    digests = {path.stem: file_digest(path) for path in sorted(draft.glob("*.npy"))}
    write_json(draft / "unit.json", {"format": FORMAT, "version": VERSION, "about": about, "arrays": digests})
    return tuple(digests)


def _read(folder: Path, names: Iterable[str], about: Any) -> Unit:
    return Unit({name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}, about)
