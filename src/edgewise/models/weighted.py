"""Runs of weighted circuits: every edge has a weight between 0 and 1, and every node runs.

input of v = the reference's stream at v + sum over u->v of weight(u->v) (u's output - the reference's output of u).

Weights of 0 and 1 give the result of `circuits.run_circuits` for the edges of weight 1. Here, the result can be
differentiated with respect to the weights. Each q, k and v of each head reads its own stream, so a layer with H heads
mixes 3H streams from all earlier sources. `rows` does this. To keep it cheap:

- Streams are never normalised. The norm's weight is folded into the projection, and its scale, one number per stream,
  multiplies the projected values. The same holds for a norm over the outputs of all heads.
- The MLP's stream, without the layer's own heads, is mixed together with those of the heads.
- The queries of the last layer, its MLP and the logits run at the last position only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..graph import Graph
from .forward import Frame, Trace, attend, frame_at
from .rows import MixOne, Read, Rows, WriteHeads, WriteOutput, head_rows
from .transformer import Layer, Norm, Projection, Transformer


def run_weighted(
    model: Transformer,
    weights: Tensor,
    clean: Tensor,
    reference: Trace,
    frame: Frame,
    last: Tensor,
    keep_streams: bool = True,
) -> Tensor:
    """Return the stream [example * read, d_model] of the logits at the positions that the metric reads.

    weights       [edge], or [example, edge] for different weights per example. The gradient has the same shape: for
                  [edge] it is summed over examples; `weights.expand(n_examples, -1)` gives the gradient of each example
                  at the same cost.
    clean         [batch, position, d_model] the output of the node `input` on the clean prompt
    last          [batch, read] the positions that the metric reads
    keep_streams  whether to keep the streams of heads for the backward pass; mixing them again takes about a tenth more
                  time and a third less memory (`memory.weighted_need`)
    """
    graph, (batch, length, _) = model.graph, clean.shape
    if weights.shape[-1] != graph.n_edges:
        raise InputError(f"there are {weights.shape[-1]} weights, but the graph has {graph.n_edges} edges")
    sizes = [block.stop - block.start for block in graph.blocks]
    # Gradients of weights are sums over positions and examples, so weights are at least float32.
    weight_dtype = torch.promote_types(clean.dtype, torch.float32)
    blocks = weights.to(weight_dtype).expand(batch, -1).split(sizes, 1)
    rows = Rows(model, batch, length, last, keep_streams and weights.requires_grad and torch.is_grad_enabled())
    at_last: list[Tensor] = [WriteOutput.apply((clean - reference.embedding).flatten(0, 1), rows)]
    products: list[Tensor] = []
    for index, layer in enumerate(model.layers[:-1]):
        attention, mlp = _by_reader(graph, blocks[2 * index]), blocks[2 * index + 1][:, None]
        n_before, attention_in = attention.shape[2], reference.attention_in[index].flatten(0, 1)
        mixing = _source_mixing(graph, torch.cat([attention, mlp[..., :n_before]], 1), products, length)
        projected, squares, stream = Read.apply(mixing, rows, layer, layer.qkv, attention_in, *at_last[-2:])
        q, k, v = _scale_projected(layer, layer.qkv, projected, squares, length)
        mix = attend(model, index, q, k, v, frame) - reference.mix[index]
        first = rows.count
        heads, product = WriteHeads.apply(mix.flatten(0, 1), rows, layer, reference.mix[index].flatten(0, 1))
        layer_products = [] if product is None else [product.to(model.device)]
        if not graph.parallel:
            mixing = _layer_mixing(graph, mlp[..., n_before:], layer_products, length)
            stream = stream + MixOne.apply(mixing, rows, first, heads)
        stream = reference.mlp_in[index] + stream.view_as(clean)
        change = layer.run_mlp(stream) - reference.mlp_out[index]
        at_last += [heads, WriteOutput.apply(change.flatten(0, 1), rows)]
        products += layer_products
    return _run_last_layer(model, blocks, rows, at_last, products, reference, frame, last)


def _run_last_layer(
    model: Transformer,
    blocks: Sequence[Tensor],
    rows: Rows,
    at_last: list[Tensor],
    products: list[Tensor],
    reference: Trace,
    frame: Frame,
    last: Tensor,
) -> Tensor:
    """Return the stream at the logits. The last layer runs keys and values everywhere, others at the last position."""
    graph, layer, index = model.graph, model.layers[-1], model.graph.n_layers - 1
    length = reference.final.shape[1]
    n_reads, examples = last.shape[1], torch.arange(len(last), device=last.device)[:, None]
    where = (examples.expand_as(last).flatten(), last.flatten())
    where_layer = (where[0].to(layer.device), where[1].to(layer.device))
    attention = _by_reader(graph, blocks[-3])
    queries, mlp, logits = (
        block.repeat_interleave(n_reads, 0)
        for block in (attention[:, : graph.n_heads], blocks[-2][:, None], blocks[-1][:, None])
    )
    attention_in = reference.attention_in[index]
    mixing = _source_mixing(graph, attention[:, graph.n_heads :], products, length)
    projections = layer.qkv[1:]
    projected, squares, _ = Read.apply(mixing, rows, layer, projections, attention_in.flatten(0, 1), *at_last[-2:])
    k, v = _scale_projected(layer, projections, projected, squares, length)
    changes = torch.cat([x.to(layer.device) for x in at_last], 1)
    products = [product[rows.last_on(product.device)] for product in products]

    def read(weights: Tensor) -> Tensor:
        """Return mixes [example * read, reader, d_model] of `changes` for weights [example * read, reader, source]."""
        mixing = _source_mixing(graph, weights, products, 1)
        return mixing.to(changes) @ changes[:, : mixing.shape[2]]

    streams = attention_in[where_layer].unsqueeze(1) + read(queries)
    normed, query = streams if layer.attention_norm is None else layer.attention_norm(streams), layer.qkv[0]
    if query.norm is None:
        q = torch.einsum("bhd,hed->bhe", normed, query.head_weight)
        q = q if query.head_bias is None else q + query.head_bias
    else:
        q = torch.stack([query.one_head(normed[:, head], head // query.group) for head in range(graph.n_heads)], 1)
    reference_mix = reference.mix[index][where_layer]
    query_frame = frame_at(frame, (examples, last))
    mix = attend(model, index, q.unflatten(0, (-1, n_reads)), k, v, frame, query_frame=query_frame).flatten(0, 1)
    mix = mix - reference_mix
    heads, product = head_rows(layer, mix, reference_mix)
    changes = torch.cat([changes, heads], 1)
    products = products if product is None else [*products, product.to(model.device)]
    stream = reference.mlp_in[index][where_layer] + read(mlp).squeeze(1)
    change = layer.run_mlp(stream) - reference.mlp_out[index][where_layer]
    changes = torch.cat([changes, change[:, None]], 1)
    return reference.final[where] + read(logits).squeeze(1).to(model.device)


def _by_reader(graph: Graph, block: Tensor) -> Tensor:
    """Return the weights of a layer's attention as [example, reader, source], for all q, then all k, then all v."""
    # [source, head, qkv], the order of edges -> [(qkv, head), source]
    return block.unflatten(1, (-1, graph.n_heads, 3)).permute(0, 3, 2, 1).flatten(1, 2)


def _source_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """Return how to mix rows, from weights [example, reader, source] of the sources from `input` on.

    The result is [example, reader, row], or [place, reader, row] if there are `products`.
    """
    if not products:
        return weights
    rest = _layer_mixing(graph, weights[..., 1:], products, length)
    return torch.cat([weights[..., :1].repeat_interleave(length, 0), rest], -1)


def _layer_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """Return how to mix the rows of layers, from weights of their heads and MLPs; the last layer may lack its MLP.

    products  per layer, [place, 1 + head, 1 + head] from `head_rows`; empty if no norm follows attention
    """
    if not products:
        return weights
    n_layers = -(-weights.shape[2] // (graph.n_heads + 1))
    n_missing = n_layers * (graph.n_heads + 1) - weights.shape[2]
    by_layer = F.pad(weights.repeat_interleave(length, 0), (0, n_missing)).unflatten(2, (n_layers, -1))
    heads, mlp = by_layer[..., :-1], by_layer[..., -1:]
    product = torch.stack(list(products[:n_layers]), 1)
    summed = F.pad(heads, (1, 0), value=1.0).to(product.dtype)
    inverse_scale = torch.einsum("prli,plij,prlj->prl", summed, product, summed).rsqrt()[..., None]
    before = inverse_scale - product[:, None, :, 0, :1].rsqrt()
    mixing = torch.cat([heads * inverse_scale.to(heads.dtype), before.to(heads.dtype), mlp], -1).flatten(2)
    return mixing[..., : mixing.shape[2] - n_missing]


def _scale_projected(
    layer: Layer, projections: Sequence[Projection], projected: Tensor, squares: Tensor, length: int
) -> tuple[Tensor, ...]:
    """Return q, k or v [batch, position, head, d_head] from the outputs of `Read`."""
    norm, n_heads = layer.attention_norm, layer.out.shape[1]
    parts = list(projected.split(n_heads))
    for index, (projection, squared) in enumerate(zip(projections, squares.split(n_heads, 1), strict=True)):
        if (scaling := projection.norm or norm) is not None:
            inverse_scale = torch.rsqrt(squared / scaling.stored_weight.shape[0] + scaling.eps).to(projected.dtype)
            parts[index] = parts[index] * inverse_scale.T[..., None]
    split = [x.unflatten(1, (-1, length)).permute(1, 2, 0, 3) for x in parts]
    return tuple(_finish(x, projection, norm) for x, projection in zip(split, projections, strict=True))


def _finish(values: Tensor, projection: Projection, norm: Norm | None) -> Tensor:
    """Return scaled outputs of a projection with their biases, or with the weight of a norm over all heads."""
    if projection.norm is not None:
        return values * projection.head_norm_weight
    offset = projection.offset(norm)
    return values if offset is None else values + offset
