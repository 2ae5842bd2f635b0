"""Files of our own, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which takes the place of `path` if nothing goes wrong, else disappears."""
    make_parent(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write to")
    with _speaking_of(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=draft_name(path), suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        with open(name, "rb") as file:
            os.fsync(file.fileno())  # else a power cut could leave the name without the contents
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to fill, which takes the place of `path` if nothing goes wrong, else disappears."""
    refuse_existing(path, overwrite)
    make_parent(path)
    with _speaking_of(path):
        draft = Path(tempfile.mkdtemp(dir=path.parent, prefix=draft_name(path)))
    try:
        yield draft
        os.chmod(draft, 0o755)
        if path.exists():
            old = draft.with_name(draft.name + ".old")
            path.rename(old)
            draft.rename(path)
            shutil.rmtree(old)
        else:
            draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def draft_name(path: Path) -> str:
    """How the name of a draft of a file or folder begins: it says which process writes it."""
    return f".{path.name}.{os.getpid()}."


def remove_drafts(folder: Path) -> None:
    """Remove what was being written in a folder when its process was killed; drafts of living processes stay."""
    for draft in folder.glob(".*"):
        writer = re.search(r"\.(\d+)\.[a-z0-9_]{8}(\.|$)", draft.name)
        try:
            stale = time.time() - draft.stat().st_mtime > 3600
        except OSError:  # finished meanwhile
            continue
        if stale or (writer and not _is_alive(int(writer[1]))):
            shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere there is no asking without ending it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Refuse to write over a folder that isn't empty, unless asked to; and never over one that isn't ours."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise InputError(f"{path} is a file; name a folder to write to")
    if not any(_is_ours(path / marker) for marker in MARKERS):
        raise InputError(f"{path} exists and isn't a folder that edgewise wrote; choose another one")
    if not overwrite:
        raise InputError(f"{path} exists already; choose another folder, or write over it with --overwrite")


MARKERS = ("scores.json", "ranking.json", "run.json")


def _is_ours(marker: Path) -> bool:
    """Whether a file says that edgewise wrote the folder it lies in."""
    try:
        about = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and str(about.get("format", "")).startswith("edgewise-")


@contextmanager
def _speaking_of(path: Path) -> Iterator[None]:
    """Errors name what the user asked for, not a draft of it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from None


def make_parent(path: Path) -> None:
    """Make the folder that `path` will be in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {path.parent} can't be made: {error.strerror}") from None


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's contents, read piece by piece."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 24):
            found.update(piece)
    return found.hexdigest()


def tree_digest(path: Path) -> str:
    """The SHA-256 of a file's contents, or of the names and contents of all files below a folder."""
    if path.is_file():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256(repr([(str(f.relative_to(path)), file_digest(f)) for f in files]).encode()).hexdigest()


def write_json(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all; numbers and arrays of NumPy are plain ones there."""
    with whole_file(path) as draft:
        text = json.dumps(data, indent=2, allow_nan=False, default=_plain)
        draft.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
