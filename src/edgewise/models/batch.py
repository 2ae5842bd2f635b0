"""Examples as tensors: padded batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..tasks.task import Example


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of similar length, padded.

    rows              where the examples stand in their task
    clean, corrupted  [example, position] tokens; padding holds token 0
    real              [example, position] False for padding
    last              [example] the position that the metric reads
    answers           [example, 2] correct, incorrect
    shared            how many leading positions the two prompts of every example share
    """

    rows: tuple[int, ...]
    clean: Tensor
    corrupted: Tensor
    real: Tensor
    last: Tensor
    answers: Tensor
    shared: int


def make_batch(examples: Sequence[Example], rows: Sequence[int], device: torch.device, pad: str = "right") -> Batch:
    """A batch of the examples at `rows`, padded on the 'right' or the 'left'. The padding changes no result."""
    chosen = [examples[row] for row in rows]
    width = max(example.length for example in chosen)
    clean, corrupted = torch.zeros((2, len(rows), width), dtype=torch.long)
    real = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, example in enumerate(chosen):
        span = slice(0, example.length) if pad == "right" else slice(width - example.length, width)
        clean[index, span], corrupted[index, span] = torch.tensor(example.clean), torch.tensor(example.corrupted)
        real[index, span] = True
    last = torch.tensor([example.length - 1 if pad == "right" else width - 1 for example in chosen])
    # The last position is always run: the metric reads it. Left padding shifts prefixes apart.
    shared = min(min(example.shared_prefix, example.length - 1) for example in chosen) if pad == "right" else 0
    answers = torch.tensor([[example.correct, example.incorrect] for example in chosen])
    clean, corrupted, real, last, answers = (part.to(device) for part in (clean, corrupted, real, last, answers))
    return Batch(tuple(rows), clean, corrupted, real, last, answers, shared)


def plan_batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """Rows in batches of at most `size`, alike in length and in shared prefix, so that little runs in vain."""
    if size < 1:
        raise InputError(f"the batch size must be at least 1, not {size}")
    order = sorted(range(len(examples)), key=lambda row: (examples[row].length, examples[row].shared_prefix, row))
    return [order[first : first + size] for first in range(0, len(order), size)]


def run_batches(batches: Sequence[Sequence[int]], work: Callable[[list[int]], None]) -> None:
    """Do `work` on every batch of rows; one that the device has no memory for is halved and tried again."""
    queue = [list(rows) for rows in reversed(batches)]
    while queue:
        rows = queue.pop()
        try:
            work(rows)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            if len(rows) == 1:
                raise InputError("a single example doesn't fit into the device's memory; try --device cpu") from None
            half = len(rows) // 2
            queue += [rows[half:], rows[:half]]


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; a CPU's allocator says so in words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
