"""Check the header of a .gguf file before a library reads it: counts in a damaged header could make it read forever."""

from __future__ import annotations

import math
import mmap
import re
import struct
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..io.reading import file_size, wrap_read_errors

VERSIONS = (2, 3)
TEXT, LIST = 8, 9
# Bytes of the other types of metadata, by their number; some hold whole numbers.
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
INTEGERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
BLOCK = re.compile(r"blk\.(\d+)\.")
MAX_DIMENSIONS = 4
# Metadata and names become Python objects one by one. A million tokens with their merges are a few million items.
MAX_ITEMS = 5_000_000
# No quantisation packs more numbers into a byte.
NUMBERS_PER_BYTE = 8


class Counts(NamedTuple):
    """How many tensors a .gguf file has, and how many numbers in all of them, by its header."""

    tensors: int
    numbers: int


def check_header(path: Path) -> Counts:
    """Return the counts of a .gguf file. Raise InputError if its header can't be right."""
    size = file_size(path)
    if size < 24:
        raise InputError(f"{path} isn't a .gguf file: it has {size} bytes")
    with wrap_read_errors(path), path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Header(data).check()
        except ValueError as error:
            raise InputError(f"{path} isn't a .gguf file that can be read: {error}") from None


class _Header:
    """A position in a file that only moves forward. Methods raise ValueError if the header can't be right."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.position, self.n_items = data, 4, 0

    def check(self) -> Counts:
        if self.data[:4] != b"GGUF":
            raise ValueError("it doesn't begin with GGUF")
        (version,) = self.unpack("<I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, not {' or '.join(map(str, VERSIONS))}")
        n_tensors, n_entries = self.unpack("<QQ")
        n_blocks, keys = 0, set()
        for _ in self.repeat(n_entries, min_bytes=13, what="entries of metadata"):
            key = self.read_text()
            if key in keys:
                raise ValueError(f"its metadata has {key!r} twice")
            keys.add(key)
            value = self.read_value(*self.unpack("<I"))
            if key.endswith(".block_count") and value is not None:
                n_blocks = max(n_blocks, value)
        names: set[str] = set()
        end, room = 0, NUMBERS_PER_BYTE * len(self.data)
        for _ in self.repeat(n_tensors, min_bytes=32, what="tensors"):
            name = self.read_text()
            if name in names:
                raise ValueError(f"it has the tensor {name!r} twice")
            names.add(name)
            (n_dimensions,) = self.unpack("<I")
            if not 1 <= n_dimensions <= MAX_DIMENSIONS:
                raise ValueError(f"the tensor {name!r} has {n_dimensions} dimensions")
            numbers = math.prod(self.unpack(f"<{n_dimensions}Q"))
            _, offset = self.unpack("<IQ")
            room -= numbers  # of all tensors together: two of them might claim the same bytes
            if not numbers or room < 0:
                raise ValueError(f"the tensor {name!r} has {numbers:,} numbers, which it has no room for")
            end = max(end, offset + -(-numbers // NUMBERS_PER_BYTE))
        if self.position + end > len(self.data):
            raise ValueError("its tensors end beyond it; was its download cut short?")
        # The libraries' work grows with the number of layers, however few tensors there are.
        stored_blocks = {match[1] for name in names if (match := BLOCK.match(name))}
        if n_blocks > len(stored_blocks):
            raise ValueError(f"its metadata has {n_blocks:,} layers, but its tensors are of {len(stored_blocks):,}")
        return Counts(n_tensors, NUMBERS_PER_BYTE * len(self.data) - room)

    def read_value(self, kind: int) -> int | None:
        """Pass a value of the metadata; return it if it is a whole number."""
        if kind in INTEGERS:
            return self.unpack(INTEGERS[kind])[0]
        if kind in WIDTHS:
            self.skip(WIDTHS[kind])
        elif kind == TEXT:
            self.skip(*self.unpack("<Q"))
        elif kind == LIST:
            inner, count = self.unpack("<IQ")
            if inner in WIDTHS:
                self.count(count)
                self.skip(count * WIDTHS[inner])
            elif inner == TEXT:
                for _ in self.repeat(count, min_bytes=8, what="texts in a list"):
                    self.skip(*self.unpack("<Q"))
            else:
                raise ValueError(f"its metadata has a list of type {inner}")
        else:
            raise ValueError(f"its metadata has a value of type {kind}")
        return None

    def repeat(self, count: int, min_bytes: int, what: str) -> range:
        """Return a range of `count` steps, if the rest of the file has `min_bytes` for each."""
        if count * min_bytes > len(self.data) - self.position:
            raise ValueError(f"it claims {count:,} {what}, which it has no room for; was its download cut short?")
        self.count(count)
        return range(count)

    def count(self, n_items: int) -> None:
        self.n_items += n_items
        if self.n_items > MAX_ITEMS:
            raise ValueError(f"its header has more than {MAX_ITEMS:,} items")

    def read_text(self) -> str:
        (length,) = self.unpack("<Q")
        start = self.position
        self.skip(length)
        try:
            return self.data[start : self.position].decode()
        except UnicodeDecodeError:
            raise ValueError("it has a name that isn't UTF-8 text") from None

    def unpack(self, form: str) -> tuple[int, ...]:
        start = self.position
        self.skip(struct.calcsize(form))
        return struct.unpack_from(form, self.data, start)

    def skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self.data):
            raise ValueError("it ends within its header; was its download cut short?")
