"""Examples as tensors: padded batches of similar length."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ..errors import InputError
from ..graph import Graph
from ..tasks.task import Example
from .memory import Need, batch_size_for, parse_bytes

NARROW = 256


class HasGraph(Protocol):
    """A model, as far as it matters here."""

    @property
    def graph(self) -> Graph: ...


M = TypeVar("M", bound=HasGraph)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of similar length, padded.

    clean, corrupted  [example, position] tokens; padding holds token 0
    real              [example, position] False for padding
    last              [example] the position that the metric reads
    answers           [example, 2] correct, incorrect
    right             [example, any] the answers that count as right, the correct one first, which fills up rows
    shared            how many leading positions the two prompts of every example share
    """

    clean: Tensor
    corrupted: Tensor
    real: Tensor
    last: Tensor
    answers: Tensor
    right: Tensor
    shared: int


def make_batch(examples: Sequence[Example], device: torch.device, pad: str = "right") -> Batch:
    """A batch of examples, padded on the 'right' or the 'left'. The padding changes no result."""
    width = max(example.length for example in examples)
    clean, corrupted = torch.zeros((2, len(examples), width), dtype=torch.long)
    real = torch.zeros((len(examples), width), dtype=torch.bool)
    for index, example in enumerate(examples):
        span = slice(0, example.length) if pad == "right" else slice(width - example.length, width)
        clean[index, span], corrupted[index, span] = torch.tensor(example.clean), torch.tensor(example.corrupted)
        real[index, span] = True
    last = torch.tensor([example.length - 1 if pad == "right" else width - 1 for example in examples])
    # The last position is always run: the metric reads it. Left padding shifts prefixes apart.
    shared = min(min(example.shared_prefix, example.length - 1) for example in examples) if pad == "right" else 0
    answers = torch.tensor([[example.correct, example.incorrect] for example in examples])
    most = max(len(example.also_correct) for example in examples)
    right = torch.tensor([[e.correct, *e.also_correct, *[e.correct] * (most - len(e.also_correct))] for e in examples])
    parts = (clean, corrupted, real, last, answers, right)
    clean, corrupted, real, last, answers, right = (part.to(device) for part in parts)
    return Batch(clean, corrupted, real, last, answers, right, shared)


def choose_batch_size(asked: int | None, need: Need, memory: int | str) -> int:
    """How many examples run at once: as many as asked for, or as fit into `memory`, bytes or text such as '2GB'."""
    if asked is not None:
        return asked
    return batch_size_for(need, parse_bytes(memory) if isinstance(memory, str) else memory)


def plan_batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """Rows in batches of at most `size`, alike in length and in shared prefix, so that little runs in vain."""
    if size < 1:
        raise InputError(f"the batch size must be at least 1, not {size}")
    order = sorted(range(len(examples)), key=lambda row: (examples[row].length, examples[row].shared_prefix, row))
    return [order[first : first + size] for first in range(0, len(order), size)]


def run_batches(
    model: M, examples: Sequence[Example], batches: Sequence[Sequence[int]], job: Callable[[M, Sequence[Example]], T]
) -> Iterator[tuple[list[int], T]]:
    """The rows of every batch and what `job` makes of their examples, in order.

    A job is pure: it looks at nothing but what it is given and changes nothing, so it can be run again, or elsewhere.
    A batch that the device has no memory for is halved and tried again.
    """
    queue = [list(rows) for rows in reversed(batches)]
    while queue:
        rows = queue.pop()
        try:
            with few_threads(model):
                done = job(model, [examples[row] for row in rows])
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            if len(rows) == 1:
                raise InputError("a single example doesn't fit into the device's memory; try --device cpu") from None
            half = len(rows) // 2
            queue += [rows[half:], rows[:half]]
        else:
            yield rows, done


def thread_count() -> int:
    """How many threads a wide model runs with here: sums over other numbers of parts round otherwise."""
    return torch.get_num_threads()


@contextmanager
def few_threads(model: HasGraph) -> Iterator[None]:
    """One thread for a narrow model: for tensors this small, threads spend their time waiting for each other.

    Who sets OMP_NUM_THREADS has chosen already.
    """
    before = torch.get_num_threads()
    if model.graph.d_model > NARROW or before == 1 or "OMP_NUM_THREADS" in os.environ:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; a CPU's allocator says so in words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
