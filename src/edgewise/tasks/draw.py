"""What generators share: seeded drawing of distinct items, and prompt pairs with spans."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from .spans import end_span, read_markers
from .task import PromptPair

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

    def accepts(self, pair: PromptPair, split: str) -> bool:
        """Whether both prompts of a pair are in `split`, and the clean one is new."""
        return self.belongs((pair.corrupted,), split) and self.is_new((pair.clean,), split)

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


def marked_pair(
    marked: str, corrupted: str, correct: str, incorrect: str, order: Sequence[str] = (), **more: Any
) -> PromptPair:
    """Return a pair from a clean prompt with markers. The span of its last token is `end`.

    order  the names of the other spans in their order, for prompts in which it varies
    more   further fields of the pair
    """
    clean, spans = read_markers(marked)
    if order:
        spans = tuple(sorted(spans, key=lambda span: order.index(span.name)))
    return PromptPair(clean, corrupted, correct, incorrect, spans=(*spans, end_span(clean)), **more)
