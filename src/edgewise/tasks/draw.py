"""Seeded drawing of distinct items. An item's split depends on the item only."""

from __future__ import annotations

import hashlib
import random

from ..errors import InputError

SPLITS = ("train", "validation", "test")
TENTHS = {"train": range(0, 6), "validation": range(6, 8), "test": range(8, 10)}
MOST_MISSES = 5000


class Draw:
    """A random source that never accepts an item twice.

    The split of an item is a hash of the item, so it is the same for every seed and number of examples: six tenths are
    for training, two for validation, two for testing.
    """

    def __init__(self, task: str, seed: int) -> None:
        source = random.Random(f"{task}/{seed}")
        self.choice, self.sample, self.between = source.choice, source.sample, source.randint
        self._task = task
        self._accepted: set[tuple[object, ...]] = set()
        self._misses = 0

    def belongs(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is in `split`."""
        return hashlib.sha256(repr(item).encode()).digest()[0] % 10 in TENTHS[split]

    def accepts(self, clean: str, corrupted: str, split: str) -> bool:
        """Whether both prompts of a pair are in `split`, and the clean one is new."""
        return self.belongs((corrupted,), split) and self.is_new((clean,), split)

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
                "use fewer examples"
            )
        return False
