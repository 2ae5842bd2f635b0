"""Batches: padded examples, prepared for runs, and everything that scorers, learners and evaluation do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..core.circuit import Circuit
from ..errors import InputError
from ..graph import BaseGraph, NodeGraph, SpanGraph, graph_of_level
from ..tasks.metrics import Readout
from ..tasks.task import Example
from .circuits import number_nodes, run_circuits
from .forward import NOTHING, Frame, Replaced, Trace, keys_and_values, make_frame, run
from .gradients import (
    Gradients,
    Segments,
    Sources,
    contract,
    layer_targets,
    norm_heads,
    post_norm_slopes,
    stack_sources,
    to_gradients,
)
from .memory import BUDGET, can_keep_streams, group_circuits
from .rules import NO_RULES, BackwardRules
from .transformer import Transformer, at_least_float32, soft_cap
from .weighted import run_weighted

T = TypeVar("T")
# A half-precision unembedding is converted to float32 in blocks of this many tokens.
TOKENS_AT_ONCE = 8192


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


def make_batch(examples: Sequence[Example], device: torch.device) -> Batch:
    """Return a batch of examples, padded on the left.

    The number of tokens after the first difference varies less than the position of the first difference, so prompts
    that end together share a longer prefix than prompts that begin together.
    """
    width = max(example.length for example in examples)
    clean, corrupted = torch.zeros((2, len(examples), width), dtype=torch.long)
    real = torch.zeros((len(examples), width), dtype=torch.bool)
    for index, example in enumerate(examples):
        start = width - example.length
        clean[index, start:], corrupted[index, start:] = torch.tensor(example.clean), torch.tensor(example.corrupted)
        real[index, start:] = True
    shared = width - max(map(_unshared_length, examples))
    n_reads = max(example.n_reads for example in examples)
    last, right, wrong, counted, sides = [], [], [], [], []
    branch = torch.zeros((len(examples), width), dtype=torch.long)
    for index, example in enumerate(examples):
        read = range(width - example.n_reads, width)
        # Reads that aren't counted have positions of their own, because gradients at equal positions would be lost.
        last.append([*read, *reversed(range(read.start))][:n_reads])
        own, other, n_rest = example.continuation, example.other_continuation, n_reads - example.n_reads
        tokens = (example.correct, *own, *other, *[example.correct] * n_rest)
        right += [(token, *example.also_correct) for token in tokens]
        first = example.correct if example.incorrect is None else example.incorrect
        wrong += [(token, *example.also_incorrect) for token in (first, *tokens[1:])]
        counted.append([True] * (1 + len(own)) + [False] * (len(other) + n_rest))
        sides += [(1, int(example.incorrect is not None)), *[(1, 0)] * len(own), *[(0, 1)] * len(other)]
        sides += [(0, 0)] * n_rest
        branch[index, width - len(own) - len(other) :], branch[index, width - len(other) :] = 1, 2
    answers = torch.tensor([(correct, incorrect) for (correct, *_), (incorrect, *_) in zip(right, wrong, strict=True)])
    tensors = (clean, corrupted, real, torch.tensor(last), answers, _fill_rows(right), _fill_rows(wrong))
    clean, corrupted, real, reads, answers, right_tokens, wrong_tokens = (x.to(device) for x in tensors)
    batch = Batch(clean, corrupted, real, reads, answers, right_tokens, wrong_tokens, shared)
    if n_reads > 1:
        batch = replace(batch, counted=torch.tensor(counted).to(device), sides=torch.tensor(sides).to(device))
    if any(example.other_continuation for example in examples):
        batch = replace(batch, branch=branch.to(device))
    if all(example.span_names for example in examples):
        spans = torch.full(real.shape, -1)
        # Rows of a mask are read in order, and padding is outside it.
        spans[real.cpu()] = torch.tensor([index for example in examples for index in example.span_indices])
        batch = replace(batch, spans=spans.to(device), n_spans=len(examples[0].span_names))
    return batch


def _fill_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the distinct tokens of each row as a tensor; shorter rows are filled up with their first token."""
    distinct = [list(dict.fromkeys(row)) for row in rows]
    width = max(map(len, distinct))
    return torch.tensor([row + row[:1] * (width - len(row)) for row in distinct])


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


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch, ready to run.

    clean, corrupted  [example, position, d_model] outputs of the node `input`
    last              [example, read] the positions that the metric reads, counted from the first position that runs
    batch             the tokens and answers
    by_span           whether scores and weights are those of (edge, span) pairs
    level             whether scores are those of edges, nodes or neurons
    """

    model: Transformer
    frame: Frame
    clean: Tensor
    corrupted: Tensor
    last: Tensor
    batch: Batch
    by_span: bool = False
    level: str = "edge"

    @cached_property
    def graph(self) -> BaseGraph:
        """What is scored: edges, nodes or neurons; for (edge, span) pairs, the plain graph."""
        return graph_of_level(self.model.graph, self.level)

    @property
    def spans(self) -> Tensor | None:
        """[example, position] The index of the span of each position that runs, -1 for padding; None without spans."""
        return None if self.batch.spans is None else self.batch.spans[:, -self.clean.shape[1] :]

    @cached_property
    def segments(self) -> Segments | None:
        """The positions by span, for scores of (edge, span) pairs; None for scores of edges."""
        if not self.by_span:
            return None
        assert self.spans is not None
        rows: dict[tuple[int, int, int], list[int]] = {}
        for row, indices in enumerate(self.spans.tolist()):
            for span, group in groupby(range(len(indices)), indices.__getitem__):
                positions = list(group)
                if span >= 0:  # no padding
                    rows.setdefault((positions[0], positions[-1] + 1, span), []).append(row)
        segments = (
            (slice(start, stop), span, None if len(examples) == len(self.spans) else examples)
            for (start, stop, span), examples in rows.items()
        )
        return self.batch.n_spans, tuple(segments)

    def run(
        self,
        embedding: Tensor,
        rules: BackwardRules = NO_RULES,
        mix: Replaced = NOTHING,
        mlp_out: Replaced = NOTHING,
    ) -> Trace:
        """Run the model from an output of the node `input`. Gradients are recorded if `embedding` requires them.

        rules         changes of the gradient; `gradients` and `read_out` of the run follow them, too
        mix, mlp_out  by layer, outputs of its heads and its MLP, as in `Trace`, that replace those of the run
        """
        return run(self.model, embedding, self.frame, rules, mix, mlp_out)

    def run_from_sources(self, embedding: Tensor, mix: Sequence[Tensor], mlp_out: Sequence[Tensor]) -> Trace:
        """Return the trace of a run in which every source has a fixed output, whatever it reads.

        mix      per layer, [example, position, head, d_head] each head's output before the output projection
        mlp_out  per layer, [example, position, d_model]
        """
        devices = [layer.device for layer in self.model.layers]
        heads, mlps = ({layer: part[layer].to(d) for layer, d in enumerate(devices)} for part in (mix, mlp_out))
        return self.run(embedding, mix=heads, mlp_out=mlps)

    def run_circuits(self, circuits: Sequence[Circuit], reference: Trace, memory: int = BUDGET) -> Iterator[Tensor]:
        """Yield the final stream [example * read, d_model] of each pruned circuit of one graph, for `read_stream`.

        Several run together: as many as fit into `memory` bytes with the clean and the reference run.
        """
        numbers = number_nodes(circuits) if circuits else np.empty((0, 1), np.intp)
        n_examples, length, _ = self.clean.shape
        for start, stop, at_once in group_circuits(self.model.shape, numbers, n_examples, length, memory):
            group, inputs = (circuits[start:stop], numbers[start:stop], at_once), (self.clean, reference)
            spans = self.spans if isinstance(circuits[0].graph, SpanGraph) else None
            yield from run_circuits(self.model, *group, *inputs, self.frame, self.last, spans)

    def run_weighted(self, weights: Tensor, reference: Trace, keep_streams: bool | None = None) -> Tensor:
        """Return the final stream [example * read, d_model] of a circuit with weights on its edges, for `read_stream`.

        weights       [edge] or [group, edge], see `weighted.run_weighted`; of a batch `by_span`, those of pairs.
                      Gradients are recorded if they require them
        keep_streams  see `weighted.run_weighted`; None keeps streams if they are small enough
        """
        if keep_streams is None:
            keep_streams = can_keep_streams(self.model.shape, self.clean.shape[1])
        spans = self.spans if self.by_span else None
        return run_weighted(self.model, weights, self.clean, reference, self.frame, self.last, keep_streams, spans)

    def read_out(self, trace: Trace, all_logits: bool) -> Readout:
        """Return the logits of a run at the positions that the metric reads: those of the answers, or all."""
        rows = torch.arange(len(self.last), device=self.last.device)[:, None]
        return self.read_stream(trace.final[rows, self.last].flatten(0, 1), all_logits, trace.rules)

    def read_stream(self, stream: Tensor, all_logits: bool, rules: BackwardRules = NO_RULES) -> Readout:
        """Return the logits for the final stream [example * read, d_model] at the positions that the metric reads.

        Logits are at least float32, because metrics are small differences of large logits.
        """
        model, batch, answers = self.model, self.batch, self.batch.answers
        rest = {"wrong": batch.wrong, "counted": batch.counted, "sides": batch.sides}
        device, unembed_device = answers.device, model.unembed.device
        y = model.final_norm(at_least_float32(stream).to(model.final_norm.weight.device), rules).to(unembed_device)
        if all_logits:
            if model.unembed.dtype == y.dtype:
                logits = y @ model.unembed.T
            else:  # converted in blocks, again in the backward pass, so that no full copy of the unembedding is kept

                def multiply(y: Tensor, part: Tensor) -> Tensor:
                    return y @ part.to(y.dtype).T

                parts = model.unembed.split(TOKENS_AT_ONCE)
                logits = torch.cat([checkpoint(multiply, y, part, use_reentrant=False) for part in parts], 1)
            logits = logits if model.unembed_bias is None else logits + model.unembed_bias
            logits = soft_cap(logits, model.logit_cap).to(device)
            return Readout(answers, logits.gather(1, answers), batch.right, logits, **rest)
        tokens = answers.to(unembed_device)
        answer_logits = (at_least_float32(model.unembed[tokens]) @ y.unsqueeze(-1)).squeeze(-1)
        if model.unembed_bias is not None:
            answer_logits = answer_logits + model.unembed_bias[tokens]
        return Readout(answers, soft_cap(answer_logits, model.logit_cap).to(device), batch.right, **rest)

    def gradients(self, trace: Trace, loss: Tensor) -> Gradients:
        """Return the gradient of `loss`, a sum over examples, at every destination of a run."""
        targets = [*layer_targets(trace, self.model.graph.n_layers), trace.final]
        *at_layers, logits = torch.autograd.grad(loss, targets, materialize_grads=True)
        return to_gradients(self.model, trace, at_layers, logits)

    def dropped_layer_gradients(self, trace: Trace, loss: Tensor) -> Iterator[Gradients]:
        """Yield the gradients of `loss` at all destinations, then those before each layer but the first, last first.

        The latter are the gradients at the destinations of earlier layers if no gradient reaches this layer's outputs,
        so that it passes the stream's gradient on unchanged. At the layer itself they are 0, and in later layers
        unchanged.
        """
        n_layers = self.model.graph.n_layers
        targets = [*layer_targets(trace, n_layers), trace.final, *trace.attention_in[1:]]
        gradients = torch.autograd.grad(loss, targets, materialize_grads=True, retain_graph=True)
        logits = gradients[4 * n_layers]
        at_streams = [*gradients[4 * n_layers + 1 :], logits]  # after each layer
        yield to_gradients(self.model, trace, gradients[: 4 * n_layers], logits)
        del gradients, logits
        for index in reversed(range(1, n_layers)):
            stream = trace.attention_in[index]
            gradient = at_streams.pop().to(stream.device)
            at_layers = torch.autograd.grad(
                stream, layer_targets(trace, index), gradient, retain_graph=index > 1, materialize_grads=True
            )
            yield to_gradients(self.model, trace, at_layers, None)

    def sources(self, trace: Trace) -> Sources:
        """Return what every source adds to the stream in a run.

        A norm after attention divides all heads by the same scale, so each head adds a part of its own.
        """
        slopes = post_norm_slopes(self.model, trace, detach_scales=True)
        return norm_heads(self.model, stack_sources(self.model, trace), slopes)

    def differences(self, clean: Trace, corrupted: Trace) -> Sources:
        """Return each source's output in the corrupted run minus that in the clean run, before any norm after it."""
        return stack_sources(self.model, corrupted, clean)

    def contract(self, differences: Sources, runs: Iterable[Gradients]) -> Tensor:
        """Return the scores [example, edge]: source difference times destination gradient, the mean over runs.

        By span, they are [example, pair], `edge * n_spans + span`. Of nodes or neurons, they are output differences
        times gradients at outputs. See `gradients.contract`.
        """
        return contract(self.model, differences, runs, self.graph, self.segments)

    def sum_edges(self, values: Tensor) -> Tensor:
        """Return values [example, edge] as they are, or for nodes [example, node] the sums over their out-edges."""
        if not isinstance(self.graph, NodeGraph):
            return values
        sources = torch.tensor(self.model.graph.edge_source, dtype=torch.int64, device=values.device)
        return values.new_zeros((len(values), self.graph.n_edges)).index_add_(1, sources, values)

    def repeat(self, times: int) -> Prepared:
        """Return the batch with all its examples repeated, so that several circuits run on them at once."""
        parts = {name: getattr(self, name) for name in ("frame", "clean", "corrupted", "last", "batch")}
        return replace(self, **{name: repeat_rows(part, times) for name, part in parts.items()})

    def with_all_positions(self) -> Prepared:
        """Return the batch without a shared prefix, so that runs have all positions."""
        if self.frame.past is None:
            return self
        return prepare(self.model, self.batch, share_prefix=False, by_span=self.by_span, level=self.level)


def repeat_rows(value: T, times: int) -> T:
    """Return a tensor with its rows repeated as a whole; of a tuple, dict or dataclass, all its tensors."""
    result: Any = value
    if times > 1:
        if isinstance(value, Tensor):
            result = value.repeat(times, *[1] * (value.ndim - 1))
        elif isinstance(value, tuple):
            result = tuple(repeat_rows(part, times) for part in value)
        elif isinstance(value, dict):
            result = {key: repeat_rows(part, times) for key, part in value.items()}
        elif is_dataclass(value):
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            result = replace(value, **repeat_rows(parts, times))  # type: ignore[type-var]
    return result  # type: ignore[no-any-return]


def prepare(
    model: Transformer, batch: Batch, share_prefix: bool = True, by_span: bool = False, level: str = "edge"
) -> Prepared:
    """Prepare a batch for runs. `by_span` and `level` say what is scored.

    Attention is causal, so all runs (clean, corrupted, interpolated, patched) have the same activations before the
    first token in which the prompts differ. With `share_prefix` these positions run once, and later positions read
    their keys and values. With `by_span`, scores are those of (edge, span) pairs.
    """
    first = batch.shared if share_prefix else 0
    with torch.no_grad():
        past = None
        if first:
            prefix = make_frame(model, batch.real[:, :first])
            past = keys_and_values(model, run(model, model.embed(batch.clean[:, :first]), prefix), prefix)
        frame = make_frame(model, batch.real, batch.branch, first, past)
        clean, corrupted = (model.embed(tokens[:, first:]) for tokens in (batch.clean, batch.corrupted))
    return Prepared(model, frame, clean, corrupted, batch.last - first, batch, by_span, level)
