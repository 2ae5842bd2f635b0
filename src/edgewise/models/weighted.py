"""Runs of weighted circuits: every edge has a weight between 0 and 1.

input of v = the reference's stream at v + sum over u->v of weight(u->v) (u's output - the reference's output of u).

Weights of 0 and 1 give the result of `circuits.run_circuits` for the edges of weight 1. Here, the result can be
differentiated with respect to the weights. Each q, k and v of each head reads its own stream, so a layer with H heads
mixes 3H streams from all earlier sources. To keep it cheap:

- Streams are never normalised. The norm's weight is folded into the projection, and its scale, one number per stream,
  multiplies the projected values. The same holds for a norm over the outputs of all heads.
- The MLP's stream, without the layer's own heads, is mixed together with those of the heads.
- The queries of the last layer, its MLP and the logits run at the last position only.
- Heads run only if they have a change or a gradient: if edges of nonzero weight lead from `input` to them, or from them
  to the logits. All edges of other heads have a gradient of 0.

Weights of (edge, span) pairs differ between positions. They are spread to places (positions of examples), which mix
streams as examples with weights of their own do.

The changes of all sources are in one buffer. A change is a source's output in this run minus its output in the
reference run. Readers mix changes into streams with one large product per layer. Plain autograd would normalise the
result (3 streams per head) into a copy, and give every read a gradient as large as the whole buffer. So reads and
writes are autograd functions that share one buffer of gradients: a read adds to the gradients of the rows that it read,
a write takes the gradients of the rows it wrote.

A write returns its rows at the last position. They must be passed to the next read as `after`. This tells autograd that
the gradients of written rows are complete only after the backward pass of all later reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import InputError
from ..graph import Graph
from .forward import Frame, Trace, attend, frame_at, sum_heads
from .transformer import Layer, Projection, Transformer, at_least_float32, take


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
        layer, heads, n_before = whole_layer.part(running[index]), running[index], graph.n_attention_sources(index)
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
        sources = torch.cat([sources, n_before + heads, sources.new_tensor([graph.mlp_source_index(index)])])
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
    own_heads = graph.n_attention_sources(index) + heads
    mlp_sources = sources if graph.parallel else torch.cat([sources, own_heads])
    all_sources = torch.cat([sources, own_heads, sources.new_tensor([graph.n_sources - 1])])

    def at_reads(block: Tensor) -> Tensor:
        """Return weights [group or place, reader, source] at the positions that the metric reads."""
        if len(block) == rows.places:
            return block.index_select(0, rows.last.to(block.device))
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
    products = [product[rows.last.to(product.device)] for product in products]

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
        n_before = graph.n_attention_sources(layer)
        changed[n_before : n_before + n_heads] = changed[:n_before] @ attention[layer]
        changed[graph.mlp_source_index(layer)] = changed[: len(mlp[layer])] @ mlp[layer]
    for layer in reversed(range(graph.n_layers)):
        n_before = graph.n_attention_sources(layer)
        needed[: len(mlp[layer])] |= mlp[layer] & needed[graph.mlp_source_index(layer)]
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


@dataclass
class Part:
    """Consecutive rows on one device: their numbers, changes [place, row, d_model] and gradients."""

    rows: slice
    changes: Tensor
    gradients: Tensor | None = None


class Rows:
    """Changes [place, row, d_model]; a place is one position of one example.

    As `circuits.Table`, but differentiable, with a fixed row per node.

    Rows are `input`, then per layer its heads and its MLP, except for the last layer. If a norm follows attention, the
    heads of a layer have one more row (`head_rows`). If the model has layer norms, the mean of each row is removed,
    because no reader sees it. All layers of a model have the same kinds of norms. Rows are on their layer's device.

    n_heads  per layer, the number of heads that run
    last     the places [example * read] that the logits read; all are different
    keeps    whether streams are kept for the backward pass, or mixed again
    count    the number of rows written so far
    """

    def __init__(self, model: Transformer, n_heads: Sequence[int], length: int, last: Tensor, keeps: bool) -> None:
        graph, first_layer, batch = model.graph, model.layers[0], len(last)
        per_layer = [count + (1 if first_layer.post_norm is None else 2) for count in n_heads[:-1]]
        self.places, self.count, self.keeps = batch * length, 0, keeps
        self._width, self._max_readers = graph.d_model, 3 * max(n_heads) + 1
        self._centred = first_layer.attention_norm is not None and first_layer.attention_norm.centred
        self.last = (torch.arange(batch, device=last.device)[:, None] * length + last).flatten()
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}
        self._parts: list[Part] = []
        start = 0
        for layers in model.device_ranges:
            stop = start + sum(per_layer[layers.start : layers.stop]) + (not self._parts)
            changes = model.layers[layers.start].out.new_empty((self.places, stop - start, self._width))
            self._parts.append(Part(slice(start, stop), changes))
            start = stop
        self.n_rows = start

    def take(self, rows: slice) -> list[Part]:
        """Return views of consecutive rows, in one part per device. Rows of one layer are in one part."""
        parts = []
        for whole in self._parts:
            first, stop = max(rows.start, whole.rows.start), min(rows.stop, whole.rows.stop)
            if first < stop:
                local = slice(first - whole.rows.start, stop - whole.rows.start)
                gradients = None if whole.gradients is None else whole.gradients[:, local]
                parts.append(Part(slice(first, stop), whole.changes[:, local], gradients))
        return parts

    def buffer(self, name: str, readers: int, like: Tensor) -> Tensor:
        """Return a buffer [place, reader, d_model] for a layer's streams, which all layers of a device share."""
        key = (name, like.device)
        if key not in self._buffers:
            self._buffers[key] = like.new_empty(self.places * self._max_readers * self._width)
        return self._buffers[key][: self.places * readers * self._width].view(self.places, readers, self._width)

    def spread(self, mixing: Tensor, like: Tensor) -> Tensor:
        """Return `mixing` [group, ...] or [place, ...] as [place, ...], in the dtype and on the device of `like`."""
        return mixing.to(like).repeat_interleave(self.places // len(mixing), 0)

    def reserve(self, count: int) -> tuple[slice, Tensor]:
        """Return the numbers of the next rows to write, and a view of them [place, row, d_model]."""
        rows = slice(self.count, self.count + count)
        self.count = rows.stop
        return rows, self.take(rows)[0].changes

    def centre(self, x: Tensor) -> Tensor:
        """Subtract the mean of x [..., d_model] in place if the model has layer norms."""
        return x.sub_(x.mean(-1, keepdim=True)) if self._centred else x

    def add_gradients(self, mixing: Tensor, streams: Tensor) -> Tensor:
        """Add the gradient of `streams` [place, reader, d_model] to the rows that they were mixed from.

        Return the gradient of `mixing`. The backward pass begins with the readers of the last layer, which read all
        rows, and ends with those of the first, which read only the row of `input`, whose gradient is not needed.
        """
        count, mixing_gradients = mixing.shape[2], []
        for whole, part in zip(self._parts, self.take(slice(0, count)), strict=False):
            moved = streams.to(part.changes.device)
            if count > 1:
                weights = self.spread(mixing[..., part.rows], moved).transpose(1, 2)
                if count == self.n_rows:
                    whole.gradients = torch.bmm(weights, moved)
                else:
                    assert part.gradients is not None
                    part.gradients.baddbmm_(weights, moved)
            products = torch.bmm(moved, part.changes.transpose(1, 2)).unflatten(0, (len(mixing), -1))
            mixing_gradients.append(products.sum(1, dtype=mixing.dtype).to(mixing.device))
        if count == 1:
            for part in self._parts:
                part.gradients = None
        return mixing_gradients[0] if len(mixing_gradients) == 1 else torch.cat(mixing_gradients, 2)

    def take_gradients(self, rows: slice, at_last: Tensor) -> Tensor:
        """Return the gradient [place, row, d_model] of written rows.

        `at_last` is the gradient of the value that the write returned. Call once per row: it changes the gradients in
        place.
        """
        gradients = self.take(rows)[0].gradients
        assert gradients is not None
        gradients = self.centre(gradients)
        gradients[self.last.to(gradients.device)] += at_last
        return gradients


class Read(torch.autograd.Function):
    """Mix the first rows into streams, add the reference's stream [place, d_model], and project the result.

    mixing       [place, reader, row], or [group, reader, row] for groups of consecutive places
    projections  each for as many readers as it has heads; the mix of one more reader is returned unprojected

    Return the projections [reader, place, d_head] of the streams before a norm scales them; squared lengths
    [place, reader], from which the scale follows; the last reader's mix [place, d_model] or None. The lengths are those
    of the streams, and the projections are without biases. For a projection with a norm over all heads, the lengths are
    those of the outputs of all heads, and biases are included.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mixing: Tensor,
        rows: Rows,
        layer: Layer,
        projections: Sequence[Projection],
        reference: Tensor,
        *after: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        n_heads = layer.out.shape[1]
        n_projected = n_heads * len(projections)
        reference = rows.centre(reference.clone())
        streams = _mix_streams(rows, mixing, reference, n_projected)
        head_streams = streams[:, :n_projected]
        sum_dtype = at_least_float32(head_streams[:1, :1]).dtype
        squares = torch.linalg.vector_norm(head_streams, dim=-1, dtype=sum_dtype).square()
        parts = zip(projections, head_streams.split(n_heads, 1), squares.split(n_heads, 1), strict=True)
        outputs: list[Tensor] = []  # [head, place, d_head]
        for projection, inputs, lengths in parts:
            if projection.norm is None:
                outputs.append(torch.bmm(inputs.transpose(0, 1), _fold_norm(layer, projection).transpose(1, 2)))
                continue
            for head, stream in enumerate(inputs.unbind(1)):
                values = projection.all_heads(stream)
                head_values = values.unflatten(1, projection.weight.shape[:2])[:, head // projection.group]
                outputs.append(head_values[None])
                lengths[:, head] = torch.linalg.vector_norm(values, dim=-1, dtype=sum_dtype).square()
        projected = torch.cat(outputs)
        ctx.save_for_backward(mixing, reference, *[streams] * rows.keeps)
        ctx.arguments = rows, layer, projections
        return projected, squares, streams[:, -1].clone() if n_projected < streams.shape[1] else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mixing, reference, *saved_streams), (rows, layer, projections) = ctx.saved_tensors, ctx.arguments
        projected, squares, last_stream = gradients
        n_projected = len(projected)
        streams = saved_streams[0] if saved_streams else _mix_streams(rows, mixing, reference, n_projected)
        stream_gradients = rows.buffer("gradients", mixing.shape[1], streams)
        n_heads, scale = layer.out.shape[1], squares.to(streams.dtype)[..., None]
        readers = [slice(index * n_heads, (index + 1) * n_heads) for index in range(len(projections))]
        for projection, heads in zip(projections, readers, strict=True):
            if projection.norm is None:
                weight = _fold_norm(layer, projection)
                torch.bmm(projected[heads], weight, out=stream_gradients[:, heads].transpose(0, 1))
        stream_gradients[:, :n_projected].addcmul_(streams[:, :n_projected], scale, value=2)
        for projection, heads in zip(projections, readers, strict=True):
            if projection.norm is not None:
                for head, reader in enumerate(range(heads.start, heads.stop)):
                    outputs = projection.all_heads(streams[:, reader]).mul_(2 * scale[:, reader])
                    outputs.unflatten(1, projection.weight.shape[:2])[:, head // projection.group] += projected[reader]
                    stream_gradients[:, reader] = outputs @ projection.weight.flatten(0, 1)
        if last_stream is not None:
            stream_gradients[:, -1] = last_stream
        return rows.add_gradients(mixing, stream_gradients), *[None] * (len(ctx.needs_input_grad) - 1)


class MixOne(torch.autograd.Function):
    """Mix the rows from `first` on for one reader, [place, d_model]; `mixing` as for `Read`."""

    @staticmethod
    def forward(ctx: Any, mixing: Tensor, rows: Rows, first: int, after: Tensor) -> Tensor:
        read_rows = slice(first, first + mixing.shape[2])
        ctx.save_for_backward(mixing)
        ctx.arguments = rows, read_rows
        changes = rows.take(read_rows)[0].changes
        return torch.bmm(rows.spread(mixing, changes), changes).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mixing,), (rows, read_rows) = ctx.saved_tensors, ctx.arguments
        stream, part = gradients[0][:, None], rows.take(read_rows)[0]
        part.gradients.addcmul_(rows.spread(mixing, stream).transpose(1, 2), stream)
        products = torch.bmm(stream, part.changes.transpose(1, 2)).unflatten(0, (len(mixing), -1))
        return products.sum(1, dtype=mixing.dtype).to(mixing.device), None, None, None


class WriteOutput(torch.autograd.Function):
    """Write the change [place, d_model] of one source. Return it where logits read, [example * read, 1, d_model]."""

    @staticmethod
    def forward(ctx: Any, change: Tensor, rows: Rows) -> Tensor:
        written_rows, view = rows.reserve(1)
        view.copy_(change[:, None])
        at_last = view[rows.last.to(view.device)]
        rows.centre(view)
        ctx.arguments = rows, written_rows
        return at_last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, written_rows = ctx.arguments
        return rows.take_gradients(written_rows, gradients[0]).squeeze(1), None


class WriteHeads(torch.autograd.Function):
    """Write the `head_rows` of a layer whose mixes change by `mix` [place, head, d_head].

    Return these rows where the logits read, [example * read, row, d_model], and the products of `head_rows`.
    """

    @staticmethod
    def forward(ctx: Any, mix: Tensor, rows: Rows, layer: Layer, reference_mix: Tensor) -> tuple[Tensor, Tensor | None]:
        if layer.post_norm is None:  # the same as `head_rows`, written without a copy
            written_rows, view = rows.reserve(mix.shape[1])
            torch.bmm(mix.transpose(0, 1), layer.out.permute(1, 2, 0), out=view.transpose(0, 1))
            products = None
        else:
            written, products = head_rows(layer, mix, reference_mix)
            written_rows, view = rows.reserve(written.shape[1])
            view.copy_(written)
        at_last = view[rows.last.to(view.device)]
        rows.centre(view)
        ctx.save_for_backward(mix, reference_mix)
        ctx.arguments = rows, written_rows, layer
        return at_last, products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mix, reference_mix), (rows, written_rows, layer) = ctx.saved_tensors, ctx.arguments
        row_gradients = rows.take_gradients(written_rows, gradients[0])
        if layer.post_norm is None:
            return torch.einsum("phd,dhe->phe", row_gradients, layer.out), None, None, None
        with torch.enable_grad():
            mix = mix.detach().requires_grad_()
            written, products = head_rows(layer, mix, reference_mix)
        assert products is not None
        return *torch.autograd.grad((written, products), mix, (row_gradients, gradients[1])), None, None, None


def head_rows(layer: Layer, mix: Tensor, reference_mix: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the rows [place, row, d_model] that readers mix a layer's heads from, and products for a norm after them.

    mix            [place, head, d_head] how the heads' mixes change
    reference_mix  [place, head, d_head] the mixes of the reference

    Without a norm after attention, the rows are the changes of the heads, and the products are None.

    A norm turns weighted changes into norm(before + sum of w * change) - norm(before), where `before` is the
    reference's sum of heads. With r the inverse scale of the norm's input, this is a mix, too: each change times w * r,
    and `before` times r - r(before), all times the norm's weight. So `before` is one more row, after those of the
    heads. r follows from the products [place, 1 + head, 1 + head] of `before` and the changes: means over d_model, with
    the norm's eps added to the product of `before` with itself.
    """
    changes, norm = torch.einsum("phe,dhe->phd", mix, layer.out), layer.post_norm
    if norm is None:
        return changes, None
    both = torch.cat([sum_heads(layer, reference_mix)[:, None], changes], 1)
    if norm.centred:
        both = both - both.mean(-1, keepdim=True)
    wide = at_least_float32(both)
    products = wide @ wide.transpose(1, 2) / both.shape[-1]
    products[:, 0, 0] += norm.eps
    return (both.roll(-1, 1) * norm.weight).to(both.dtype), products


def _fold_norm(layer: Layer, projection: Projection) -> Tensor:
    """Return a projection's weight [head, d_head, d_model] times the norm's weight."""
    if layer.attention_norm is None:
        return projection.head_weight
    return (projection.head_weight * layer.attention_norm.weight).to(projection.weight.dtype)


def _mix_streams(rows: Rows, mixing: Tensor, reference: Tensor, n_projected: int) -> Tensor:
    """Return mixes of rows [place, reader, d_model], with the reference's stream added to the first `n_projected`."""
    out = None if rows.keeps else rows.buffer("streams", mixing.shape[1], reference)
    streams: Tensor | None = None
    for part in rows.take(slice(0, mixing.shape[2])):
        weights = rows.spread(mixing[..., part.rows], part.changes)
        if part.changes.device != reference.device:
            moved = torch.bmm(weights, part.changes).to(reference.device)
            streams = moved if streams is None else streams.add_(moved)
        elif streams is None:
            streams = torch.bmm(weights, part.changes, out=out)
        else:
            streams.baddbmm_(weights, part.changes)
    assert streams is not None
    streams[:, :n_projected] += reference[:, None]
    return streams
