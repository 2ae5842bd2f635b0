"""De-quantised .gguf files in the user's cache: reading one takes a minute of CPU, reading its copy a second.

A copy is a folder in HuggingFace's layout, named by a hash of all that it depends on: the file's name and content, the
dtype, and the versions of the libraries that read it. It lists its files with their digests; one that isn't as it was
written is never used, but made again. The cache only ever saves time: what goes wrong with it is told in a line, and
the .gguf itself is read.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from logging import getLogger
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..io.atomic import discard, file_digest, locked, parents_of, remove_drafts, whole_folder, write_json
from ..io.reading import file_size, first_line
from ..io.records import read_format
from .memory import parse_bytes

log = getLogger(__name__)
FORMAT, VERSION = "edgewise-cached-model", 1
ABOUT, CONFIG = "cached.json", "config.json"
FOLDER, LIMIT = "EDGEWISE_CACHE", "EDGEWISE_CACHE_LIMIT"
DEFAULT_LIMIT = "20GB"
LIBRARIES = ("transformers", "gguf")
# What a copy has beyond its weights: a config and a tokenizer.
BESIDE = 50_000_000


def cache_folder() -> Path:
    """The user's cache: $EDGEWISE_CACHE, or `edgewise` where the system has its caches."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given).expanduser()
    usual = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local"}
    above = os.environ.get("XDG_CACHE_HOME") or usual.get(sys.platform, "~/.cache")
    return Path(above).expanduser() / "edgewise"


def cache_limit() -> int:
    """How many bytes the cache may hold: $EDGEWISE_CACHE_LIMIT, or 20 GB; 0 for nothing."""
    given = os.environ.get(LIMIT) or DEFAULT_LIMIT
    try:
        return 0 if given.strip() == "0" else parse_bytes(given)
    except InputError as error:
        raise InputError(f"${LIMIT}: {error}") from None


@contextmanager
def dequantised(
    gguf: Path, content: str, kind: torch.dtype, numbers: int, read: Callable[[], tuple[Any, Any]]
) -> Iterator[Path | None]:
    """A folder with the copy of a .gguf in a dtype, which nobody removes meanwhile; None where there can't be one.

    content  the hash of the file's name and content
    numbers  that it holds
    read     gives the model and the tokenizer of the file, in that dtype, for a copy to be made
    """
    copy = _place(gguf, content, str(kind).removeprefix("torch."))
    with ExitStack() as held:
        try:
            found = _found(copy, held) or _made(gguf, copy, numbers * kind.itemsize + BESIDE, read, held)
        except (_NotKeptError, OSError) as error:
            log.warning("%s is de-quantised for this command alone: %s", gguf.name, first_line(error))
            found = None
        yield found


@contextmanager
def described(gguf: Path, content: str) -> Iterator[Path | None]:
    """A folder with the config of a .gguf, if there is a copy of the file in any dtype; no weights are looked at."""
    first = _place(gguf, content, "")
    with ExitStack() as held:
        copies = [copy for copy in _copies(first.parent) if copy.name.startswith(first.name)]
        yield next((copy for copy in copies if _found(copy, held, only=CONFIG)), None)


class _NotKeptError(Exception):
    """Why nothing can be kept in the cache."""


def _place(gguf: Path, content: str, dtype: str) -> Path:
    depends = (VERSION, content, *(version(name) for name in LIBRARIES))
    key = hashlib.sha256(repr(depends).encode()).hexdigest()[:32]
    name = re.sub(r"[^\w.-]", "_", gguf.stem, flags=re.ASCII)[:60]
    return cache_folder() / "models" / f"{name}-{key}-{dtype}"


def _copies(folder: Path) -> list[Path]:
    """The copies of the cache, whole or damaged."""
    with suppress(OSError):
        return [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir()]
    return []


def _lock(copy: Path) -> Path:
    return copy.with_name(f".{copy.name}.lock")


def _found(copy: Path, held: ExitStack, only: str = "") -> Path | None:
    """The copy, if it is there and as it was written, held against those who would remove it."""
    if not copy.is_dir():
        return None
    try:
        held.enter_context(locked(_lock(copy), shared=True))
    except OSError:
        return None
    if _damage(copy, only):
        held.close()
        return None
    with suppress(OSError):
        os.utime(copy)  # that it was used
    return copy


def _made(gguf: Path, copy: Path, size: int, read: Callable[[], tuple[Any, Any]], held: ExitStack) -> Path:
    """The copy, made here, unless another process has made it meanwhile."""
    limit = cache_limit()
    if size > limit:
        raise _NotKeptError(f"it would take {_size(size)} of a cache of at most {_size(limit)} (${LIMIT} sets it)")
    try:
        with parents_of(copy):
            held.enter_context(locked(_lock(copy)))
    except (OSError, InputError) as error:
        raise _NotKeptError(first_line(error)) from None
    damage = _damage(copy)
    if not damage:
        return copy
    if copy.exists():
        log.warning("%s is damaged: %s; it is made again", copy, damage)
        discard(copy)
    _make_room(copy.parent, limit - size)
    free = shutil.disk_usage(copy.parent).free
    if size > free:
        raise _NotKeptError(f"a copy takes {_size(size)}, but {copy.parent} has {_size(free)} left")
    model, tokenizer = read()
    try:
        with whole_folder(copy) as draft:
            _as_plain(model).save_pretrained(draft)
            tokenizer.save_pretrained(draft)
            files = {path.name: [path.stat().st_size, file_digest(path)] for path in sorted(draft.iterdir())}
            about = {"format": FORMAT, "version": VERSION, "of": gguf.name, "files": files}
            write_json(draft / ABOUT, about)
    except Exception as error:  # whatever the libraries raise: it is the copy that failed, not the model
        raise _NotKeptError(first_line(error)) from None
    taken = _size(_bytes(copy))
    log.info("%s was de-quantised once, kept in %s (%s): from now on it loads in seconds", gguf.name, copy, taken)
    return copy


def _as_plain(model: Any) -> Any:
    """The model without the mark of having been quantised: its weights aren't any more, but it wouldn't be saved."""
    for marked, name in ((model, "hf_quantizer"), (model.config, "quantization_config")):
        with suppress(AttributeError):
            delattr(marked, name)
    return model


def _damage(copy: Path, only: str = "") -> str:
    """What is wrong with a copy, or with one of its files; nothing if it is as it was written."""
    try:
        listed = read_format(copy / ABOUT, FORMAT, VERSION).get("files")
        files = listed if isinstance(listed, dict) else {}
        if not only and {path.name for path in copy.iterdir()} != {ABOUT, *files}:
            return "it has other files than it was written with"
        for name in [only] if only else files:
            if files.get(name) != [file_size(copy / name), file_digest(copy / name)]:
                return f"{name} isn't as it was written"
    except (OSError, InputError) as error:
        return first_line(error)
    return ""


def _make_room(folder: Path, room: int) -> None:
    """Remove copies, those first that were used least recently, until what is left fits; never one that is in use."""
    remove_drafts(folder)
    copies = {copy: _bytes(copy) for copy in sorted(_copies(folder), key=_used)}
    for copy, size in list(copies.items()):
        if sum(copies.values()) <= room:
            return
        with suppress(OSError), locked(_lock(copy), wait=False) as alone:
            if alone:
                discard(copy)
                del copies[copy]
                log.info("the cache is full: %s was removed (%s)", copy, _size(size))
    if sum(copies.values()) > room:
        raise _NotKeptError("what other commands are reading fills the cache")


def _used(copy: Path) -> float:
    with suppress(OSError):
        return copy.stat().st_mtime
    return 0.0


def _bytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
