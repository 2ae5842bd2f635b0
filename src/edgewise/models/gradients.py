"""Gradients at the destinations, and their product with differences of the sources: all edges of a batch at once.

A head's q, k or v reads the stream through a norm and a projection. Splitting the forward pass so that every
destination has an input of its own costs H copies of the stream. Instead, autograd stops at q, k and v themselves
([d_head] instead of [d_model]), and the rest is linear algebra. With x^ the normalised stream, 1/s the norm's scale,
W the projection with the norm's weight folded in and g the gradient at q, the gradient at the stream is

    (W^T g - mean(W^T g) - x^ mean(W^T g * x^)) / s            (without the first mean for an RMS norm)

and mean(W^T g * x^) = g . (W x^) / d_model, which needs no vector of length d_model per head. So runs are summed as
g / s, plus one number per head and run for the part along x^, before a single product with W. Taking off the first
mean is the same as centring the rows of W.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .forward import Trace, sum_heads
from .transformer import Layer, Projection, Transformer, at_least_float32

# [batch, source, position, d_model] of all sources, in one part for every span of layers, on its device.
Differences = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class AttentionGradient:
    """The gradient of a run, or the sum of several, at one layer's q, k and v.

    scaled      [batch, position, 3, head, d_head] gradient at q, k, v over the norm's scale
    along       per run, [batch, position, 3, head] its part along the normalised stream
    normalised  per run, [batch, position, d_model]
    """

    scaled: Tensor
    along: tuple[Tensor, ...]
    normalised: tuple[Tensor, ...]

    def plus(self, other: AttentionGradient) -> AttentionGradient:
        """The sum of both."""
        return AttentionGradient(
            self.scaled + other.scaled, self.along + other.along, self.normalised + other.normalised
        )


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradient of one run at all destinations: per layer attention and MLP [batch, position, d_model], logits.

    All of it is at least float32, whatever the model computes in.

    joined  per layer with a norm after attention, that norm's normalised input and 1 / scale in this run
    """

    attention: tuple[AttentionGradient, ...]
    mlp: tuple[Tensor, ...]
    logits: Tensor
    joined: dict[int, tuple[Tensor, Tensor]]


def destination_gradients(model: Transformer, trace: Trace, loss: Tensor) -> Gradients:
    """The gradient of `loss` (a sum over examples) at every destination's input, for the run that left `trace`."""
    n = model.graph.n_layers
    targets = [*trace.q, *trace.k, *trace.v, *trace.mlp_in, trace.final]
    found = torch.autograd.grad(loss, targets, materialize_grads=True)
    attention = tuple(_pull_back(model, index, trace, found[index : 3 * n : n]) for index in range(n))
    with torch.no_grad():
        joined = {
            index: layer.post_norm.normalise(sum_heads(layer, trace.mix[index]))
            for index, layer in enumerate(model.layers)
            if layer.post_norm is not None
        }
    *mlp, logits = (at_least_float32(gradient) for gradient in found[3 * n :])
    return Gradients(attention, tuple(mlp), logits, joined)


def _pull_back(model: Transformer, index: int, trace: Trace, at_qkv: Sequence[Tensor]) -> AttentionGradient:
    """at_qkv: the gradients [batch, position, head, d_head] at q, k and v."""
    layer = model.layers[index]
    with torch.no_grad():
        gradient = at_least_float32(torch.stack(list(at_qkv), 2))
        normalised, shrink = layer.attention_norm.normalise(trace.attention_in[index])
        # W x^, without what the norm's bias and the projection's add: q, k and v minus their values at x^ = 0.
        at_zero = [_at_zero(part, layer.attention_norm.bias) for part in layer.qkv]
        values = [at_least_float32(part) for part in (trace.q[index], trace.k[index], trace.v[index])]
        linear = [x if zero is None else x - zero for x, zero in zip(values, at_zero, strict=True)]
        along = (gradient * torch.stack(linear, 2)).sum(-1) * (shrink[..., None] / model.graph.d_model)
        return AttentionGradient(gradient * shrink[..., None, None], (along,), (normalised,))


def _at_zero(projection: Projection, norm_bias: Tensor | None) -> Tensor | None:
    """[head, d_head] what the projection gives where the normalised stream is zero."""
    bias = projection.head_bias
    if norm_bias is None:
        return bias
    moved = projection.head_weight @ norm_bias
    return moved if bias is None else moved + bias


def source_differences(model: Transformer, clean: Trace, corrupted: Trace) -> Differences:
    """Each source's output in the corrupted run minus that in the clean run; at least float32."""
    graph, (batch, length, width) = model.graph, clean.embedding.shape
    dtype = at_least_float32(clean.embedding[:1, :1]).dtype
    parts = []
    with torch.no_grad():
        for first, span in zip(_first_sources(model), model.spans, strict=True):
            layers = [model.layers[index] for index in span]
            count = graph.attention_sources(span.stop - 1) + graph.n_heads + 1 - first
            part = torch.empty((batch, count, length, width), dtype=dtype, device=layers[0].device)
            if first == 0:
                part[:, 0] = _less(corrupted.embedding, clean.embedding)
            for index, layer in zip(span, layers, strict=True):
                start = graph.attention_sources(index) - first
                mix = _less(corrupted.mix[index], clean.mix[index])
                heads = torch.einsum("bphe,dhe->bhpd", mix, at_least_float32(layer.out))
                part[:, start : start + graph.n_heads] = heads
                part[:, start + graph.n_heads] = _less(corrupted.mlp_out[index], clean.mlp_out[index])
            parts.append(part)
    return tuple(parts)


def _first_sources(model: Transformer) -> list[int]:
    """The first source of every span of layers; `input` goes with the first."""
    return [model.graph.attention_sources(span.start) if place else 0 for place, span in enumerate(model.spans)]


def _less(a: Tensor, b: Tensor) -> Tensor:
    """a - b, at least in float32: two runs are alike, so that their difference has few digits in half precision."""
    return at_least_float32(a) - at_least_float32(b)


def contract(model: Transformer, differences: Differences, runs: Iterable[Gradients]) -> Tensor:
    """[batch, edge] the sum over positions of source difference times destination gradient, mean over runs.

    Runs are taken one by one: those that come from a generator are never held together, only their sum is. Where a
    norm follows attention, a head's difference reaches its readers through that norm, which is another linear map in
    every run: then each run is contracted by itself.
    """
    if not any(layer.post_norm for layer in model.layers):
        summed, count = _summed(runs)
        return _contract(model, differences, summed).div_(count)
    total, count = torch.zeros((), device=model.device), 0
    for one in runs:
        total = total + _contract(model, _through_post_norms(model, differences, one), one)
        count += 1
    return total / count


def _summed(runs: Iterable[Gradients]) -> tuple[Gradients, int]:
    """The sum of the gradients of runs, and how many there were; a layer's sum so far is let go as it grows."""
    attention: list[AttentionGradient] = []
    rest: list[Tensor] = []
    count = 0
    for one in runs:
        others = (*one.mlp, one.logits)
        if not count:
            attention, rest = list(one.attention), list(others)
        else:
            for index, gradient in enumerate(one.attention):
                attention[index] = attention[index].plus(gradient)
            for index, tensor in enumerate(others):
                rest[index] = rest[index] + tensor
        count += 1
    return Gradients(tuple(attention), tuple(rest[:-1]), rest[-1], {}), count


def _through_post_norms(model: Transformer, differences: Differences, one: Gradients) -> Differences:
    """The differences with those of heads as the stream sees them, to first order, in one run."""
    seen = tuple(part.clone() for part in differences)
    for start, span, part, own in zip(_first_sources(model), model.spans, differences, seen, strict=True):
        for index in span:
            (normalised, shrink), norm = one.joined[index], model.layers[index].post_norm
            assert norm is not None
            first = model.graph.attention_sources(index) - start
            heads = part[:, first : first + model.graph.n_heads]
            if norm.centred:
                heads = heads - heads.mean(-1, keepdim=True)
            along = (heads * normalised[:, None]).mean(-1, keepdim=True)
            through = (heads - normalised[:, None] * along) * shrink[:, None] * at_least_float32(norm.weight)
            own[:, first : first + model.graph.n_heads] = through
    return seen


def _contract(model: Transformer, differences: Differences, gradients: Gradients) -> Tensor:
    graph, like = model.graph, differences[0]
    scores = torch.empty((len(like), graph.n_edges), dtype=like.dtype, device=like.device)
    with torch.no_grad():
        for index in range(graph.n_layers):
            attention_block, mlp_block = graph.blocks[2 * index : 2 * index + 2]
            at_stream = _attention_gradient(model, index, gradients.attention[index])
            block = _product(differences, graph.attention_sources(index), at_stream)
            del at_stream  # before the next layer's, which is as large
            # [source, (qkv, head)] -> [source, head, qkv], the order of edges
            scores[:, attention_block] = block.unflatten(2, (3, graph.n_heads)).transpose(2, 3).flatten(1)
            mlp = gradients.mlp[index].unsqueeze(1)
            scores[:, mlp_block] = _product(differences, graph.mlp_sources(index), mlp).squeeze(-1)
        logits = gradients.logits.unsqueeze(1)
        scores[:, graph.blocks[-1]] = _product(differences, graph.n_sources, logits).squeeze(-1)
    return scores


def _product(differences: Differences, n_sources: int, gradient: Tensor) -> Tensor:
    """[batch, source, reader] of the first sources' differences with gradients [batch, reader, position, d_model].

    The gradients go to where the differences are: those are more, and stay.
    """
    blocks = []
    for part in differences:
        if n_sources > 0:
            there = gradient.to(part.device).flatten(2).transpose(1, 2)
            blocks.append((part[:, :n_sources].flatten(2) @ there).to(differences[0].device))
        n_sources -= part.shape[1]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)


def _attention_gradient(model: Transformer, index: int, gradient: AttentionGradient) -> Tensor:
    """[batch, (qkv, head), position, d_model] at the stream."""
    layer, (batch, length, _, n_heads, _) = model.layers[index], gradient.scaled.shape
    found = gradient.scaled.new_empty((batch, 3, n_heads, length, model.graph.d_model))
    normalised = torch.stack(gradient.normalised, 1)
    along = torch.stack(gradient.along, -1)
    # One after the other: all three together would need several copies of hundreds of megabytes for wide models.
    for place, part in enumerate(layer.qkv):
        found[:, place] = torch.einsum("bphe,hed->bhpd", gradient.scaled[:, :, place], _folded(layer, part))
        found[:, place] -= torch.einsum("bphr,brpd->bhpd", along[:, :, place], normalised)
    return found.flatten(1, 2)


def _folded(layer: Layer, part: Projection) -> Tensor:
    """[head, d_head, d_model] a projection, at least float32, with the norm's weight and centring in it."""
    weight = at_least_float32(part.head_weight) * layer.attention_norm.weight
    return weight - weight.mean(-1, keepdim=True) if layer.attention_norm.centred else weight
