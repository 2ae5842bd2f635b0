"""Runs of weighted circuits: every edge has a weight between 0 and 1, and every node runs.

input of v = the reference's stream at v + sum over u->v of weight(u->v) (u's output - the reference's output of u).

Weights of 0 and 1 give what `circuits.run_circuits` gives for the edges of weight 1; here the result can be
differentiated with respect to the weights. Each q, k and v of each head reads a stream of its own, so what a layer
costs, beyond a plain one, is 3H streams mixed from all sources before it. They are handled in `rows`, and:

- are never normed: the norm's weight is folded into the projection, and its scale, a number per stream, is applied to
  what was projected;
- bring the MLP's stream along, up to the layer's own heads;
- aren't needed for the queries of the last layer, its MLP and the logits, which run at the last position only.
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
    """The stream [example, d_model] that the logits read at each example's last position.

    weights       [edge], or [example, edge] where each example has weights of its own. A gradient has the same shape:
                  that of weights [edge] is the sum over examples, that of `weights.expand(n_examples, -1)` each one's
                  own, for the same cost.
    clean         [batch, position, d_model] the output of the node `input` on the clean prompt
    keep_streams  whether a backward pass finds the streams of heads as they were, or mixes them again: about a tenth
                  more time for a third less memory (`memory.weighted_need`)
    """
    graph, (batch, length, _) = model.graph, clean.shape
    if weights.shape[-1] != graph.n_edges:
        raise InputError(f"there are {weights.shape[-1]} weights, but the graph has {graph.n_edges} edges")
    sizes = [block.stop - block.start for block in graph.blocks]
    # Their gradients are sums over positions and examples: at least float32, whatever the model computes in.
    wide = torch.promote_types(clean.dtype, torch.float32)
    blocks = weights.to(wide).expand(batch, -1).split(sizes, 1)
    keeps = keep_streams and weights.requires_grad and torch.is_grad_enabled()
    rows = Rows(model, batch, length, last, keeps)
    at_last: list[Tensor] = [WriteOutput.apply((clean - reference.embedding).flatten(0, 1), rows)]
    products: list[Tensor] = []
    for index, layer in enumerate(model.layers[:-1]):
        attention, mlp = _by_reader(graph, blocks[2 * index]), blocks[2 * index + 1][:, None]
        before, there = attention.shape[2], reference.attention_in[index].flatten(0, 1)
        mixing = _mixing(graph, torch.cat([attention, mlp[..., :before]], 1), products, length)
        projected, squares, stream = Read.apply(mixing, rows, layer, layer.qkv, there, *at_last[-2:])
        q, k, v = _scaled(layer, layer.qkv, projected, squares, length)
        mix = attend(model, index, q, k, v, frame) - reference.mix[index]
        first = rows.count
        heads, product = WriteHeads.apply(mix.flatten(0, 1), rows, layer, reference.mix[index].flatten(0, 1))
        own = [] if product is None else [product.to(model.device)]
        if not graph.parallel:
            stream = stream + MixOne.apply(_head_mixing(graph, mlp[..., before:], own, length), rows, first, heads)
        stream = reference.mlp_in[index] + stream.view_as(clean)
        change = layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index]
        at_last += [heads, WriteOutput.apply(change.flatten(0, 1), rows)]
        products += own
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
    """The stream at the logits. Keys and values of the last layer run everywhere, all else at the last position."""
    graph, layer, index = model.graph, model.layers[-1], model.graph.n_layers - 1
    where = (torch.arange(len(last), device=last.device), last)
    length = reference.final.shape[1]
    attention, mlp, logits = _by_reader(graph, blocks[-3]), blocks[-2][:, None], blocks[-1][:, None]
    there = reference.attention_in[index]
    mixing = _mixing(graph, attention[:, graph.n_heads :], products, length)
    read_by = (layer.k, layer.v)
    projected, squares, _ = Read.apply(mixing, rows, layer, read_by, there.flatten(0, 1), *at_last[-2:])
    k, v = _scaled(layer, read_by, projected, squares, length)
    home, where = where, (where[0].to(layer.device), where[1].to(layer.device))
    changes = torch.cat([one.to(layer.device) for one in at_last], 1)
    products = [product[rows.last_on(product.device)] for product in products]

    def read(weights: Tensor) -> Tensor:
        """[example, reader, d_model] what readers of weights [example, reader, source] see of `changes`."""
        mixing = _mixing(graph, weights, products, 1)
        return mixing.to(changes) @ changes[:, : mixing.shape[2]]

    normed = layer.attention_norm(there[where].unsqueeze(1) + read(attention[:, : graph.n_heads]))
    q = torch.einsum("bhd,hed->bhe", normed, layer.q.head_weight)
    q = q if layer.q.head_bias is None else q + layer.q.head_bias
    seen = reference.mix[index][where]
    mix = attend(model, index, q[:, None], k, v, frame, query_frame=frame_at(frame, home))[:, 0] - seen
    heads, product = head_rows(layer, mix, seen)
    changes = torch.cat([changes, heads], 1)
    products = products if product is None else [*products, product.to(model.device)]
    stream = reference.mlp_in[index][where] + read(mlp).squeeze(1)
    change = layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index][where]
    changes = torch.cat([changes, change[:, None]], 1)
    return reference.final[home] + read(logits).squeeze(1).to(model.device)


def _by_reader(graph: Graph, block: Tensor) -> Tensor:
    """[example, reader, source] the weights of a layer's attention, for all q, then all k, then all v."""
    # [source, head, qkv], the order of edges -> [(qkv, head), source]
    return block.unflatten(1, (-1, graph.n_heads, 3)).permute(0, 3, 2, 1).flatten(1, 2)


def _mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """How to mix rows, from weights [example, reader, source] of sources from `input` on.

    [example, reader, row], or [place, reader, row] if there are `products`.
    """
    if not products:
        return weights
    rest = _head_mixing(graph, weights[..., 1:], products, length)
    return torch.cat([weights[..., :1].repeat_interleave(length, 0), rest], -1)


def _head_mixing(graph: Graph, weights: Tensor, products: Sequence[Tensor], length: int) -> Tensor:
    """The same, from weights of the heads and MLPs of some layers, the last of which may lack its MLP.

    products  per layer, [place, 1 + head, 1 + head] as `head_rows` gives them; none if no norm follows attention
    """
    if not products:
        return weights
    n_layers = -(-weights.shape[2] // (graph.n_heads + 1))
    lacking = n_layers * (graph.n_heads + 1) - weights.shape[2]
    apart = F.pad(weights.repeat_interleave(length, 0), (0, lacking)).unflatten(2, (n_layers, -1))
    heads, mlp = apart[..., :-1], apart[..., -1:]
    product = torch.stack(list(products[:n_layers]), 1)
    summed = F.pad(heads, (1, 0), value=1.0).to(product.dtype)
    shrink = torch.einsum("prli,plij,prlj->prl", summed, product, summed).rsqrt()[..., None]
    change = shrink - product[:, None, :, 0, :1].rsqrt()
    mixing = torch.cat([heads * shrink.to(heads.dtype), change.to(heads.dtype), mlp], -1).flatten(2)
    return mixing[..., : mixing.shape[2] - lacking]


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
