"""The outputs of sources, their differences between two runs, and the products of these with gradients.

The products are the scores of all edges, nodes or neurons at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graph import BaseGraph, NodeGraph
from .forward import Trace
from .gradients import Gradients, NormSlope, stream_gradient, sum_gradients, summed_stream_gradient
from .transformer import Transformer, at_least_float32

# A range of positions, the span of tokens that they belong to, and the examples of which this is true; None for all.
Segment = tuple[slice, int, Sequence[int] | None]


@dataclass(frozen=True, eq=False)
class Sources:
    """A vector per source and position, at least float32.

    parts  [batch, source, position, d_model] consecutive sources; one part per range of layers on one device
    """

    parts: tuple[Tensor, ...]

    def view(self, first: int, count: int) -> Tensor:
        """Return a view [batch, source, position, d_model] of `count` sources, all in one part."""
        for part in self.parts:
            if first < part.shape[1]:
                return part[:, first : first + count]
            first -= part.shape[1]
        raise IndexError(f"there is no source {first} after the last one")


def norm_heads(model: Transformer, sources: Sources, post_norms: Sequence[NormSlope]) -> Sources:
    """Return changes of sources with those of heads after the norm that follows attention, to first order."""
    if not post_norms:
        return sources
    normed, n_heads = Sources(tuple(part.clone() for part in sources.parts)), model.graph.n_heads
    for index, slope in enumerate(post_norms):
        first = model.graph.attention_sources(index)
        normed.view(first, n_heads)[:] = slope.times(sources.view(first, n_heads))
    return normed


def stack_sources(model: Transformer, trace: Trace, minus: Trace | None = None) -> Sources:
    """Return the outputs of all sources of a run, minus those of another run, before any norm after attention."""

    def read(name: str, index: int | slice) -> Tensor:
        values = at_least_float32(getattr(trace, name)[index])
        # The runs are similar, so a half-precision difference would have few digits.
        return values if minus is None else values - at_least_float32(getattr(minus, name)[index])

    graph, (batch, length, width) = model.graph, trace.embedding.shape
    with torch.no_grad():
        embedding = read("embedding", slice(None))
        counts = [len(span) * (graph.n_heads + 1) for span in model.spans]
        counts[0] += 1  # `input`
        parts = [
            embedding.new_empty((batch, count, length, width), device=model.layers[span.start].device)
            for count, span in zip(counts, model.spans, strict=True)
        ]
        sources = Sources(tuple(parts))
        sources.view(0, 1)[:, 0] = embedding
        for index, layer in enumerate(model.layers):
            heads = torch.einsum("bphe,dhe->bhpd", read("mix", index), at_least_float32(layer.out))
            sources.view(graph.attention_sources(index), graph.n_heads)[:] = heads
            sources.view(graph.mlp_source(index), 1)[:, 0] = read("mlp_out", index)
    return sources


@dataclass(frozen=True, eq=False)
class Segments:
    """The positions of a batch by the span of tokens that they belong to.

    n_spans  the number of spans
    parts    ranges of adjacent positions of one span; padding is in none
    """

    n_spans: int
    parts: tuple[Segment, ...]


def find_segments(spans: Tensor, n_spans: int) -> Segments:
    """Return the segments of a batch with these spans [batch, position]; -1 stands for padding."""
    rows: dict[tuple[int, int, int], list[int]] = {}
    for row, indices in enumerate(spans.tolist()):
        for span, run in itertools.groupby(range(len(indices)), indices.__getitem__):
            positions = list(run)
            if span >= 0:
                rows.setdefault((positions[0], positions[-1] + 1, span), []).append(row)
    return Segments(
        n_spans,
        tuple(
            (slice(start, stop), span, None if len(examples) == len(spans) else examples)
            for (start, stop, span), examples in rows.items()
        ),
    )


def contract(
    model: Transformer,
    differences: Sources,
    runs: Iterable[Gradients],
    graph: BaseGraph,
    segments: Segments | None = None,
) -> Tensor:
    """Return the scores [batch, edge of `graph`], the mean over runs.

    Of edges, they are source difference times destination gradient, summed over positions. With `segments`, positions
    are summed by span: the scores are [batch, pair] of (edge, span) pairs.

    Of nodes, they are output difference times gradient at the output. The gradient at a node's output is the sum of the
    gradients at all destinations that read it. So a node's score is the sum of the scores of its out-edges. Of neurons,
    the terms of the product's sum over d_model are kept apart. If a norm follows attention, the output of a head is
    what it adds before the norm, and the gradient passes the norm.

    A generator of runs needs the memory of one run and of their sum.
    """

    def score(run: Gradients) -> Tensor:
        if isinstance(graph, NodeGraph):
            return _output_scores(model, differences, run, by_dimension=graph.width > 1)
        return _edge_scores(model, norm_heads(model, differences, run.post_norms), run, segments)

    # Scores are linear in the gradients, so these are summed first. But if a norm follows attention, a head's
    # difference reaches its readers through a linear map that differs between runs, so each run has its own scores.
    if not model.has_post_norm:
        summed, count = sum_gradients(runs)
        return score(summed).div_(count).flatten(1)
    total, count = torch.zeros((), device=model.device), 0
    for run in runs:
        total = total + score(run)
        count += 1
    return (total / count).flatten(1)


def _edge_scores(model: Transformer, differences: Sources, gradients: Gradients, segments: Segments | None) -> Tensor:
    """Return the products [batch, edge] of differences with gradients; [batch, pair] with segments."""
    graph, first_part = model.graph, differences.parts[0]
    shape = (len(first_part), graph.n_edges, 1 if segments is None else segments.n_spans)
    scores = first_part.new_zeros(shape)
    with torch.no_grad():
        for index, (attention, mlp) in enumerate(zip(gradients.attention, gradients.mlp, strict=True)):
            attention_block, mlp_block = graph.blocks[2 * index : 2 * index + 2]
            at_stream = stream_gradient(model.layers[index], attention)
            block = _multiply_sources(differences, graph.attention_sources(index), at_stream, segments)
            del at_stream  # free it before the next layer's, which is as large
            # [source, (qkv, head), span] -> [source, head, qkv, span], the order of edges
            scores[:, attention_block] = block.unflatten(2, (3, graph.n_heads)).transpose(2, 3).flatten(1, 3)
            block = _multiply_sources(differences, graph.mlp_sources(index), mlp.unsqueeze(1), segments)
            scores[:, mlp_block] = block.squeeze(2)
        if gradients.logits is not None:
            block = _multiply_sources(differences, graph.n_sources, gradients.logits.unsqueeze(1), segments)
            scores[:, graph.blocks[-1]] = block.squeeze(2)
    return scores.flatten(1)


def _multiply_sources(differences: Sources, n_sources: int, gradient: Tensor, segments: Segments | None) -> Tensor:
    """Return the products [batch, source, reader, span] with gradients [batch, reader, position, d_model].

    Without segments, there is one span of all positions. Gradients are moved to the device of the differences, which
    are larger.
    """
    blocks = []
    for part in differences.parts:
        if n_sources > 0:
            sources, moved = part[:, :n_sources], gradient.to(part.device)
            if segments is None:
                products = (sources.flatten(2) @ moved.flatten(2).transpose(1, 2)).unsqueeze(-1)
            else:
                products = _multiply_segments(sources, moved, segments)
            blocks.append(products.to(differences.parts[0].device))
        n_sources -= part.shape[1]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)


def _multiply_segments(sources: Tensor, gradient: Tensor, segments: Segments) -> Tensor:
    """Return the products [batch, source, reader, span] by span.

    Adjacent positions of an example are one matrix without a copy, so all spans together cost as much as one product
    over all positions.
    """
    shape = (len(sources), segments.n_spans, sources.shape[1], gradient.shape[1])
    products = sources.new_zeros(shape)
    for positions, span, rows in segments.parts:
        if rows is None:
            reads = gradient[:, :, positions].flatten(2).transpose(1, 2)
            products[:, span].baddbmm_(sources[:, :, positions].flatten(2), reads)
        else:
            for row in rows:
                reads = gradient[row, :, positions].flatten(1).T
                products[row, span].addmm_(sources[row, :, positions].flatten(1), reads)
    return products.permute(0, 2, 3, 1)


def _output_scores(model: Transformer, differences: Sources, gradients: Gradients, by_dimension: bool) -> Tensor:
    """Return the products [batch, source], or with `by_dimension` [batch, source, d_model]."""
    first_part = differences.parts[0]
    shape = (len(first_part), model.graph.n_sources) + (model.graph.d_model,) * by_dimension
    scores = first_part.new_zeros(shape)
    equation = "bspd,bpd->bsd" if by_dimension else "bspd,bpd->bs"
    with torch.no_grad():
        for first, count, gradient in _output_gradients(model, gradients):
            outputs = differences.view(first, count)
            products = torch.einsum(equation, outputs, gradient.to(outputs.device))
            scores[:, first : first + count] = products.to(scores.device)
    return scores


def _output_gradients(model: Transformer, gradients: Gradients) -> Iterator[tuple[int, int, Tensor]]:
    """Yield (first source, number of sources, the gradient [batch, position, d_model] at the output of each).

    It walks down the stream, from the logits to `input`, and adds the gradient of every destination that it passes.
    """
    graph, stream = model.graph, gradients.logits
    assert stream is not None
    for index in reversed(range(graph.n_layers)):
        yield graph.mlp_source(index), 1, stream
        at_mlp = gradients.mlp[index]
        stream = stream.to(at_mlp.device)
        at_heads = stream if graph.parallel else stream + at_mlp
        if gradients.post_norms:
            at_heads = gradients.post_norms[index].transposed_times(at_heads.unsqueeze(1)).squeeze(1)
        yield graph.attention_sources(index), graph.n_heads, at_heads
        stream = stream + at_mlp + summed_stream_gradient(model.layers[index], gradients.attention[index])
    yield 0, 1, stream
