"""Check .gguf files, and keep de-quantised copies of them: a copy loads in a second, a .gguf in a minute.

A copy is a folder in HuggingFace's layout, in the user's cache. Its name holds a hash of everything that it depends on:
the file's name and content, the dtype, and the versions of the libraries that read it. A folder appears when it is
complete. If the cache can't be used, a warning says why, and the .gguf itself is read.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import shutil
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from filelock import FileLock

from ..errors import InputError
from ..io.atomic import atomic_folder, remove, remove_drafts
from ..io.reading import file_size, first_line, wrap_read_errors
from .memory import parse_bytes

if TYPE_CHECKING:
    import torch

log = getLogger(__name__)
# Types of metadata by their number: text, lists, and numbers as `struct` writes them.
TEXT, LIST = 8, 9
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
MAX_DIMENSIONS = 4
# Metadata and names become Python objects one by one. A million tokens with their merges are a few million items.
MAX_ITEMS = 5_000_000
# No quantisation packs more numbers into a byte.
NUMBERS_PER_BYTE = 8
COPY_VERSION = 1
FOLDER_VARIABLE, LIMIT_VARIABLE = "EDGEWISE_CACHE", "EDGEWISE_CACHE_LIMIT"
DEFAULT_LIMIT = "20GB"
LIBRARIES = ("transformers", "gguf")
# Bytes of a copy besides its weights: a config and a tokenizer.
EXTRA_BYTES = 50_000_000
# A copy that was used within this time may still be loading, and is not removed.
IN_USE_SECONDS = 600


def check_header(path: Path) -> int:
    """Return how many numbers the tensors of a .gguf file have. Raise InputError if its header can't be right.

    Call it before a library reads the file: counts in a damaged header could make it read forever.
    """
    size, advice = file_size(path), "it isn't a .gguf file, or its download was cut short"
    with wrap_read_errors(path, advice), path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        position = 4

        def unpack(form: str) -> tuple[int, ...]:
            nonlocal position
            values = struct.unpack_from(f"<{form}", data, position)  # fails at the end of the file, so no loop is long
            position += struct.calcsize(f"<{form}")
            return values

        def read_text() -> bytes:
            nonlocal position
            (length,) = unpack("Q")
            position += length
            return data[position - length : position]

        _, n_tensors, n_entries = unpack("IQQ")
        n_items, n_layers, n_numbers = n_tensors + n_entries, 0, 0
        for _ in range(n_entries):
            key = read_text()
            (kind,), count = unpack("I"), 1
            if kind == LIST:
                kind, count = unpack("IQ")
            n_items += count
            if n_items > MAX_ITEMS:
                raise ValueError(f"its header has more than {MAX_ITEMS:,} items")
            if kind == TEXT:
                for _ in range(count):
                    read_text()
            elif key.endswith(b".block_count"):
                n_layers = max(n_layers, *unpack(f"{count}{NUMBERS[kind]}"))
            else:
                position += count * struct.calcsize(f"<{NUMBERS[kind]}")
        for _ in range(n_tensors):
            read_text()
            (n_dimensions,) = unpack("I")
            if n_dimensions > MAX_DIMENSIONS:
                raise ValueError(f"a tensor has {n_dimensions} dimensions")
            n_numbers += math.prod(unpack(f"{n_dimensions}Q"))
            unpack("IQ")
        if n_numbers > NUMBERS_PER_BYTE * size:  # together: several tensors might claim the same bytes
            raise ValueError(f"its tensors have {n_numbers:,} numbers, which it has no room for")
        # The libraries' work grows with the number of layers, however few tensors there are.
        if n_layers > n_tensors:
            raise ValueError(f"its metadata has {n_layers:,} layers, but it has {n_tensors:,} tensors")
        return n_numbers


def cache_folder() -> Path:
    """Return the cache folder: $EDGEWISE_CACHE, or the system's place for caches."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder).expanduser() if folder else platformdirs.user_cache_path("edgewise", appauthor=False)


def cache_limit() -> int:
    """Return how many bytes the cache may hold: $EDGEWISE_CACHE_LIMIT, or 20 GB; 0 for none."""
    limit = os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT
    try:
        return 0 if limit.strip() == "0" else parse_bytes(limit)
    except InputError as error:
        raise InputError(f"${LIMIT_VARIABLE}: {error}") from None


class _NotCachedError(Exception):
    """Why nothing can be kept in the cache."""


def find_or_make_copy(
    gguf: Path, content: str, dtype: torch.dtype, n_numbers: int, read: Callable[[], tuple[Any, Any]]
) -> Path | None:
    """Return the folder with the copy of a .gguf, made if there is none; None if it can't be kept.

    content    the hash of the file's name and content
    n_numbers  how many numbers its tensors have
    read       returns the model and the tokenizer of the file in this dtype
    """
    copy = _copy_path(gguf, content, str(dtype).removeprefix("torch."))
    size = n_numbers * dtype.itemsize + EXTRA_BYTES
    try:
        if copy.is_dir():
            with suppress(OSError):  # a cache that can only be read
                os.utime(copy)
            return copy
        limit = cache_limit()
        if size > limit:
            raise _NotCachedError(
                f"it would take {_format_bytes(size)} of a cache of at most {_format_bytes(limit)} (${LIMIT_VARIABLE})"
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(copy.with_name(f".{copy.name}.lock")):
            if copy.is_dir():  # another process made it while this one waited for the lock
                return copy
            _make_room(copy.parent, limit - size)
            free = shutil.disk_usage(copy.parent).free
            if size > free:
                raise _NotCachedError(
                    f"a copy takes {_format_bytes(size)}, but {copy.parent} has {_format_bytes(free)} left"
                )
            model, tokenizer = read()
            # transformers doesn't save a model that is marked as quantised; these weights aren't any more.
            for marked, name in ((model, "hf_quantizer"), (model.config, "quantization_config")):
                with suppress(AttributeError):
                    delattr(marked, name)
            try:
                with atomic_folder(copy) as draft:
                    model.save_pretrained(draft)
                    tokenizer.save_pretrained(draft)
            except Exception as error:  # saving failed, but the model itself was read: load it without a copy
                raise _NotCachedError(first_line(error)) from None
    except (_NotCachedError, OSError) as error:
        log.warning("%s is de-quantised for this command alone: %s", gguf.name, first_line(error))
        return None
    taken = _format_bytes(_folder_bytes(copy))
    log.info("%s was de-quantised once, kept in %s (%s): from now on it loads in seconds", gguf.name, copy, taken)
    return copy


def find_config(gguf: Path, content: str) -> Path | None:
    """Return the folder of a copy of a .gguf in any dtype, for its config; None if there is none."""
    prefix = _copy_path(gguf, content, "")
    return next(prefix.parent.glob(f"{prefix.name}*"), None)


def _copy_path(gguf: Path, content: str, dtype: str) -> Path:
    dependencies = (COPY_VERSION, content, *(version(name) for name in LIBRARIES))
    key = hashlib.sha256(repr(dependencies).encode()).hexdigest()[:32]
    name = re.sub(r"[^\w.-]", "_", gguf.stem, flags=re.ASCII)[:60]
    return cache_folder() / "models" / f"{name}-{key}-{dtype}"


def _make_room(folder: Path, room: int) -> None:
    """Remove copies until the rest takes at most `room` bytes: the least recently used first, none that is in use."""
    remove_drafts(folder)
    copies = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    last_used = {copy: copy.stat().st_mtime for copy in copies}
    sizes = {copy: _folder_bytes(copy) for copy in sorted(copies, key=last_used.__getitem__)}
    for copy, size in list(sizes.items()):
        if sum(sizes.values()) > room and time.time() - last_used[copy] > IN_USE_SECONDS:
            remove(copy)
            del sizes[copy]
            log.info("the cache is full: %s was removed (%s)", copy, _format_bytes(size))
    if sum(sizes.values()) > room:
        raise _NotCachedError("copies that were used in the last ten minutes fill the cache")


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _format_bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
