"""Runs of weighted circuits: every edge has a weight between 0 and 1.

input of v = the reference's stream at v + sum over u->v of weight(u->v) (u's output - the reference's output of u).

Weights of 0 and 1 give the result of `circuits.run_circuits` for the edges of weight 1. Here, the result can be
differentiated with respect to the weights. Each q, k and v of each head reads its own stream, so a layer with H heads
mixes 3H streams from all earlier sources. `rows` does this. To keep it cheap:

- Streams are never normalised. The norm's weight is folded into the projection, and its scale, one number per stream,
  multiplies the projected values. The same holds for a norm over the outputs of all heads.
- The MLP's stream, without the layer's own heads, is mixed together with those of the heads.
- The queries of the last layer, its MLP and the logits run at the last position only.
- Heads run only if they have a change or a gradient: if edges of nonzero weight lead from `input` to them, or from them
  to the logits. All edges of other heads have a gradient of 0.

Weights of (edge, span) pairs differ between positions. They are spread to places (positions of examples), which mix
streams as examples with weights of their own do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..graph import Graph
from .forward import Frame, Trace, attend, frame_at
from .rows import MixOne, Read, Rows, WriteHeads, WriteOutput, head_rows
from .transformer import Layer, Projection, Transformer, take


def run_weighted(
    model: Transformer,
    weights: Tensor,
    clean: Tensor,
    reference: Trace,
    frame: Frame,
    last: Tensor,
    keep_streams: bool = True,
    spans: Tensor | None = None,
) -> Tensor:
    """Return the stream [example * read, d_model] of the logits at the positions that the metric reads.

    weights       [edge], or [group, edge] for different weights of groups: equal numbers of consecutive examples. The
                  gradient has the same shape, and is summed over the examples of a group. So
                  `weights.expand(n_examples, -1)` gives the gradient of each example at the same cost.
    clean         [batch, position, d_model] the output of the node `input` on the clean prompt
    last          [batch, read] the positions that the metric reads
    keep_streams  whether to keep the streams of heads for the backward pass; mixing them again takes about a tenth more
                  time and a third less memory (`memory.weighted_need`)
    spans         [batch, position] the span of each position, for weights of pairs, `edge * n_spans + span`; padding
                  may have any
    """
    graph, length = model.graph, clean.shape[1]
    n_spans = 1 if spans is None else max(1, weights.shape[-1] // graph.n_edges)
    if weights.shape[-1] != graph.n_edges * n_spans:
        raise InputError(f"there are {weights.shape[-1]} weights, but the graph has {graph.n_edges} edges")
    sizes = [(block.stop - block.start) * n_spans for block in graph.blocks]
    # Gradients of weights are sums over positions and examples, so weights are at least float32.
    weight_dtype = torch.promote_types(clean.dtype, torch.float32)
    weights = weights.to(weight_dtype)
    blocks = (weights if weights.ndim == 2 else weights[None]).split(sizes, 1)
    if spans is not None:
        groups = torch.arange(len(blocks[0]), device=spans.device).repeat_interleave(len(spans) // len(blocks[0]))
        where = (spans.clamp(min=0) + n_spans * groups[:, None]).flatten()
        blocks = tuple(  # [group, edge * n_spans] -> [group * span, edge] -> [place, edge]
            block.unflatten(1, (-1, n_spans)).transpose(1, 2).flatten(0, 1).index_select(0, where.to(block.device))
            for block in blocks
        )
    running = _running_heads(model, weights.detach(), reference)
    keeps = keep_streams and weights.requires_grad and torch.is_grad_enabled()
    rows = Rows(model, [len(heads) for heads in running], length, last, keeps)
    at_last: list[Tensor] = [WriteOutput.apply((clean - reference.embedding).flatten(0, 1), rows)]
    products: list[Tensor] = []
    sources = running[0].new_zeros(1)  # that have rows, so far
    for index, whole_layer in enumerate(model.layers[:-1]):
        layer, heads, n_before = whole_layer.part(running[index]), running[index], graph.attention_sources(index)
        attention, mlp = _by_reader(graph, blocks[2 * index], heads, sources), blocks[2 * index + 1][:, None]
        attention_in = reference.attention_in[index].flatten(0, 1)
        mlp_before = take(mlp[..., :n_before], 2, sources)
        mixing = _source_mixing(graph, torch.cat([attention, mlp_before], 1), products)
        projected, squares, stream = Read.apply(mixing, rows, layer, layer.qkv, attention_in, *at_last[-2:])
        q, k, v = _scale_projected(layer, layer.qkv, projected, squares, length)
        reference_mix = take(reference.mix[index], 2, heads)
        mix = attend(model, index, q, k, v, frame, heads) - reference_mix
        first = rows.count
        written, product = WriteHeads.apply(mix.flatten(0, 1), rows, layer, reference_mix.flatten(0, 1))
        layer_products = [] if product is None else [product.to(model.device)]
        if not graph.parallel:
            mixing = _layer_mixing(graph, take(mlp[..., n_before:], 2, heads), layer_products)
            stream = stream + MixOne.apply(mixing, rows, first, written)
        stream = reference.mlp_in[index] + stream.view_as(clean)
        change = layer.run_mlp(stream) - reference.mlp_out[index]
        at_last += [written, WriteOutput.apply(change.flatten(0, 1), rows)]
        products += layer_products
        sources = torch.cat([sources, n_before + heads, sources.new_tensor([graph.mlp_source(index)])])
    return _run_last_layer(model, blocks, rows, at_last, products, reference, frame, last, running[-1], sources)


def _run_last_layer(
    model: Transformer,
    blocks: Sequence[Tensor],
    rows: Rows,
    at_last: list[Tensor],
    products: list[Tensor],
    reference: Trace,
    frame: Frame,
    last: Tensor,
    heads: Tensor,
    sources: Tensor,
) -> Tensor:
    """Return the stream at the logits. The last layer runs keys and values everywhere, others at the last position."""
    graph, layer, index = model.graph, model.layers[-1].part(heads), model.graph.n_layers - 1
    length = reference.final.shape[1]
    n_reads, examples = last.shape[1], torch.arange(len(last), device=last.device)[:, None]
    where = (examples.expand_as(last).flatten(), last.flatten())
    where_layer = (where[0].to(layer.device), where[1].to(layer.device))
    attention = _by_reader(graph, blocks[-3], heads, sources)
    own_heads = graph.attention_sources(index) + heads
    mlp_sources = sources if graph.parallel else torch.cat([sources, own_heads])
    all_sources = torch.cat([sources, own_heads, sources.new_tensor([graph.n_sources - 1])])

    def at_reads(block: Tensor) -> Tensor:
        """Return weights [group or place, reader, source] at the positions that the metric reads."""
        if len(block) == rows.places:
            return block.index_select(0, rows.last_on(block.device))
        return block.repeat_interleave(len(last) // len(block) * n_reads, 0)

    queries, mlp, logits = (
        at_reads(block)
        for block in (
            attention[:, : len(heads)],
            take(blocks[-2][:, None], 2, mlp_sources),
            take(blocks[-1][:, None], 2, all_sources),
        )
    )
    attention_in = reference.attention_in[index]
    mixing = _source_mixing(graph, attention[:, len(heads) :], products)
    projections = layer.qkv[1:]
    projected, squares, _ = Read.apply(mixing, rows, layer, projections, attention_in.flatten(0, 1), *at_last[-2:])
    k, v = _scale_projected(layer, projections, projected, squares, length)
    changes = torch.cat([x.to(layer.device) for x in at_last], 1)
    products = [product[rows.last_on(product.device)] for product in products]

    def read(weights: Tensor) -> Tensor:
        """Return mixes [example * read, reader, d_model] of `changes` for weights [example * read, reader, source]."""
        mixing = _source_mixing(graph, weights, products)
        return mixing.to(changes) @ changes[:, : mixing.shape[2]]

    streams = attention_in[where_layer].unsqueeze(1) + read(queries)
    normed, query = streams if layer.attention_norm is None else layer.attention_norm(streams), layer.qkv[0]
    if query.norm is None:
        q = torch.einsum("bhd,hed->bhe", normed, query.head_weight)
        q = q if query.head_bias is None else q + query.head_bias
    else:
        q = torch.stack([query.one_head(normed[:, head], head // query.group) for head in range(graph.n_heads)], 1)
    reference_mix = take(reference.mix[index][where_layer], 1, heads)
    query_frame = frame_at(frame, (examples, last))
    mix = attend(model, index, q.unflatten(0, (-1, n_reads)), k, v, frame, heads, query_frame).flatten(0, 1)
    mix = mix - reference_mix
    written, product = head_rows(layer, mix, reference_mix)
    changes = torch.cat([changes, written], 1)
    products = products if product is None else [*products, product.to(model.device)]
    stream = reference.mlp_in[index][where_layer] + read(mlp).squeeze(1)
    change = layer.run_mlp(stream) - reference.mlp_out[index][where_layer]
    changes = torch.cat([changes, change[:, None]], 1)
    return reference.final[where] + read(logits).squeeze(1).to(model.device)


def _running_heads(model: Transformer, weights: Tensor, reference: Trace) -> list[Tensor]:
    """Return, per layer, the heads that run (indices on the CPU); at least one.

    All heads run if a norm follows them, or if the reference is no run: then heads have a change without reading any.
    """
    graph, n_heads = model.graph, model.graph.n_heads
    if model.has_post_norm or not reference.is_run:
        return [torch.arange(n_heads)] * graph.n_layers
    has_weight = (weights != 0).view(-1, weights.shape[-1]).any(0)
    mask = has_weight.view(graph.n_edges, -1).any(1).cpu().numpy()
    attention = [mask[block].reshape(-1, n_heads, 3).any(2) for block in graph.blocks[:-1:2]]
    mlp = [mask[block] for block in graph.blocks[1::2]]
    changed, needed = np.zeros(graph.n_sources, bool), mask[graph.blocks[-1]].copy()
    changed[0] = True
    for layer in range(graph.n_layers):
        n_before = graph.attention_sources(layer)
        changed[n_before : n_before + n_heads] = changed[:n_before] @ attention[layer]
        changed[graph.mlp_source(layer)] = changed[: len(mlp[layer])] @ mlp[layer]
    for layer in reversed(range(graph.n_layers)):
        n_before = graph.attention_sources(layer)
        needed[: len(mlp[layer])] |= mlp[layer] & needed[graph.mlp_source(layer)]
        needed[:n_before] |= attention[layer] @ needed[n_before : n_before + n_heads]
    runs = (changed | needed)[1:].reshape(graph.n_layers, -1)[:, :-1]
    runs[:, 0] |= ~runs.any(1)
    return [torch.tensor(np.flatnonzero(row)) for row in runs]


def _by_reader(graph: Graph, block: Tensor, heads: Tensor, sources: Tensor) -> Tensor:
    """Return the weights of a layer's attention as [group, reader, source], for all q, then all k, then all v."""
    # [source, head, qkv], the order of edges -> [(qkv, head), source]
    by_source = take(block.unflatten(1, (-1, graph.n_heads, 3)), 1, sources)
    return take(by_source, 2, heads).permute(0, 3, 2, 1).flatten(1, 2)


def _source_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor]) -> Tensor:
    """Return how to mix rows, from weights [group, reader, source] of the sources from `input` on.

    The result is [group, reader, row], or [place, reader, row] if there are `products`.
    """
    if not products:
        return weights
    rest = _layer_mixing(graph, weights[..., 1:], products)
    return torch.cat([weights[..., :1].repeat_interleave(len(rest) // len(weights), 0), rest], -1)


def _layer_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor]) -> Tensor:
    """Return how to mix the rows of layers, from weights of their heads and MLPs; the last layer may lack its MLP.

    products  per layer, [place, 1 + head, 1 + head] from `head_rows`; empty if no norm follows attention
    """
    if not products:
        return weights
    n_layers = -(-weights.shape[2] // (graph.n_heads + 1))
    n_missing = n_layers * (graph.n_heads + 1) - weights.shape[2]
    by_place = weights.repeat_interleave(len(products[0]) // len(weights), 0)
    by_layer = F.pad(by_place, (0, n_missing)).unflatten(2, (n_layers, -1))
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
    """Return q, k or v [batch, position, head, d_head] from the outputs of `Read`: scaled, with biases.

    A norm over all heads has a weight instead of biases.
    """
    norm, n_heads, scaled = layer.attention_norm, layer.out.shape[1], []
    for projection, values, squared in zip(
        projections, projected.split(n_heads), squares.split(n_heads, 1), strict=True
    ):
        if (scaling := projection.norm or norm) is not None:
            inverse_scale = torch.rsqrt(squared / scaling.stored_weight.shape[0] + scaling.eps).to(projected.dtype)
            values = values * inverse_scale.T[..., None]
        values = values.unflatten(1, (-1, length)).permute(1, 2, 0, 3)
        if projection.norm is not None:
            values = values * projection.head_norm_weight
        elif (offset := projection.offset(norm)) is not None:
            values = values + offset
        scaled.append(values)
    return tuple(scaled)
