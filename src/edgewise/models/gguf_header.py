"""The header of a .gguf file, walked before a library reads it: its counts may lie, and that would read for ever."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple, NoReturn

from ..errors import InputError
from ..io.reading import file_size, wrap_read_errors

VERSIONS = (2, 3)
TEXT, LIST = 8, 9
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
MOST_DIMENSIONS = 4
# Metadata and names are read into Python objects one by one: a million tokens with their merges are a few millions.
MOST_ITEMS = 5_000_000
# No quantisation packs more numbers than this into a byte.
NUMBERS_PER_BYTE = 8


class Counts(NamedTuple):
    """How many tensors a .gguf file says it has, and numbers in all of them."""

    tensors: int
    numbers: int


def check_header(path: Path) -> Counts:
    """Refuse a .gguf file whose header doesn't fit into it, in words; gives what it counts, unread."""
    size = file_size(path)
    if size < 24:
        raise InputError(f"{path} isn't a .gguf file: it has {size} bytes")
    with wrap_read_errors(path), path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Walk(path, data).walk()


class _Walk:
    """A place in a file that only moves forward, and never beyond its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place, self.items = path, data, 4, 0

    def walk(self) -> Counts:
        if self.data[:4] != b"GGUF":
            self.refuse("it doesn't begin with GGUF")
        (version,) = self.take("<I")
        if version not in VERSIONS:
            self.refuse(f"its version is {version}, not {' or '.join(map(str, VERSIONS))}")
        tensors, pairs = self.take("<QQ")
        keys = set()
        for _ in self.each(pairs, least=13, what="entries of metadata"):
            key = self.text()
            if key in keys:
                self.refuse(f"its metadata has {key!r} twice")
            keys.add(key)
            (kind,) = self.take("<I")
            self.value(kind)
        names, end, room = set(), 0, NUMBERS_PER_BYTE * len(self.data)
        for _ in self.each(tensors, least=32, what="tensors"):
            name = self.text()
            if name in names:
                self.refuse(f"it has the tensor {name!r} twice")
            names.add(name)
            numbers, offset = self.tensor(name)
            room -= numbers  # two tensors might claim the same bytes
            if not numbers or room < 0:
                self.refuse(f"the tensor {name!r} has {numbers:,} numbers, which it has no room for")
            end = max(end, offset + -(-numbers // NUMBERS_PER_BYTE))
        if self.place + end > len(self.data):
            self.refuse("its tensors end beyond it; was its download cut short?")
        return Counts(tensors, NUMBERS_PER_BYTE * len(self.data) - room)

    def tensor(self, name: str) -> tuple[int, int]:
        """Pass the description of a tensor: how many numbers it has, and where they begin."""
        (dimensions,) = self.take("<I")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            self.refuse(f"the tensor {name!r} has {dimensions} dimensions")
        numbers = math.prod(self.take(f"<{dimensions}Q"))
        _, offset = self.take("<IQ")
        return numbers, offset

    def value(self, kind: int) -> None:
        """Pass a value of the metadata."""
        if kind in WIDTHS:
            self.skip(WIDTHS[kind])
        elif kind == TEXT:
            self.skip(self.take("<Q")[0])
        elif kind == LIST:
            inner, count = self.take("<IQ")
            if inner in WIDTHS:
                self.count(count)
                self.skip(count * WIDTHS[inner])
            elif inner == TEXT:
                for _ in self.each(count, least=8, what="texts in a list"):
                    self.skip(self.take("<Q")[0])
            else:
                self.refuse(f"its metadata has a list of type {inner}")
        else:
            self.refuse(f"its metadata has a value of type {kind}")

    def each(self, count: int, least: int, what: str) -> range:
        """So many steps, if each of at least so many bytes fit into the rest of the file."""
        if count * least > len(self.data) - self.place:
            self.refuse(f"it claims {count:,} {what}, which it has no room for; was its download cut short?")
        self.count(count)
        return range(count)

    def count(self, items: int) -> None:
        self.items += items
        if self.items > MOST_ITEMS:
            self.refuse(f"its header has more than {MOST_ITEMS:,} items")

    def text(self) -> str:
        start = self.place + 8
        self.skip(self.take("<Q")[0])
        try:
            return self.data[start : self.place].decode()
        except UnicodeDecodeError:
            self.refuse("it has a name that isn't UTF-8 text")

    def take(self, form: str) -> tuple[int, ...]:
        start = self.place
        self.skip(struct.calcsize(form))
        return struct.unpack_from(form, self.data, start)

    def skip(self, size: int) -> None:
        self.place += size
        if self.place > len(self.data):
            self.refuse("it ends within its header; was its download cut short?")

    def refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self.path} isn't a .gguf file that can be read: {why}")
