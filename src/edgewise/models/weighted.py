"""Runs of weighted circuits: every edge has a weight between 0 and 1, and every node runs.

input of v = the reference's stream at v + sum over u->v of weight(u->v) (u's output - the reference's output of u).

Weights of 0 and 1 give what `circuits.run_circuit` gives for the edges of weight 1; here the result can be
differentiated with respect to the weights. Each q, k and v of each head reads a stream of its own, so a layer costs 3H
streams mixed from all sources before it, and keeping these is what would take memory. Hence (see `rows`):

- a layer's streams are mixed again in the backward pass, and never normed: the norm's weight is folded into the
  projection, and its scale, a number per stream, is applied to what was projected;
- the stream of the MLP is mixed along with them, up to the layer's own heads;
- the queries of the last layer, its MLP and the logits run at the last position only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import Graph
from .forward import Frame, Trace, attend, frame_at
from .rows import Mix, Read, Rows, WriteHeads, WriteOutput, head_rows
from .transformer import Layer, Norm, Projection, Transformer


def run_weighted(
    model: Transformer, weights: Tensor, clean: Tensor, reference: Trace, frame: Frame, last: Tensor
) -> Tensor:
    """The stream [example, d_model] that the logits read at each example's last position.

    weights  [edge], or [example, edge] where examples have weights of their own; gradients have the same shape, so that
             of `weights.expand(n_examples, -1)` is each example's own, for the cost of their sum
    clean    [batch, position, d_model] the output of the node `input` on the clean prompt
    """
    graph, (batch, length, _) = model.graph, clean.shape
    edges = weights.to(clean.dtype).expand(batch, graph.n_edges)
    rows = Rows(model, batch, length, last)
    at_last = [WriteOutput.apply((clean - reference.embedding).flatten(0, 1), rows)]
    products: list[Tensor] = []
    for index, layer in enumerate(model.layers[:-1]):
        attention, mlp = _layer_weights(graph, edges, index)
        before = graph.attention_sources(index)
        mixing = _mixing(graph, torch.cat([attention, mlp[..., :before]], 1), products, length)
        parts = Read.apply(mixing, rows, layer, layer.qkv, reference.attention_in[index].flatten(0, 1), *at_last[-2:])
        q, k, v = _scaled(layer, layer.qkv, *parts[:2], length)
        mix = attend(model, index, q, k, v, frame) - reference.mix[index]
        first = rows.count
        heads, product = WriteHeads.apply(mix.flatten(0, 1), rows, layer, reference.mix[index].flatten(0, 1))
        own = [] if product is None else [product]
        stream = reference.mlp_in[index] + parts[2].view_as(clean)
        if not graph.parallel:
            mixing = _head_mixing(graph, mlp[..., before:], own, length)
            stream = stream + Mix.apply(mixing, rows, first, heads).view_as(clean)
        change = layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index]
        at_last += [heads, WriteOutput.apply(change.flatten(0, 1), rows)]
        products += own
    return _run_last_layer(model, edges, rows, at_last, products, reference, frame, last)


def _run_last_layer(
    model: Transformer,
    edges: Tensor,
    rows: Rows,
    at_last: list[Tensor],
    products: list[Tensor],
    reference: Trace,
    frame: Frame,
    last: Tensor,
) -> Tensor:
    """The stream at the logits. Keys and values of the last layer run everywhere, all else at the last position."""
    graph, layer, index = model.graph, model.layers[-1], model.graph.n_layers - 1
    where = (torch.arange(len(last), device=last.device), last)
    length = reference.final.shape[1]
    attention, mlp = _layer_weights(graph, edges, index)
    there = reference.attention_in[index]
    mixing = _mixing(graph, attention[:, graph.n_heads :], products, length)
    parts = Read.apply(mixing, rows, layer, (layer.k, layer.v), there.flatten(0, 1), *at_last[-2:])
    k, v = _scaled(layer, (layer.k, layer.v), *parts[:2], length)
    changes, products = torch.cat(at_last, 1), [product[rows.last] for product in products]

    def read(weights: Tensor) -> Tensor:
        """[example, reader, d_model] what readers of weights [example, reader, source] see of `changes`."""
        mixing = _mixing(graph, weights, products, 1)
        return mixing @ changes[:, : mixing.shape[2]]

    normed = layer.attention_norm(there[where].unsqueeze(1) + read(attention[:, : graph.n_heads]))
    q = torch.einsum("bhd,hed->bhe", normed, layer.q.head_weight)
    q = q if layer.q.head_bias is None else q + layer.q.head_bias
    seen = reference.mix[index][where]
    mix = attend(model, index, q[:, None], k, v, frame, query_frame=frame_at(frame, where))[:, 0] - seen
    heads, product = head_rows(layer, mix, seen)
    changes, products = torch.cat([changes, heads], 1), products if product is None else [*products, product]
    stream = reference.mlp_in[index][where] + read(mlp).squeeze(1)
    change = layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index][where]
    changes = torch.cat([changes, change[:, None]], 1)
    return reference.final[where] + read(edges[:, None, graph.blocks[-1]]).squeeze(1)


def _layer_weights(graph: Graph, edges: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """[example, reader, source] the weights of a layer's edges: those of all q, all k and all v, and of its MLP."""
    attention, mlp = (edges[:, block] for block in graph.blocks[2 * index : 2 * index + 2])
    # [source, head, qkv], the order of edges -> [(qkv, head), source]
    return attention.unflatten(1, (-1, graph.n_heads, 3)).permute(0, 3, 2, 1).flatten(1, 2), mlp[:, None]


def _mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """[place, reader, row] how to mix rows, from weights [example, reader, source] of sources from `input` on."""
    heads = _head_mixing(graph, weights[..., 1:], products, length)
    return torch.cat([_spread(weights[..., :1], length), heads], -1) if products else _spread(weights, length)


def _head_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """[place, reader, row] the same for the sources of some layers, the last of which may lack its MLP.

    products  per layer, [place, 1 + head, 1 + head] as `head_rows` gives them; none if no norm follows attention
    """
    weights = _spread(weights, length)
    if not products:
        return weights
    lacking = len(products) * (graph.n_heads + 1) - weights.shape[2]
    apart = F.pad(weights, (0, lacking)).unflatten(2, (len(products), graph.n_heads + 1))
    heads, mlp = apart[..., :-1], apart[..., -1:]
    product = torch.stack(list(products), 1)
    summed = F.pad(heads, (1, 0), value=1.0).to(product.dtype)
    shrink = torch.einsum("prli,plij,prlj->prl", summed, product, summed).rsqrt()[..., None]
    change = shrink - product[:, None, :, 0, :1].rsqrt()
    mixing = torch.cat([heads * shrink.to(heads.dtype), change.to(heads.dtype), mlp], -1).flatten(2)
    return mixing[..., : mixing.shape[2] - lacking]


def _spread(weights: Tensor, length: int) -> Tensor:
    """[place, ...] weights [example, ...] at every position."""
    return weights[:, None].expand(-1, length, *[-1] * (weights.ndim - 1)).flatten(0, 1)


def _scaled(
    layer: Layer, parts: Sequence[Projection], projected: Tensor, squares: Tensor, length: int
) -> tuple[Tensor, ...]:
    """q, k or v [batch, position, head, d_head] from what `Read` gives."""
    norm = layer.attention_norm
    shrink = torch.rsqrt(squares / norm.weight.shape[0] + norm.eps).to(projected.dtype)
    values = projected * shrink.T[..., None]
    apart = values.unflatten(1, (-1, length)).permute(1, 2, 0, 3).chunk(len(parts), 2)
    offsets = [_offset(part, norm) for part in parts]
    return tuple(x if offset is None else x + offset for x, offset in zip(apart, offsets, strict=True))


def _offset(part: Projection, norm: Norm) -> Tensor | None:
    """[head, d_head] what a projection makes of its own bias and the norm's."""
    if norm.bias is None:
        return part.head_bias
    moved = part.head_weight @ norm.bias
    return moved if part.head_bias is None else moved + part.head_bias
