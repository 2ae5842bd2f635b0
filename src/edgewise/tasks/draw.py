"""Seeded drawing of distinct items. An item's split depends on the item only."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

from ..errors import InputError

T = TypeVar("T")
SPLITS = ("train", "validation", "test")
TENTHS = {"train": range(0, 6), "validation": range(6, 8), "test": range(8, 10)}
MOST_MISSES = 5000


class Draw:
    """A random source that never accepts an item twice.

    The split of an item is a hash of the item, so it is the same for every seed and number of examples: six tenths are
    for training, two for validation, two for testing.
    """

    def __init__(self, task: str, seed: int) -> None:
        self._task = task
        self._random = random.Random(f"{task}/{seed}")
        self._accepted: set[tuple[object, ...]] = set()
        self._misses = 0

    def choice(self, items: Sequence[T]) -> T:
        """Return one item."""
        return self._random.choice(items)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` different items, in random order."""
        return self._random.sample(items, count)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def belongs(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is in `split`."""
        return hashlib.sha256(repr(item).encode()).digest()[0] % 10 in TENTHS[split]

    def is_new(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is in `split` and new. Raise InputError after many misses: there are no more new items."""
        if self.belongs(item, split) and item not in self._accepted:
            self._accepted.add(item)
            self._misses = 0
            return True
        self._misses += 1
        if self._misses > MOST_MISSES:
            raise InputError(
                f"task {self._task!r} has only about {len(self._accepted)} distinct prompts in split {split!r}; "
                "use fewer with --examples"
            )
        return False
