"""The gradient of a loss at the input of every destination, and its products with differences of sources: the scores.

A destination reads the residual stream. An MLP and the logits each read a view of their own, so autograd gives their
gradient. The heads of a layer all read the same stream, and a copy of it per head's q, k and v would be large. So
autograd stops at q, k and v, which are narrow ([d_head] instead of [d_model]), and the rest of the way, through the
projection and the norm, is linear algebra:

1. Let x^ be the normalised stream, 1/s the norm's inverse scale, W the projection times the norm's weight, and g the
   gradient at q. The gradient at the stream is

       (W^T g - mean(W^T g) - x^ mean(W^T g * x^)) / s            (without the first mean for an RMS norm)

2. The last mean is g . (W x^) / d_model, where W x^ is q without biases: one number per head and position.
   `AttentionGradient` holds g / s and these numbers. It is small, so the sum over runs is small, too.
3. `_stream_gradient` multiplies with W once, after that sum. The first mean vanishes if the rows of W are centred.

If a rule makes 1/s a constant, the term along x^ is left out. A norm over the outputs of all heads (OLMo-2) has the
same form: q = w W x / s with s the scale of all heads' outputs y = V x, and w the norm's weight. The gradient at the
stream is W^T (w g) / s - V^T (y / s) (g . q) / (s size of y).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import BaseGraph, NodeGraph
from .forward import Trace, sum_heads
from .transformer import Layer, Norm, Projection, Transformer, at_least_float32

# (positions, index of their span, rows of the examples that have it; None: all rows)
Segment = tuple[slice, int, Sequence[int] | None]
# (number of spans, segments). Padding is in no segment.
Segments = tuple[int, tuple[Segment, ...]]


@dataclass(frozen=True, eq=False)
class AttentionGradient:
    """The gradient at one layer's q, k and v, of one run or summed over several.

    scaled  [batch, position, 3, head, d_head] the gradient at q, k and v divided by the norm's scale
    along   per run and norm, the numbers [batch, position, 3, head] to subtract, and the direction [batch, position,
            d_model] that they multiply: the normalised stream, or what a norm over all heads depends on
    """

    scaled: Tensor
    along: tuple[tuple[Tensor, Tensor], ...]

    def __add__(self, other: AttentionGradient) -> AttentionGradient:
        # Each run has its own directions, so these are kept, not added.
        return AttentionGradient(self.scaled + other.scaled, self.along + other.along)


@dataclass(frozen=True, eq=False)
class NormSlope:
    """The derivative of a norm in one run, with an axis of length 1 for heads.

    normalised     [batch, 1, position, d_model] its normalised input; None if a rule makes its scale a constant
    inverse_scale  [batch, 1, position, 1]
    """

    norm: Norm
    normalised: Tensor | None
    inverse_scale: Tensor

    def times(self, change: Tensor) -> Tensor:
        """Return the change of the output for a change [batch, head, position, d_model] of the input."""
        return self._tangent(change) * self.inverse_scale * at_least_float32(self.norm.weight)

    def transposed_times(self, gradient: Tensor) -> Tensor:
        """Return the gradient at the input for the gradient [batch, 1, position, d_model] at the output."""
        return self._tangent(gradient * self.inverse_scale * at_least_float32(self.norm.weight))

    def _tangent(self, x: Tensor) -> Tensor:
        """Return x without the directions in which the normalised input does not change."""
        if self.norm.centred:
            x = x - x.mean(-1, keepdim=True)
        if self.normalised is not None:
            x = x - self.normalised * (x * self.normalised).mean(-1, keepdim=True)
        return x


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradient at all destinations, at least float32, of one run or summed over several.

    attention   per layer, or of the first layers only
    mlp         for the same layers, [batch, position, d_model]
    logits      [batch, position, d_model]; None if there is only the gradient at the first layers
    post_norms  per layer, the norm after attention in this run; empty if the model has none
    """

    attention: tuple[AttentionGradient, ...]
    mlp: tuple[Tensor, ...]
    logits: Tensor | None
    post_norms: tuple[NormSlope, ...]

    def without_layer(self, layer: int, before: Gradients | None = None) -> Gradients:
        """Return the gradients with 0 at a layer's destinations and those of `before` at the layers before it."""
        attention, mlp = ((), ()) if before is None else (before.attention, before.mlp)
        dropped = AttentionGradient(torch.zeros_like(self.attention[layer].scaled), ())
        return Gradients(
            (*attention, dropped, *self.attention[layer + 1 :]),
            (*mlp, torch.zeros_like(self.mlp[layer]), *self.mlp[layer + 1 :]),
            self.logits,
            self.post_norms,
        )


def layer_targets(trace: Trace, n_layers: int) -> list[Tensor]:
    """Return q, k, v and the MLP's input of each of the first layers: all destinations but the logits."""
    layers = list(zip(trace.q, trace.k, trace.v, trace.mlp_in, strict=True))[:n_layers]
    return [tensor for layer in layers for tensor in layer]


def to_gradients(model: Transformer, trace: Trace, at_layers: Sequence[Tensor], logits: Tensor | None) -> Gradients:
    """Return the gradients at destinations from those at `layer_targets` and at the final stream."""
    with torch.no_grad():
        attention = tuple(
            _attention_gradient(model.layers[index], index, trace, at_layers[4 * index : 4 * index + 3])
            for index in range(len(at_layers) // 4)
        )
    mlp = tuple(at_least_float32(gradient) for gradient in at_layers[3::4])
    last = None if logits is None else at_least_float32(logits)
    return Gradients(attention, mlp, last, post_norm_slopes(model, trace, trace.rules.detach_norm_scales))


def post_norm_slopes(model: Transformer, trace: Trace, detach_scales: bool) -> tuple[NormSlope, ...]:
    """Return the derivative of every layer's norm after attention in a run; empty if the model has none."""
    slopes = []
    with torch.no_grad():
        for layer, mix in zip(model.layers, trace.mix, strict=True):
            if layer.post_norm is not None:
                normalised, inverse_scale = layer.post_norm.normalise(sum_heads(layer, mix).unsqueeze(1))
                slopes.append(NormSlope(layer.post_norm, None if detach_scales else normalised, inverse_scale))
    return tuple(slopes)


def _attention_gradient(layer: Layer, index: int, trace: Trace, at_qkv: Sequence[Tensor]) -> AttentionGradient:
    """Return a layer's gradient from the gradients [batch, position, head, d_head] at q, k and v."""
    gradient = at_least_float32(torch.stack(list(at_qkv), 2))
    if layer.attention_norm is None:
        return _through_head_norms(layer, index, trace, gradient)
    normalised, inverse_scale = layer.attention_norm.normalise(trace.attention_in[index])
    scaled = gradient * inverse_scale[..., None, None]
    if trace.rules.detach_norm_scales:
        return AttentionGradient(scaled, ())
    # W x^ is q, k or v without the parts that come from the biases of the norm and the projection.
    offsets = [projection.offset(layer.attention_norm) for projection in layer.qkv]
    values = [at_least_float32(x) for x in (trace.q[index], trace.k[index], trace.v[index])]
    linear = [x if offset is None else x - offset for x, offset in zip(values, offsets, strict=True)]
    along = (gradient * torch.stack(linear, 2)).sum(-1) * (inverse_scale[..., None] / normalised.shape[-1])
    return AttentionGradient(scaled, ((along, normalised),))


def _through_head_norms(layer: Layer, index: int, trace: Trace, gradient: Tensor) -> AttentionGradient:
    """Return the gradient of a layer whose q and k may have norms over all heads, and whose stream is not normed.

    gradient  [batch, position, 3, head, d_head] at q, k and v after these norms
    """
    stream, scaled = at_least_float32(trace.attention_in[index]), gradient.clone()
    along = []
    for letter, (projection, values) in enumerate(zip(layer.qkv, (trace.q, trace.k, trace.v), strict=True)):
        if projection.norm is None:
            continue
        weight = at_least_float32(projection.weight).flatten(0, 1)
        bias = None if projection.bias is None else at_least_float32(projection.bias).flatten()
        outputs, inverse_scale = projection.norm.normalise(F.linear(stream, weight, bias))
        scaled[:, :, letter] *= projection.head_norm_weight * inverse_scale[..., None]
        if not trace.rules.detach_norm_scales:
            component = torch.zeros_like(gradient[..., 0])
            component[:, :, letter] = (gradient[:, :, letter] * values[index]).sum(-1) * inverse_scale
            along.append((component / outputs.shape[-1], outputs @ weight))
    return AttentionGradient(scaled, tuple(along))


def _stream_gradient(layer: Layer, gradient: AttentionGradient) -> Tensor:
    """Return the gradient [batch, (qkv, head), position, d_model] at the stream, of each reader of a layer."""
    batch, length, _, n_heads, _ = gradient.scaled.shape
    at_stream = gradient.scaled.new_empty((batch, 3, n_heads, length, layer.out.shape[0]))
    along = [torch.stack(parts, -1) for parts in zip(*gradient.along, strict=True)]
    # One projection at a time, and no name for its folded weight: copies have hundreds of megabytes for wide models.
    for letter, projection in enumerate(layer.qkv):
        at_stream[:, letter] = torch.einsum(
            "bphe,hed->bhpd", gradient.scaled[:, :, letter], _fold_centred_norm(layer, projection)
        )
        if along:
            at_stream[:, letter] -= torch.einsum("bphr,bpdr->bhpd", along[0][:, :, letter], along[1])
    return at_stream.flatten(1, 2)


def _summed_stream_gradient(layer: Layer, gradient: AttentionGradient) -> Tensor:
    """Return the gradient [batch, position, d_model] at the stream, summed over all readers of a layer."""
    total = torch.zeros((), device=gradient.scaled.device)
    for letter, projection in enumerate(layer.qkv):
        total = total + torch.einsum(
            "bphe,hed->bpd", gradient.scaled[:, :, letter], _fold_centred_norm(layer, projection)
        )
    for numbers, direction in gradient.along:
        total = total - numbers.sum((2, 3))[..., None] * direction
    return total


def _fold_centred_norm(layer: Layer, projection: Projection) -> Tensor:
    """Return a projection's weight [head, d_head, d_model] times the norm's weight, centred if the norm centres."""
    weight, norm = at_least_float32(projection.head_weight), layer.attention_norm
    if norm is None:
        return weight
    weight = weight * norm.weight
    return weight - weight.mean(-1, keepdim=True) if norm.centred else weight


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
        first = model.graph.n_attention_sources(index)
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
        counts = [len(layers) * (graph.n_heads + 1) for layers in model.device_ranges]
        counts[0] += 1  # `input`
        parts = [
            embedding.new_empty((batch, count, length, width), device=model.layers[layers.start].device)
            for count, layers in zip(counts, model.device_ranges, strict=True)
        ]
        sources = Sources(tuple(parts))
        sources.view(0, 1)[:, 0] = embedding
        for index, layer in enumerate(model.layers):
            heads = torch.einsum("bphe,dhe->bhpd", read("mix", index), at_least_float32(layer.out))
            sources.view(graph.n_attention_sources(index), graph.n_heads)[:] = heads
            sources.view(graph.mlp_source_index(index), 1)[:, 0] = read("mlp_out", index)
    return sources


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

    def scores_of(gradients: Gradients) -> Tensor:
        """Return the scores for the gradients of one run, or for their sum."""
        if isinstance(graph, NodeGraph):
            return _output_scores(model, differences, gradients, by_dimension=graph.width > 1)
        return _edge_scores(model, norm_heads(model, differences, gradients.post_norms), gradients, segments)

    # Scores are linear in the gradients, so these are summed first. But if a norm follows attention, a head's
    # difference reaches its readers through a linear map that differs between runs, so each run has its own scores.
    if not model.has_post_norm:
        sums: list[Any] = []
        count = 0
        for run in runs:
            parts = [*run.attention, *run.mlp, run.logits]
            for index in range(len(sums)):  # one by one, which frees each old sum when its new one exists
                sums[index] = sums[index] + parts[index]
            sums, count = sums or parts, count + 1
        n_layers = len(sums) // 2  # all, or the first ones
        summed = Gradients(tuple(sums[:n_layers]), tuple(sums[n_layers:-1]), sums[-1], ())
        return scores_of(summed).div_(count).flatten(1)
    total, count = torch.zeros((), device=model.device), 0
    for run in runs:
        total = total + scores_of(run)
        count += 1
    return (total / count).flatten(1)


def _edge_scores(model: Transformer, differences: Sources, gradients: Gradients, segments: Segments | None) -> Tensor:
    """Return the products [batch, edge] of differences with gradients; [batch, pair] with segments."""
    graph, first_part = model.graph, differences.parts[0]
    shape = (len(first_part), graph.n_edges, 1 if segments is None else segments[0])
    scores = first_part.new_zeros(shape)
    with torch.no_grad():
        for index, (attention, mlp) in enumerate(zip(gradients.attention, gradients.mlp, strict=True)):
            attention_block, mlp_block = graph.blocks[2 * index : 2 * index + 2]
            at_stream = _stream_gradient(model.layers[index], attention)
            block = _multiply_sources(differences, graph.n_attention_sources(index), at_stream, segments)
            del at_stream  # free it before the next layer's, which is as large
            # [source, (qkv, head), span] -> [source, head, qkv, span], the order of edges
            scores[:, attention_block] = block.unflatten(2, (3, graph.n_heads)).transpose(2, 3).flatten(1, 3)
            block = _multiply_sources(differences, graph.n_mlp_sources(index), mlp.unsqueeze(1), segments)
            scores[:, mlp_block] = block.squeeze(2)
        if gradients.logits is not None:
            block = _multiply_sources(differences, graph.n_sources, gradients.logits.unsqueeze(1), segments)
            scores[:, graph.blocks[-1]] = block.squeeze(2)
    return scores.flatten(1)


def _multiply_sources(differences: Sources, n_sources: int, gradient: Tensor, segments: Segments | None) -> Tensor:
    """Return the products [batch, source, reader, span] with gradients [batch, reader, position, d_model].

    Without segments, there is one span of all positions. With segments, adjacent positions of an example are one matrix
    without a copy, so all spans together cost as much as one product over all positions. Gradients are moved to the
    device of the differences, which are larger.
    """
    blocks = []
    for part in differences.parts:
        if n_sources > 0:
            sources, reads = part[:, :n_sources], gradient.to(part.device)
            if segments is None:
                products = (sources.flatten(2) @ reads.flatten(2).transpose(1, 2)).unsqueeze(-1)
            else:
                n_spans, parts = segments
                by_span = sources.new_zeros((len(sources), n_spans, sources.shape[1], reads.shape[1]))
                for at, span, rows in parts:
                    if rows is None:
                        read = reads[:, :, at].flatten(2).transpose(1, 2)
                        by_span[:, span].baddbmm_(sources[:, :, at].flatten(2), read)
                    for row in rows or ():
                        by_span[row, span].addmm_(sources[row, :, at].flatten(1), reads[row, :, at].flatten(1).T)
                products = by_span.permute(0, 2, 3, 1)
            blocks.append(products.to(differences.parts[0].device))
        n_sources -= part.shape[1]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)


def _output_scores(model: Transformer, differences: Sources, gradients: Gradients, by_dimension: bool) -> Tensor:
    """Return the products [batch, source], or with `by_dimension` [batch, source, d_model].

    Walk down the stream, from the logits to `input`, and add the gradient of every destination on the way.
    """
    graph, first_part, stream = model.graph, differences.parts[0], gradients.logits
    assert stream is not None
    scores = first_part.new_zeros((len(first_part), graph.n_sources) + (graph.d_model,) * by_dimension)

    def add_scores(first: int, count: int, gradient: Tensor) -> None:
        """Write the scores of `count` sources that have the gradient [batch, position, d_model] at their outputs."""
        outputs = differences.view(first, count)
        equation = "bspd,bpd->bsd" if by_dimension else "bspd,bpd->bs"
        scores[:, first : first + count] = torch.einsum(equation, outputs, gradient.to(outputs.device)).to(
            scores.device
        )

    with torch.no_grad():
        for index in reversed(range(graph.n_layers)):
            add_scores(graph.mlp_source_index(index), 1, stream)
            at_mlp = gradients.mlp[index]
            stream = stream.to(at_mlp.device)
            at_heads = stream if graph.parallel else stream + at_mlp
            if gradients.post_norms:
                at_heads = gradients.post_norms[index].transposed_times(at_heads.unsqueeze(1)).squeeze(1)
            add_scores(graph.n_attention_sources(index), graph.n_heads, at_heads)
            stream = stream + at_mlp + _summed_stream_gradient(model.layers[index], gradients.attention[index])
        add_scores(0, 1, stream)
    return scores
