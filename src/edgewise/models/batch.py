"""Examples as tensors: padded batches of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import InputError
from ..tasks.task import Example


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of similar length, padded.

    clean, corrupted  [example, position] tokens; padding holds token 0
    real              [example, position] False for padding
    last              [example, read] the positions that the metric reads: one, or one per token of the longest answers
    answers           [example * read, 2] correct, incorrect; twice the same where the read is of one answer only
    right             [example * read, answer] all answers that count as correct; rows are filled up with the first
    wrong             [example * read, answer] all incorrect answers, in the same way
    shared            the number of leading positions, padding included, that the two prompts of every example share
    counted           [example, read] False for reads beyond an example's correct answer; None if all examples have one
    sides             [example * read, 2] 1 for reads of the correct, and of the incorrect answer; None with `counted`
    spans             [example, position] the index of the span of each position, -1 for padding; None without spans
    n_spans           the number of spans
    branch            [example, position] 1 for tokens of the correct answer, 2 for those of the incorrect answer, which
                      don't see the former, 0 for others; None if no incorrect answer has several tokens
    """

    clean: Tensor
    corrupted: Tensor
    real: Tensor
    last: Tensor
    answers: Tensor
    right: Tensor
    wrong: Tensor
    shared: int
    counted: Tensor | None = None
    sides: Tensor | None = None
    spans: Tensor | None = None
    n_spans: int = 0
    branch: Tensor | None = None


def make_batch(examples: Sequence[Example], device: torch.device, pad: str = "left") -> Batch:
    """Return a batch of examples, padded on the 'left' or the 'right'. The side of the padding changes no result.

    Padding on the left is faster. The number of tokens after the first difference varies less than the position of the
    first difference, so prompts that end together share a longer prefix than prompts that begin together.
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
    shared = min(stop - _unshared_length(example) for stop, example in zip(stops, examples, strict=True))
    n_reads = max(example.n_reads for example in examples)
    last, right, wrong, counted, sides = [], [], [], [], []
    branch = torch.zeros((len(examples), width), dtype=torch.long)
    for index, (stop, example) in enumerate(zip(stops, examples, strict=True)):
        read = range(stop - example.n_reads, stop)
        # Reads that aren't counted have positions of their own, because gradients at equal positions would be lost.
        last.append([*read, *(at for at in range(width - 1, -1, -1) if at not in read)][:n_reads])
        own, other, n_rest = example.continuation, example.other_continuation, n_reads - example.n_reads
        tokens = (example.correct, *own, *other, *[example.correct] * n_rest)
        right += [(token, *example.also_correct) for token in tokens]
        first = example.correct if example.incorrect is None else example.incorrect
        wrong += [(token, *example.also_incorrect) for token in (first, *tokens[1:])]
        counted.append([True] * (1 + len(own)) + [False] * (len(other) + n_rest))
        sides += [(1, int(example.incorrect is not None)), *[(1, 0)] * len(own), *[(0, 1)] * len(other)]
        sides += [(0, 0)] * n_rest
        branch[index, stop - len(own) - len(other) : stop], branch[index, stop - len(other) : stop] = 1, 2
    answers = torch.tensor([(correct, incorrect) for (correct, *_), (incorrect, *_) in zip(right, wrong, strict=True)])
    tensors = (clean, corrupted, real, torch.tensor(last), answers, _fill_rows(right), _fill_rows(wrong))
    clean, corrupted, real, reads, answers, right_tokens, wrong_tokens = (x.to(device) for x in tensors)
    batch = Batch(clean, corrupted, real, reads, answers, right_tokens, wrong_tokens, shared)
    if n_reads > 1:
        batch = replace(batch, counted=torch.tensor(counted).to(device), sides=torch.tensor(sides).to(device))
    if any(example.other_continuation for example in examples):
        batch = replace(batch, branch=branch.to(device))
    if not all(example.span_names for example in examples):
        return batch
    return replace(batch, spans=span_indices(examples, batch), n_spans=len(examples[0].span_names))


def _fill_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the distinct tokens of each row as a tensor; shorter rows are filled up with their first token."""
    distinct = [list(dict.fromkeys(row)) for row in rows]
    width = max(map(len, distinct))
    return torch.tensor([row + row[:1] * (width - len(row)) for row in distinct])


def span_indices(examples: Sequence[Example], batch: Batch) -> Tensor:
    """Return [example, position] the index in `Task.span_names` of the span of each position; -1 for padding.

    `examples` are those that the batch was made of, in the same order. All have the spans of one task.
    """
    if not all(example.span_names for example in examples):
        raise InputError("examples have no spans; name spans in the task's prompts, or use spans='token'")
    spans = torch.full(batch.real.shape, -1)
    # Rows of a mask are read in order, and padding is outside it, so this fits padding on either side.
    spans[batch.real.cpu()] = torch.tensor([index for example in examples for index in example.span_indices])
    return spans.to(batch.real.device)


def _unshared_length(example: Example) -> int:
    """Return how many tokens follow the shared prefix: at least those that the metric reads."""
    return max(example.n_reads, example.length - example.shared_prefix)


def plan_batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """Return the rows of `examples` in batches of at most `size`.

    Examples of a batch are similar in length and in the number of tokens after their first difference, so that little
    time is spent on padding.
    """
    if size < 1:
        raise InputError(f"the batch size must be at least 1, not {size}")
    order = sorted(range(len(examples)), key=lambda row: (_unshared_length(examples[row]), examples[row].length, row))
    return [order[first : first + size] for first in range(0, len(order), size)]
