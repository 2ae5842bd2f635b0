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

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .forward import Trace, sum_heads
from .transformer import Projection, Transformer, at_least_float32


@dataclass(frozen=True, eq=False)
class AttentionGradient:
    """The gradient of one run at one layer's q, k and v.

    scaled      [batch, position, 3, head, d_head] gradient at q, k, v over the norm's scale
    along       [batch, position, 3, head] its part along the normalised stream
    normalised  [batch, position, d_model]
    """

    scaled: Tensor
    along: Tensor
    normalised: Tensor


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradient of one run at all destinations: per layer attention and MLP [batch, position, d_model], logits.

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
    found = [at_least_float32(g) for g in torch.autograd.grad(loss, targets, materialize_grads=True)]
    attention = tuple(
        _pull_back(model, index, trace, torch.stack([found[index], found[n + index], found[2 * n + index]], 2))
        for index in range(n)
    )
    with torch.no_grad():
        joined = {
            index: layer.post_norm.normalise(sum_heads(layer, trace.mix[index]))
            for index, layer in enumerate(model.layers)
            if layer.post_norm is not None
        }
    return Gradients(attention, tuple(found[3 * n : 4 * n]), found[-1], joined)


def _pull_back(model: Transformer, index: int, trace: Trace, gradient: Tensor) -> AttentionGradient:
    """gradient: [batch, position, 3, head, d_head] at q, k and v."""
    layer = model.layers[index]
    with torch.no_grad():
        normalised, shrink = layer.attention_norm.normalise(trace.attention_in[index])
        # W x^, without what the norm's bias and the projection's add: q, k and v minus their values at x^ = 0.
        at_zero = [_at_zero(part, layer.attention_norm.bias) for part in layer.qkv]
        values = (trace.q[index], trace.k[index], trace.v[index])
        linear = [x if zero is None else x - zero for x, zero in zip(values, at_zero, strict=True)]
        along = (gradient * torch.stack(linear, 2)).sum(-1) * (shrink[..., None] / model.graph.d_model)
        return AttentionGradient(gradient * shrink[..., None, None], along, normalised)


def _at_zero(projection: Projection, norm_bias: Tensor | None) -> Tensor | None:
    """[head, d_head] what the projection gives where the normalised stream is zero."""
    bias = projection.head_bias
    if norm_bias is None:
        return bias
    moved = projection.head_weight @ norm_bias
    return moved if bias is None else moved + bias


def source_differences(model: Transformer, clean: Trace, corrupted: Trace) -> Tensor:
    """[batch, source, position, d_model] each source's output in the corrupted run minus that in the clean run."""
    graph = model.graph
    with torch.no_grad():
        shape = (clean.embedding.shape[0], graph.n_sources, *clean.embedding.shape[1:])
        differences = torch.empty(shape, dtype=at_least_float32(clean.embedding[:1, :1]).dtype, device=model.device)
        differences[:, 0] = corrupted.embedding - clean.embedding
        for index, layer in enumerate(model.layers):
            first = graph.attention_sources(index)
            mix = at_least_float32(corrupted.mix[index] - clean.mix[index])
            heads = torch.einsum("bphe,dhe->bhpd", mix, at_least_float32(layer.out))
            differences[:, first : first + graph.n_heads] = heads
            differences[:, graph.mlp_source(index)] = corrupted.mlp_out[index] - clean.mlp_out[index]
    return differences


def contract(model: Transformer, differences: Tensor, runs: Sequence[Gradients]) -> Tensor:
    """[batch, edge] the sum over positions of source difference times destination gradient, mean over runs.

    Where a norm follows attention, a head's difference reaches its readers through that norm, which is another linear
    map in every run: then each run is contracted by itself.
    """
    if not any(layer.post_norm for layer in model.layers):
        return _contract(model, differences, runs)
    total = torch.zeros((), device=differences.device)
    for one in runs:
        total = total + _contract(model, _through_post_norms(model, differences, one), [one]) / len(runs)
    return total


def _through_post_norms(model: Transformer, differences: Tensor, one: Gradients) -> Tensor:
    """The differences with those of heads as the stream sees them, to first order, in one run."""
    seen = differences.clone()
    for index, (normalised, shrink) in one.joined.items():
        first, norm = model.graph.attention_sources(index), model.layers[index].post_norm
        assert norm is not None
        heads = differences[:, first : first + model.graph.n_heads]
        if norm.centred:
            heads = heads - heads.mean(-1, keepdim=True)
        along = (heads * normalised[:, None]).mean(-1, keepdim=True)
        through = (heads - normalised[:, None] * along) * shrink[:, None] * at_least_float32(norm.weight)
        seen[:, first : first + model.graph.n_heads] = through
    return seen


def _contract(model: Transformer, differences: Tensor, runs: Sequence[Gradients]) -> Tensor:
    graph = model.graph
    scores = torch.empty((len(differences), graph.n_edges), dtype=differences.dtype, device=differences.device)
    flat = differences.flatten(2)
    with torch.no_grad():
        for index in range(graph.n_layers):
            attention_block, mlp_block = graph.blocks[2 * index : 2 * index + 2]
            gradient = _attention_gradient(model, index, [g.attention[index] for g in runs])
            block = flat[:, : graph.attention_sources(index)] @ gradient.flatten(2).transpose(1, 2)
            # [source, (qkv, head)] -> [source, head, qkv], the order of edges
            block = block.unflatten(2, (3, graph.n_heads)).transpose(2, 3)
            scores[:, attention_block] = block.flatten(1)
            mlp = _mean([g.mlp[index] for g in runs]).flatten(1).unsqueeze(-1)
            scores[:, mlp_block] = (flat[:, : graph.mlp_sources(index)] @ mlp).squeeze(-1)
        logits = _mean([g.logits for g in runs]).flatten(1).unsqueeze(-1)
        scores[:, graph.blocks[-1]] = (flat @ logits).squeeze(-1)
    return scores


def _attention_gradient(model: Transformer, index: int, runs: Sequence[AttentionGradient]) -> Tensor:
    """[batch, (qkv, head), position, d_model] the mean gradient of the runs at the stream."""
    layer = model.layers[index]
    weights = torch.stack([at_least_float32(part.head_weight) for part in layer.qkv])
    weights = (weights * at_least_float32(layer.attention_norm.weight)).flatten(0, 1)
    if layer.attention_norm.centred:
        weights = weights - weights.mean(-1, keepdim=True)
    scaled = _mean([run.scaled for run in runs]).flatten(2, 3)
    gradient = torch.einsum("bpne,ned->bnpd", scaled, weights)
    along = torch.stack([run.along for run in runs], -1).flatten(2, 3) / len(runs)
    normalised = torch.stack([run.normalised for run in runs], 1)
    return gradient - torch.einsum("bpnr,brpd->bnpd", along, normalised)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(0)
