"""The one way to write: whole or not at all, in a draft beside the target, never through a link.

A draft is locked by the process that writes it; one that nobody holds was left by a process that was killed, and is
removed by the next that writes the same target. Errors name what the user asked for, not the draft of it.
"""

from __future__ import annotations

import ctypes
import errno
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

from ..errors import InputError
from .records import read_json

try:
    import fcntl
except ImportError:  # not a system of the Unix kind: nothing is locked there, and what is left behind stays
    fcntl = None  # type: ignore[assignment]

# A draft's name: what it is a draft of, and whether it is new, or what was there before.
DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{16}\.(draft|old)(\..*)?")
# What file managers and file systems leave wherever they look.
LITTER = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|\.nfs\w+")
LONGEST_NAME = 255
# How a page begins that edgewise wrote: README.md is a name that people use for notes of their own.
PAGE, PAGE_MARK = "README.md", "<!-- made by edgewise -->"
CHUNK_BYTES = 2**24
# These say of which format a folder is; without one, nobody knows whose its files are.
MARKERS = ("scores.json", "ranking.json", "run.json", "study.json", "store.json")
# What lies in a folder of scores, or of a ranking: either may take the other's place.
SCORE_FILES = r"(scores|ranking)\.(npy|json)"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of `path` if nothing goes wrong, else disappears."""
    check_file(path)
    with parents_of(path), name_target_in_errors(path), draft_of(path, is_folder=False) as draft:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut could leave the name without the contents
        os.replace(draft, path)
        _sync_folder(path.parent)


@contextmanager
def whole_folder(path: Path, overwrite: bool = False, ours: str = "") -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` if nothing goes wrong, else disappears.

    `overwrite` and `ours` are as in `check_folder`.
    """
    check_folder(path, overwrite, ours)
    with parents_of(path), draft_of(path, is_folder=True) as draft, name_target_in_errors(path, draft):
        yield draft
        for folder, _, _ in os.walk(draft):
            _sync_folder(Path(folder))
        put_in_place(draft, path, overwrite)
        _sync_folder(path.parent)


def check_file(path: Path, overwrite: bool = True, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work whose outcome it is to hold, a file that can't be written or mustn't be replaced.

    One of the command's own `inputs`, or a file in one of them, is never replaced.
    """
    for given in map(Path, inputs):
        if path.exists() and given.exists() and path.resolve().is_relative_to(given.resolve()):
            raise InputError(f"{path} is an input of this command; choose another file to write to")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write to")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a device or the like, not a file; name a file to write to")
    if os.path.lexists(path) and not overwrite:
        raise InputError(f"{path} exists already; choose another file, or write over it with --overwrite")
    _check_parent(path)


def check_folder(path: Path, overwrite: bool = False, ours: str = "") -> None:
    """Refuse, before the work whose outcome it is to hold, a folder that can't be written or mustn't be replaced.

    One that exists and isn't empty is replaced with `overwrite` only, and only if nothing lies there that edgewise
    didn't write: no file whose path in it doesn't match the regular expression `ours`.
    """
    check_place(path)
    if path.exists() and any(path.iterdir()):
        refuse_foreign(path, ours)
        if not overwrite:
            raise InputError(f"{path} exists already; choose another folder, or write over it with --overwrite")


def check_place(path: Path) -> None:
    """Refuse a folder that can't be written or replaced for where it lies and what it is."""
    _restore(path)
    if path.is_symlink():
        raise InputError(f"{path} is a link; name the folder that it points to: {os.path.realpath(path)}")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a folder to write to")
    if path.name in ("", "..") or Path.cwd().is_relative_to(path.resolve()):
        raise InputError(f"{path} is the folder that you are in, or around it; name a new one, such as {path / 'out'}")
    if os.path.ismount(path):
        raise InputError(f"{path} is a mount point, which can't be replaced; name a folder in it: {path / 'out'}")
    _check_parent(path)


def refuse_foreign(path: Path, ours: str) -> None:
    """Refuse to replace a folder that holds more than files whose paths in it match `ours`, and drafts of them."""
    inside = [
        Path(top, name)
        for top, folders, files in os.walk(path)
        for name in (*files, *(name for name in folders if Path(top, name).is_symlink()))
    ]
    places = {file: file.relative_to(path) for file in inside}
    passing = [DRAFT, LITTER]
    files = [
        f for f, place in places.items() if not any(one.fullmatch(part) for one in passing for part in place.parts)
    ]
    markers = [name for name in MARKERS if re.fullmatch(ours, name)]
    is_marked = not markers or any((path / name).is_file() for name in markers)
    foreign = sorted(file for file in files if not is_marked or not _is_ours(file, places[file], ours))
    if foreign:
        names = ", ".join(map(str, foreign[:3])) + ", ..." * (len(foreign) > 3)
        raise InputError(f"{path} holds what isn't part of it: {names}; move it away, or choose another folder")


def _is_ours(file: Path, inside: Path, ours: str) -> bool:
    """Whether edgewise wrote a file: by its place in a folder, and what it says if it is one that says so."""
    if re.fullmatch(ours, inside.as_posix()) is None:
        return False
    if file.name == PAGE:
        return is_our_page(file)
    if file.name not in MARKERS:
        return True
    try:
        about = {} if file.is_symlink() else read_json(file)
    except InputError:
        return False
    return isinstance(about, dict) and str(about.get("format", "")).startswith("edgewise-")


def is_our_page(path: Path) -> bool:
    """Whether a file is a page that edgewise wrote, by its first line."""
    if path.is_symlink() or not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(PAGE_MARK)) == PAGE_MARK.encode()
    return False


def _check_parent(path: Path) -> None:
    """Refuse what can't be written because of where it would lie."""
    longest = LONGEST_NAME - len(f"..{'0' * 16}.draft{path.suffix}".encode())
    if len(os.fsencode(path.name)) > longest:
        raise InputError(f"{path.name[:40]}... is a name of more than {longest} bytes; choose a shorter one")
    if ".." in path.parts and not path.parent.exists():
        raise InputError(f"{path} can't be written: there is no folder {path.parent}")
    above = next(folder for folder in (path.parent, *path.parent.parents, Path(".")) if os.path.lexists(folder))
    if not above.is_dir():
        raise InputError(f"{path} can't be written: {above} is no folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{path} can't be written: you may not write to {above}")


@contextmanager
def parents_of(path: Path) -> Iterator[None]:
    """Make the folders that `path` will be in; those that are still empty when something goes wrong are removed."""
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
def draft_of(path: Path, is_folder: bool) -> Iterator[Path]:
    """A file or folder beside `path` to fill and then to rename, or else it is removed; abandoned ones go first."""
    remove_drafts(path.parent, path.name)
    try:
        name, handle = _new_draft(path, is_folder)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from None
    try:
        yield name
    finally:
        remove(name)
        if handle is not None:
            let_go(handle)


def _new_draft(path: Path, is_folder: bool) -> tuple[Path, int | None]:
    """A new file or folder, and the handle by which it is held, where there are locks."""
    while True:
        name = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft{'' if is_folder else path.suffix}")
        name.mkdir() if is_folder else name.touch(exist_ok=False)
        if fcntl is None:
            return name, None
        # Another process may come between, and take it for one that was abandoned: then again.
        with suppress(FileNotFoundError):
            handle = os.open(name, os.O_RDONLY)
            if is_held(handle) and is_at(handle, name):
                return name, handle
            os.close(handle)


def is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at a path, which somebody may have removed."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def remove_drafts(folder: Path, name: str = "") -> None:
    """Remove drafts that nobody holds, of anything or of one name: processes that were killed left them."""
    for draft in _drafts(folder, name) if fcntl is not None else ():
        with suppress(OSError):
            handle = os.open(draft, os.O_RDONLY | os.O_NONBLOCK)
            if is_held(handle, unknown=False):
                remove(draft)
            os.close(handle)


def _drafts(folder: Path, name: str = "", kind: str = "") -> list[Path]:
    """The drafts that lie in a folder, of anything or of one name and kind."""
    found = []
    with suppress(OSError):  # there is no folder, or it can't be listed
        for path in folder.iterdir():
            parts = DRAFT.fullmatch(path.name)
            if parts and name in ("", parts[1]) and kind in ("", parts[2]):
                found.append(path)
    return found


def is_held(handle: int, unknown: bool = True) -> bool:
    """Lock an open file or folder for as long as it is open, if nobody else did; `unknown` where there are no locks."""
    if fcntl is None:
        return unknown
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return unknown
    return True


def let_go(handle: int) -> None:
    """Close a file that was held: for a process that was forked meanwhile, and has it open too, as well."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


@contextmanager
def locked(path: Path, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file, alone or with others who share it, until the end; waits for those who hold it otherwise.

    Without `wait`, gives False at once if somebody does. Where there are no locks, nobody is waited for. The file
    stays: one that is removed could be held twice.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        yield _lock(handle, shared, wait)
    finally:
        let_go(handle)


def _lock(handle: int, shared: bool, wait: bool) -> bool:
    if fcntl is not None:
        how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
    return True


def discard(path: Path) -> None:
    """Remove a folder that others may look at: it is gone at once, rather than file by file."""
    gone = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    os.rename(path, gone)
    remove(gone)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that it holds, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def put_in_place(draft: Path, path: Path, overwrite: bool = True) -> None:
    """Let a finished folder take the place of another, in one step where the system has such a step.

    Without `overwrite`, only that of none, or of an empty one.
    """
    if not path.exists() or not any(path.iterdir()):
        if path.exists():
            path.rmdir()  # not everywhere may a folder take the place of an empty one
        os.rename(draft, path)  # fails if somebody was faster
    elif not overwrite:
        raise InputError(f"{path} exists already, since a moment ago; choose another folder")
    elif _exchange(draft, path):
        remove(draft)
    else:
        old = path.with_name(f".{path.name}.{secrets.token_hex(8)}.old")
        os.rename(path, old)  # killed from here on, `_restore` finds it
        try:
            os.rename(draft, path)
        except BaseException:
            os.rename(old, path)
            raise
        remove(old)


def _restore(path: Path) -> None:
    """Put back a folder that was being replaced, in two steps, by a process that was killed between them."""
    kept = [] if os.path.lexists(path) else _drafts(path.parent, path.name, "old")
    if kept:
        with name_target_in_errors(path):
            os.rename(max(kept, key=lambda old: old.stat().st_mtime), path)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at once; False where the system or the file system can't."""
    at_cwd, swap = -100, 2
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        paths = os.fsencode(one), os.fsencode(other)
        if hasattr(libc, "renameat2"):
            failed = libc.renameat2(at_cwd, paths[0], at_cwd, paths[1], swap)
        else:
            failed = libc.renamex_np(*paths, swap)  # macOS
    except (AttributeError, OSError, TypeError):
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))


@contextmanager
def name_target_in_errors(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Errors of writing name what the user asked for: the path, or what lies in it rather than in its draft."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        if draft is not None and named.is_relative_to(draft):
            named = path / named.relative_to(draft)
        elif DRAFT.fullmatch(named.name):
            named = path
        raise InputError(f"{named} can't be written: {error.strerror or error}") from None
    except InputError as error:
        if draft is None or str(draft) not in str(error):
            raise
        raise InputError(str(error).replace(str(draft), str(path))) from None


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some systems don't open folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's contents, read piece by piece."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()


def tree_digest(path: Path) -> str:
    """The SHA-256 of a file's contents, or of the names and contents of all files below a folder."""
    if path.is_file():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256(repr([(str(f.relative_to(path)), file_digest(f)) for f in files]).encode()).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path) as draft:
        draft.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all; half characters, as in names that aren't UTF-8, are spelled out."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all; numbers and arrays of NumPy are plain ones there."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False, default=plain) + "\n")


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as JSON has them; anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
