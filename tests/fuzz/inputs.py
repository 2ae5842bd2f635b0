"""One input of a reader: a folder of files, what was done to it, and what a strict reader must say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

REFUSE, ACCEPT = "refuse", "accept"


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Sparse:
    """A file of many zeros that takes no room on disk, behind a few bytes of its own."""

    size: int
    head: bytes = b""


@dataclass(frozen=True)
class Pipe:
    """A named pipe: whoever opens it waits for ever."""


@dataclass(frozen=True)
class Folder:
    """An empty folder."""


Entry = bytes | Link | Sparse | Pipe | Folder


@dataclass(frozen=True, repr=False)
class Input:
    """What a reader is given.

    files    relative name -> what lies there
    words    what was done to a valid input
    verdict  what a strict reader must do; None where both ways are right
    read     by which of a reader's ways in, if it has several
    draws    whether that also draws figures
    """

    files: Mapping[str, Entry]
    words: str
    verdict: str | None = None
    read: str = ""
    draws: bool = False

    def __repr__(self) -> str:
        return f"Input({self.words!r}, {self.verdict or 'either'}, {self.read!r})"

    def with_file(self, name: str, entry: Entry | None) -> Input:
        """The same with another file, or without it."""
        files = {known: held for known, held in self.files.items() if known != name}
        return replace(self, files=files if entry is None else files | {name: entry})

    def write(self, folder: Path) -> None:
        """Write it into a folder, new or empty; what the file system itself refuses is left out."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, entry in self.files.items():
            try:
                _write(folder / name, entry)
            except (OSError, ValueError):
                continue


def _write(path: Path, entry: Entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(entry, bytes):
        path.write_bytes(entry)
    elif isinstance(entry, Link):
        path.symlink_to(entry.target)
    elif isinstance(entry, Sparse):
        path.write_bytes(entry.head)
        os.truncate(path, entry.size)
    elif isinstance(entry, Pipe):
        os.mkfifo(path)
    else:
        path.mkdir()
