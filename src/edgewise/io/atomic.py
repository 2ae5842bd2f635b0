"""Write files and folders atomically: in a draft beside the target that takes its place in one step.

A draft is a hidden folder that holds a lock and the new content. The lock is held while its process lives. A draft
whose lock is free was left by a killed process; the next write of the same target removes it. Links are replaced, not
followed. Errors name the target, not the draft.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import InputError
from .records import read_json

DRAFT_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.draft")
# Files that file managers and file systems leave in any folder.
SYSTEM_FILES = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|\.nfs\w+")
# README_MARK is the first line of a README.md that edgewise wrote. A README.md without it is the user's own, and never
# replaced.
README, README_MARK = "README.md", "<!-- made by edgewise -->"
CHUNK_BYTES = 2**24
DRAFT_ATTEMPTS = 5
# A folder of edgewise holds one of these, which says its format. A folder without one is somebody else's.
MARKERS = ("scores.json", "ranking.json", "run.json", "study.json", "store.json")
# Files of a folder of scores or of a ranking; either may replace the other.
SCORE_FILES = r"(scores|ranking)\.(npy|json)|kept\.npy"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write a file to, which replaces `path` at the end; after an error it is removed."""
    check_file(path)
    with create_parents(path), open_draft(path) as draft, name_target_in_errors(path, draft):
        yield draft
        sync(draft)  # a power cut must not leave a name without content
        os.replace(draft, path)
        sync(path.parent)


@contextmanager
def atomic_folder(path: Path, overwrite: bool = False, own_files: str = "") -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `path` at the end; after an error it is removed.

    The parameters are those of `check_folder`.
    """
    check_folder(path, overwrite, own_files)
    with create_parents(path), open_draft(path) as draft, name_target_in_errors(path, draft):
        draft.mkdir()
        yield draft
        for folder, _, _ in os.walk(draft):
            sync(Path(folder))
        replace_folder(draft, path, overwrite)
        sync(path.parent)


def check_file(path: Path, overwrite: bool = True, inputs: Iterable[str | Path] = ()) -> None:
    """Raise InputError if a file can't be written, or must not be replaced. Call it before long work.

    overwrite  whether an existing file may be replaced
    inputs     files and folders that the command reads. They, and files in them, are never replaced
    """
    for source in map(Path, inputs):
        if path.exists() and source.exists() and path.resolve().is_relative_to(source.resolve()):
            raise InputError(f"{path} is an input of this command; choose another file to write to")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write to")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a device or a pipe, not a file; name a file to write to")
    if os.path.lexists(path) and not overwrite:
        raise InputError(f"{path} exists already; choose another file, or write over it with overwrite=True")
    _check_parent(path)


def check_folder(path: Path, overwrite: bool = False, own_files: str = "") -> None:
    """Raise InputError if a folder can't be written, or must not be replaced. Call it before long work.

    overwrite  whether a folder that isn't empty may be replaced
    own_files  a regular expression of the paths that edgewise writes in such a folder. A folder with any other file is
               never replaced
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link; name the folder that it points to: {os.path.realpath(path)}")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a folder to write to")
    if path.name in ("", "..") or Path.cwd().is_relative_to(path.resolve()) or os.path.ismount(path):
        raise InputError(
            f"{path} is a mount point, or the folder that you are in, or around it; name a new one, such as "
            f"{path / 'out'}"
        )
    _check_parent(path)
    if path.exists() and any(path.iterdir()):
        check_no_foreign_files(path, own_files)
        if not overwrite:
            raise InputError(f"{path} exists already; choose another folder, or write over it with overwrite=True")


def _check_parent(path: Path) -> None:
    if path.parts[:1] == ("~",):
        raise InputError(f"{path} would be in a folder that is named '~'; give Path({str(path)!r}).expanduser()")
    parent = next(folder for folder in path.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} can't be written: {parent} is not a folder, or you may not write to it")


def check_no_foreign_files(path: Path, own_files: str) -> None:
    """Raise InputError if a folder holds files that edgewise didn't write: see `check_folder`.

    A folder is edgewise's if it has one of the records that it should have, and its README.md the mark of edgewise.
    """
    records = [path / name for name in MARKERS if re.fullmatch(own_files, name)]
    is_own_folder = not records or any(map(_is_own_record, records))
    foreign = []
    for top, folders, files in os.walk(path):
        links = [name for name in folders if Path(top, name).is_symlink()]
        for file in (Path(top, name) for name in (*files, *links)):
            place = file.relative_to(path)
            if any(DRAFT_NAME.fullmatch(part) or SYSTEM_FILES.fullmatch(part) for part in place.parts):
                continue
            is_own = is_own_folder and re.fullmatch(own_files, place.as_posix())
            if not is_own or (file.name == README and not is_own_readme(file)):
                foreign.append(str(file))
    if foreign:
        names = ", ".join(sorted(foreign)[:3]) + ", ..." * (len(foreign) > 3)
        raise InputError(f"{path} holds files that aren't part of it: {names}; move them, or choose another folder")


def _is_own_record(file: Path) -> bool:
    with suppress(InputError):
        record = None if file.is_symlink() else read_json(file)
        return isinstance(record, dict) and str(record.get("format", "")).startswith("edgewise-")
    return False


def is_own_readme(path: Path) -> bool:
    """Return whether a file is a page that edgewise wrote, by its first line."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and path.read_bytes().startswith(README_MARK.encode())


@contextmanager
def create_parents(path: Path) -> Iterator[None]:
    """Create the folders that `path` will be in; after an error, remove those that are empty."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        with name_target_in_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()
        raise


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file, and yield True. Yield False at once if another process holds it."""
    lock = FileLock(path, timeout=0)
    with name_target_in_errors(path), suppress(Timeout):
        lock.acquire()
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextmanager
def open_draft(path: Path) -> Iterator[Path]:
    """Yield a new path on the disk of `path`, to fill and to rename. What is left there is removed at the end."""
    with suppress(OSError):  # remove the drafts that killed processes left beside their target
        for left in list(path.parent.iterdir()):
            match = DRAFT_NAME.fullmatch(left.name)
            if match and match[1] == path.name:
                with suppress(OSError, Timeout), FileLock(left / "lock", timeout=0):
                    remove(left)
    for attempts_left in reversed(range(DRAFT_ATTEMPTS)):
        folder = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
        lock = FileLock(folder / "lock", timeout=0)
        try:
            folder.mkdir()
            lock.acquire()
            break
        except OSError as error:  # perhaps another process removed the draft before it was locked: try again
            remove(folder)
            if not attempts_left:
                raise InputError(f"{path} can't be written: {error.strerror or error}") from None
    try:
        yield folder / path.name
    finally:
        lock.release()
        remove(folder)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its content; ignore what can't be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def replace_folder(draft: Path, path: Path, overwrite: bool = True) -> None:
    """Move a finished folder to `path`; an old one there may be beside the draft afterwards.

    Without `overwrite`, raise InputError if another folder with content is there. The system exchanges both folders in
    one step if it can.
    """
    if not path.exists() or not any(path.iterdir()):
        if path.exists():
            path.rmdir()  # not every system lets a folder replace an empty one
        os.rename(draft, path)
    elif not overwrite:
        raise InputError(f"{path} exists already, since a moment ago; choose another folder")
    elif not _exchange(draft, path):
        old = draft.with_name("old")
        os.rename(path, old)
        try:
            os.rename(draft, path)
        except BaseException:
            os.rename(old, path)
            raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; return False if the system can't."""
    current_folder, exchange = -100, 2
    paths = os.fsencode(first), os.fsencode(second)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "renameat2"):
            return bool(libc.renameat2(current_folder, paths[0], current_folder, paths[1], exchange) == 0)
        return bool(libc.renamex_np(*paths, exchange) == 0)  # macOS
    except (AttributeError, OSError, TypeError):
        return False


@contextmanager
def name_target_in_errors(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Turn an OSError into an InputError that names the target `path`, or the file in it, and not its draft."""
    try:
        yield
    except OSError as error:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(path)
        name = str(path) if draft is None and DRAFT_NAME.search(name) else name
        message = f"{name} can't be written: {error.strerror or error}"
    except InputError as error:
        message = str(error)
        if draft is None or str(draft) not in message:
            raise
    else:
        return
    raise InputError(message if draft is None else message.replace(str(draft), str(path))) from None


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not path.is_dir():  # some systems can't sync folders
            raise


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def tree_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, or of the names and contents of all files below a folder."""
    if path.is_file():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256(repr([(str(f.relative_to(path)), file_digest(f)) for f in files]).encode()).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic_file(path) as draft:
        draft.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, atomically; characters that UTF-8 can't express, as in odd file names, are escaped."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically; NumPy's numbers and arrays become plain ones."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False, default=to_plain) + "\n")


def to_plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays as plain data, and any other object as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
