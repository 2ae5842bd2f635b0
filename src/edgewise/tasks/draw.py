"""Seeded drawing of distinct items that fall into splits by what they are, not by when they were drawn."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

from ..errors import InputError

T = TypeVar("T")
SPLITS = ("train", "validation", "test")
TENTHS = {"train": range(0, 6), "validation": range(6, 8), "test": range(8, 10)}
PATIENCE = 5000


class Draw:
    """A random source that remembers what it has given out.

    An item belongs to one split for every seed and size, because the split is a hash of the item: six tenths of all
    items are for training, two for validation, two for testing.
    """

    def __init__(self, task: str, seed: int) -> None:
        self._task = task
        self._random = random.Random(f"{task}/{seed}")
        self._seen: set[tuple[object, ...]] = set()
        self._misses = 0

    def choice(self, items: Sequence[T]) -> T:
        """One item."""
        return self._random.choice(items)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items, in random order."""
        return self._random.sample(items, count)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def belongs(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is one of those of `split`."""
        return hashlib.sha256(repr(item).encode()).digest()[0] % 10 in TENTHS[split]

    def is_new(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` belongs to `split` and wasn't accepted before; refuses to search for ever."""
        if self.belongs(item, split) and item not in self._seen:
            self._seen.add(item)
            self._misses = 0
            return True
        self._misses += 1
        if self._misses > PATIENCE:
            raise InputError(
                f"task {self._task!r} has no more than about {len(self._seen)} distinct prompts in split {split!r}; "
                "ask for fewer with --examples"
            )
        return False
