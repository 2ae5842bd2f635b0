"""Check the headers of .gguf files, and parse them no more often than needed."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ..io.reading import file_size, wrap_read_errors

# Types of metadata by their number: text, lists, and numbers as `struct` writes them.
TEXT, LIST = 8, 9
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
MAX_DIMENSIONS = 4
# Metadata and names become Python objects one by one. A million tokens with their merges are a few million items.
MAX_ITEMS = 5_000_000
# No quantisation packs more numbers into a byte.
NUMBERS_PER_BYTE = 8


@contextmanager
def parse_header_once(gguf: str | None) -> Iterator[None]:
    """Parse the header of a .gguf file once inside this block; None for a model without such a file.

    transformers parses it five times to load a model, which takes most of the time.
    """
    if gguf is None:
        yield
        return
    import gguf as library

    cached: dict[str, Any] = {name: cache(getattr(library, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    with patch.multiple(library, **cached):
        yield


def check_header(path: Path) -> None:
    """Raise InputError if the header of a .gguf file can't be right.

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
