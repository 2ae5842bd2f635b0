"""Examples as tensors: padded batches of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..tasks.task import Example
from .memory import Need, as_bytes, batch_size_for


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of similar length, padded.

    clean, corrupted  [example, position] tokens; padding holds token 0
    real              [example, position] False for padding
    last              [example] the position that the metric reads
    answers           [example, 2] correct, incorrect
    right             [example, any] the answers that count as right, the correct one first, which fills up rows
    shared            how many leading positions the two prompts of every example share, padding included
    """

    clean: Tensor
    corrupted: Tensor
    real: Tensor
    last: Tensor
    answers: Tensor
    right: Tensor
    shared: int


def make_batch(examples: Sequence[Example], device: torch.device, pad: str = "left") -> Batch:
    """A batch of examples, padded on the 'right' or the 'left'. The padding changes no result.

    On the left it costs least: prompts that end together share a longer prefix, padding and all, than those that begin
    together, for how much follows the first difference varies less than where it is.
    """
    width = max(example.length for example in examples)
    starts = [0 if pad == "right" else width - example.length for example in examples]
    stops = [start + example.length for start, example in zip(starts, examples, strict=True)]
    clean, corrupted = torch.zeros((2, len(examples), width), dtype=torch.long)
    real = torch.zeros((len(examples), width), dtype=torch.bool)
    for index, example in enumerate(examples):
        span = slice(starts[index], stops[index])
        clean[index, span], corrupted[index, span] = torch.tensor(example.clean), torch.tensor(example.corrupted)
        real[index, span] = True
    last = torch.tensor(stops) - 1
    shared = min(stop - _apart(example) for stop, example in zip(stops, examples, strict=True))
    answers = torch.tensor([[example.correct, example.incorrect] for example in examples])
    most = max(len(example.also_correct) for example in examples)
    right = torch.tensor([[e.correct, *e.also_correct, *[e.correct] * (most - len(e.also_correct))] for e in examples])
    parts = (clean, corrupted, real, last, answers, right)
    clean, corrupted, real, last, answers, right = (part.to(device) for part in parts)
    return Batch(clean, corrupted, real, last, answers, right, shared)


def _apart(example: Example) -> int:
    """How many tokens follow what the two prompts share; the last is one of them, because the metric reads it."""
    return max(1, example.length - example.shared_prefix)


def choose_batch_size(asked: int | None, need: Need, memory: int | str) -> int:
    """How many examples run at once: as many as asked for, or as fit into `memory`, bytes or text such as '2GB'."""
    if asked is not None:
        return asked
    return batch_size_for(need, as_bytes(memory))


def plan_batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """Rows in batches of at most `size`, alike in how much follows their first difference, and in length, so that
    little runs in vain."""
    if size < 1:
        raise InputError(f"the batch size must be at least 1, not {size}")
    order = sorted(range(len(examples)), key=lambda row: (_apart(examples[row]), examples[row].length, row))
    return [order[first : first + size] for first in range(0, len(order), size)]
