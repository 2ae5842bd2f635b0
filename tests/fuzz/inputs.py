"""One input of a reader: the files of a folder, what was changed, and what a strict reader must do."""

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
    """A file of many zeros after a few bytes, which takes no room on disk."""

    size: int
    head: bytes = b""


@dataclass(frozen=True)
class Pipe:
    """A named pipe: opening it waits forever."""


@dataclass(frozen=True)
class Folder:
    """An empty folder."""


Entry = bytes | Link | Sparse | Pipe | Folder


@dataclass(frozen=True, repr=False)
class Input:
    """What a reader gets.

    files    relative path -> content
    words    what was changed in a valid input
    verdict  what a strict reader must do; None if both are right
    read     which of the reader's functions is called, if it has several
    draws    whether that also draws figures
    """

    files: Mapping[str, Entry]
    words: str = "unchanged"
    verdict: str | None = None
    read: str = ""
    draws: bool = False

    def __repr__(self) -> str:
        return f"Input({self.words!r}, {self.verdict or 'either'}, {self.read!r})"

    def with_file(self, name: str, entry: Entry | None, words: str, verdict: str | None = None) -> Input:
        """Return the input with another content of one file; None removes it."""
        files = {path: content for path, content in self.files.items() if path != name}
        return replace(
            self, files=files if entry is None else files | {name: entry}, words=f"{words} in {name}", verdict=verdict
        )

    def write(self, folder: Path) -> None:
        """Write the files into a folder; leave out what the file system doesn't take."""
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
