"""Runs of circuits: every destination reads in-circuit sources from this run, and all others from the reference run
(under patching, the corrupted run).

Only the nodes of the circuits run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

The logits are read at one position. A node whose output reaches them through no key or value of another head matters
only at that position, so it runs only there. The other nodes run at all positions.

A table has one row per node that runs: how its output differs from that in the reference. Its first two rows are the
reference's stream and the change of `input`.

Several circuits run as one graph of all their nodes, so that a few large products replace many small ones. Products
with the model's weights take most of the time. Sums over edges read the changes of one position after the other, which
fit into a processor's cache, and their time grows with the number of edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.circuit import Circuit
from ..graph import Graph
from .forward import Frame, Trace, add_positions, attend, frame_at, join_heads, sum_heads
from .memory import NORMED_AT_ONCE
from .transformer import Layer, Norm, Transformer

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
# The first rows of every table: the reference's stream at the current readers, and the change of `input`.
STREAM, INPUT, FIRST_FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Sums:
    """The rows of a table that each reader sums: `rows` [term]; those of a reader begin at its `starts` [reader]."""

    rows: Ints
    starts: Ints


@dataclass(frozen=True, eq=False)
class Reading:
    """What readers sum: the reference's stream and changes of sources.

    through_norms  if a norm follows attention, heads are not part of `sums`; instead, per layer whose heads are read:
                   the layer, the readers of its heads, and their sums
    """

    sums: Sums
    through_norms: tuple[tuple[int, Ints, Sums], ...] = ()


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of heads that are read from one table.

    letters  pairs of 0, 1 or 2 for q, k or v, and the nodes that read something there; readers are in this order
    """

    letters: tuple[tuple[int, Ints], ...]
    reading: Reading


@dataclass(frozen=True, eq=False)
class Heads:
    """Heads of one layer, in all circuits, that run at the same positions.

    heads                [node] the head of each node, in ascending order
    at_last, everywhere  inputs that are read at the last position, and at all positions; None if there are none
    rows, last_rows      the rows of their changes in the table of all positions (None if they run only at the last),
                         and in the table of the last position
    """

    heads: Ints
    at_last: Inputs | None
    everywhere: Inputs | None
    rows: slice | None
    last_rows: slice


@dataclass(frozen=True, eq=False)
class Mlps:
    """MLPs of one layer, in all circuits, that run at the same positions; rows as for `Heads`."""

    reading: Reading
    rows: slice | None
    last_rows: slice


@dataclass(frozen=True, eq=False)
class CircuitsPlan:
    """The steps of a run of circuits.

    ends    after each layer, how many rows are filled in the two tables of changes of node outputs: (table of all
            positions, table of the last position)
    layers  per layer, groups of heads and groups of MLPs
    logits  what the logits of every circuit read at the last position
    """

    ends: tuple[tuple[int, int], ...]
    layers: tuple[tuple[tuple[Heads, ...], tuple[Mlps, ...]], ...]
    logits: Reading


def plan_circuits(circuits: Sequence[Circuit], through_norms: bool = False) -> CircuitsPlan:
    """Return which nodes must run for circuits of one graph, and at which positions.

    through_norms  whether a norm follows attention
    """
    graph = circuits[0].graph
    inside = np.zeros((len(circuits), graph.n_sources, graph.n_destinations), bool)
    inside[:, graph.edge_source, graph.edge_destination] = [circuit.mask for circuit in circuits]
    running = np.stack([circuit.nodes[:-1] for circuit in circuits])
    everywhere = _runs_everywhere(graph, inside)
    planner = _Planner(graph, inside, through_norms)
    layers, ends = [], []
    for index in range(graph.n_layers):
        first, mlp = graph.attention_sources(index), graph.mlp_source(index)
        nodes = first + np.arange(graph.n_heads)
        heads, mlps = [], []
        for wide in (True, False):
            heads.append(planner.plan_heads(index, running[:, nodes] & (everywhere[:, nodes] == wide), wide))
        for wide in (True, False):
            mlps.append(planner.plan_mlps(index, running[:, mlp] & (everywhere[:, mlp] == wide), wide))
        layers.append((tuple(filter(None, heads)), tuple(filter(None, mlps))))
        ends.append((planner.n_rows, planner.n_last_rows))
    logits = planner.plan_reading(planner.last, np.arange(len(circuits)), inside[:, :, -1])
    return CircuitsPlan(tuple(ends), tuple(layers), logits)


def _runs_everywhere(graph: Graph, inside: Bools) -> Bools:
    """Return [circuit, source] whether a node's output matters at other positions than the last.

    This is so if a key or value reads it, or a query or MLP that itself matters at other positions than the last.
    """
    everywhere = np.zeros((len(inside), graph.n_sources), bool)
    wide = np.zeros((len(inside), graph.n_destinations), bool)  # destinations that are read at all positions
    for layer in range(graph.n_layers):
        queries = graph.attention_destinations(layer).start
        wide[:, queries + graph.n_heads : queries + 3 * graph.n_heads] = True
    for layer in reversed(range(graph.n_layers)):
        mlp = graph.mlp_source(layer)
        everywhere[:, mlp] = (inside[:, mlp] & wide).any(1)
        wide[:, graph.mlp_destination(layer)] = everywhere[:, mlp]
        heads = graph.attention_sources(layer) + np.arange(graph.n_heads)
        everywhere[:, heads] = (inside[:, heads] & wide[:, None]).any(2)
        wide[:, graph.attention_destinations(layer).start + np.arange(graph.n_heads)] = everywhere[:, heads]
    everywhere[:, 0] = True
    return everywhere


class _Planner:
    """Assign rows to nodes, in the order in which the nodes run.

    full, last  [circuit, source] a node's row in the table of all positions, and in that of the last position
    """

    def __init__(self, graph: Graph, inside: Bools, through_norms: bool) -> None:
        self.graph = graph
        self.inside = inside
        self.through_norms = through_norms
        self.n_rows = self.n_last_rows = FIRST_FREE
        self.full, self.last = np.full((2, *inside.shape[:2]), INPUT, np.intp)

    def plan_heads(self, layer: int, chosen: Bools, wide: bool) -> Heads | None:
        """Return the group of heads `chosen` [circuit, head], which run at all positions if `wide`."""
        heads, circuits = np.nonzero(chosen.T)
        if not len(heads):
            return None
        first = self.graph.attention_sources(layer)
        queries = self.graph.attention_destinations(layer).start
        read = [self.inside[circuits, :first, queries + letter * self.graph.n_heads + heads] for letter in range(3)]
        at_last = None if wide else self._plan_inputs(self.last, circuits, {0: read[0]})
        letters = (0, 1, 2) if wide else (1, 2)
        everywhere = self._plan_inputs(self.full, circuits, {letter: read[letter] for letter in letters})
        return Heads(heads, at_last, everywhere, *self._assign_rows(circuits, first + heads, wide))

    def plan_mlps(self, layer: int, chosen: Bools, wide: bool) -> Mlps | None:
        """Return the group of MLPs `chosen` [circuit], which run at all positions if `wide`."""
        circuits = np.flatnonzero(chosen)
        if not len(circuits):
            return None
        read = self.inside[circuits, : self.graph.mlp_sources(layer), self.graph.mlp_destination(layer)]
        reading = self.plan_reading(self.full if wide else self.last, circuits, read)
        sources = np.full(len(circuits), self.graph.mlp_source(layer))
        return Mlps(reading, *self._assign_rows(circuits, sources, wide))

    def plan_reading(self, table: Ints, circuits: Ints, edges: Bools) -> Reading:
        """Return what readers, each of one of `circuits` [reader], sum for their edges [reader, source]."""
        joined = []
        if self.through_norms:
            edges = edges.copy()
            for layer in range(self.graph.n_layers):
                first = self.graph.attention_sources(layer)
                heads = slice(first, first + self.graph.n_heads)
                readers = np.flatnonzero(edges[:, heads].any(1))
                if len(readers):
                    rows = table[circuits[readers], heads]
                    joined.append((layer, readers, _sum_edges(rows, edges[readers, heads])))
                edges[:, heads] = False
        stream = np.full((len(edges), 1), STREAM)
        rows = np.concatenate([stream, table[circuits, : edges.shape[1]]], 1)
        return Reading(_sum_edges(rows, np.concatenate([stream == STREAM, edges], 1)), tuple(joined))

    def _plan_inputs(self, table: Ints, circuits: Ints, edges: dict[int, Bools]) -> Inputs | None:
        """Return the inputs of nodes of `circuits` [node], from the edges [node, source] of each letter."""
        nodes = {letter: np.flatnonzero(mask.any(1)) for letter, mask in edges.items() if mask.any()}
        if not nodes:
            return None
        reader_circuits = np.concatenate([circuits[readers] for readers in nodes.values()])
        reader_edges = np.concatenate([edges[letter][readers] for letter, readers in nodes.items()])
        return Inputs(tuple(nodes.items()), self.plan_reading(table, reader_circuits, reader_edges))

    def _assign_rows(self, circuits: Ints, sources: Ints, wide: bool) -> tuple[slice | None, slice]:
        """Assign the next rows to nodes. Return the rows in the table of all positions, and of the last position."""
        rows = None
        if wide:
            rows = slice(self.n_rows, self.n_rows + len(sources))
            self.full[circuits, sources] = np.arange(rows.start, rows.stop)
            self.n_rows = rows.stop
        last_rows = slice(self.n_last_rows, self.n_last_rows + len(sources))
        self.last[circuits, sources] = np.arange(last_rows.start, last_rows.stop)
        self.n_last_rows = last_rows.stop
        return rows, last_rows


def _sum_edges(rows: Ints, edges: Bools) -> Sums:
    """Return the sums over the rows [reader, source] that have an edge."""
    return Sums(rows[edges], np.cumsum([0, *edges.sum(1)])[:-1])


def reference_from_sources(model: Transformer, sources: Trace, frame: Frame) -> Trace:
    """Return a reference in which every source has a fixed output: `embedding`, `mix` and `mlp_out` of `sources`."""
    mix, mlp_out = (
        tuple(part.to(layer.device) for part, layer in zip(parts, model.layers, strict=True))
        for parts in (sources.mix, sources.mlp_out)
    )
    x = add_positions(model, sources.embedding, frame)
    attention_in: list[Tensor] = []
    mlp_in: list[Tensor] = []
    qkv: tuple[list[Tensor], ...] = ([], [], [])
    for index, layer in enumerate(model.layers):
        x = x.to(layer.device)
        attention_in.append(x)
        for values, value in zip(qkv, layer.project(layer.attention_norm(x)), strict=True):
            values.append(value)
        mid = x + join_heads(layer, mix[index])
        mlp_in.append(x if model.graph.parallel else mid)
        x = mid + mlp_out[index]
    q, k, v = (tuple(part) for part in qkv)
    return Trace(sources.embedding, tuple(attention_in), q, k, v, mix, tuple(mlp_in), mlp_out, x.to(model.device))


def run_circuits(
    model: Transformer, plan: CircuitsPlan, clean: Tensor, reference: Trace, frame: Frame, last: Tensor
) -> Tensor:
    """Return the streams [circuit, example, d_model] that the logits read at each example's last position.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    """
    batch, length, _ = clean.shape
    last_places = torch.arange(batch, device=last.device) * length + last
    last_frame = frame_at(frame, (torch.arange(batch, device=last.device), last))
    change = (clean - reference.embedding).flatten(0, 1)
    ends, last_ends = zip(*(plan.ends[span[-1]] for span in model.spans), strict=True)
    full, at_last = Table(model, ends, change), Table(model, last_ends, change[last_places])
    for index, layer in enumerate(model.layers):
        head_groups, mlp_groups = plan.layers[index]
        at = last_places.to(layer.device)
        stream, reference_mix = (x[index].flatten(0, 1) for x in (reference.attention_in, reference.mix))
        full.store_mix(index, reference_mix)
        at_last.store_mix(index, reference_mix[at])
        for group in head_groups:
            reference_qkv = [x[index].flatten(0, 1) for x in (reference.q, reference.k, reference.v)]
            if group.rows is None:
                reference_qkv[0] = reference_qkv[0][at]
            projected: dict[int, Tensor] = {}
            for table, inputs, base in ((at_last, group.at_last, stream[at]), (full, group.everywhere, stream)):
                if inputs is not None:
                    # No name for the streams, so that they are freed before the next are read.
                    projected |= _project(layer, inputs, group.heads, table.read(inputs.reading, base), reference_qkv)
            parts = (projected[i] if i in projected else x[:, group.heads] for i, x in enumerate(reference_qkv))
            q, k, v = (x.unflatten(0, (batch, -1)) for x in parts)
            heads = torch.as_tensor(group.heads, device=layer.device)
            query_frame = last_frame if group.rows is None else None
            mix = attend(model, index, q, k, v, frame, heads, query_frame).flatten(0, 1)
            before = reference_mix[at] if group.rows is None else reference_mix
            out = at_last.view(group.last_rows) if group.rows is None else full.view(group.rows)
            # Head by head: gathering the weights of several heads would copy them, which is slower than the products.
            mix = mix - before[:, group.heads]
            for head, nodes in _equal_ranges(group.heads):
                _multiply(mix[:, nodes], layer.out[:, head], out[:, nodes])
            if group.rows is not None:
                at_last.view(group.last_rows).copy_(out[at])
        for mlp in mlp_groups:
            base, before = (x[index].flatten(0, 1) for x in (reference.mlp_in, reference.mlp_out))
            if mlp.rows is None:
                base, before = base[at], before[at]
            streams = (at_last if mlp.rows is None else full).read(mlp.reading, base)
            out = at_last.view(mlp.last_rows) if mlp.rows is None else full.view(mlp.rows)
            torch.sub(layer.mlp(layer.mlp_norm(streams)), before[:, None], out=out)
            if mlp.rows is not None:
                at_last.view(mlp.last_rows).copy_(out[at])
    return at_last.read(plan.logits, reference.final.flatten(0, 1)[last_places]).transpose(0, 1)


class Table:
    """The changes of node outputs from the reference: rows [place, row, d_model].

    A place is one position of one example. Rows are on the device of their node's layer, `input` on that of the first.

    ends  for every span of layers on one device, the number of rows up to its end
    """

    def __init__(self, model: Transformer, ends: Sequence[int], input_change: Tensor) -> None:
        self._model = model
        self._mixes: dict[int, Tensor] = {}
        self._parts: list[tuple[int, Tensor]] = []  # (first row, rows)
        for span, first, end in zip(model.spans, (0, *ends), ends, strict=False):
            shape, device = (len(input_change), end - first, input_change.shape[-1]), model.layers[span[0]].device
            self._parts.append((first, input_change.new_empty(shape, device=device)))
        self._parts[0][1][:, INPUT] = input_change

    def view(self, rows: slice) -> Tensor:
        """Return a view [place, row, d_model] of rows of one layer, to write to."""
        first, part = next(part for part in reversed(self._parts) if part[0] <= rows.start)
        return part[:, rows.start - first : rows.stop - first]

    def store_mix(self, layer: int, mix: Tensor) -> None:
        """Store the reference's mixes [place, head, d_head] of a layer, for a norm after attention."""
        self._mixes[layer] = mix

    def read(self, reading: Reading, stream: Tensor) -> Tensor:
        """Return what readers read [place, reader, d_model]: the reference's stream [place, d_model] plus changes."""
        self._parts[0][1][:, STREAM] = stream
        total = self._sum(reading.sums, stream.device)
        for index, readers, sums in reading.through_norms:
            layer = self._model.layers[index]
            assert layer.post_norm is not None
            before = sum_heads(layer, self._mixes[index])[:, None]
            change = self._sum(sums, layer.device).add_(before)
            _norm_in_place(layer.post_norm, change)
            total[:, readers] += change.sub_(layer.post_norm(before)).to(total.device)
        return total

    def _sum(self, sums: Sums, device: torch.device) -> Tensor:
        """Return sums [place, reader, d_model] on a device; rows are summed on their own device."""
        first, *others = (_sum_rows(part, part_sums).to(device) for part, part_sums in self._split(sums))
        for other in others:
            first += other
        return first

    def _split(self, sums: Sums) -> Iterator[tuple[Tensor, Sums]]:
        """Yield the parts that have rows of `sums`, with the sums over these rows."""
        if len(self._parts) == 1:
            yield self._parts[0][1], sums
            return
        for first, part in self._parts:
            in_part = (sums.rows >= first) & (sums.rows < first + part.shape[1])
            if in_part.any():
                starts = np.searchsorted(np.flatnonzero(in_part), sums.starts)
                yield part, Sums(sums.rows[in_part] - first, starts)


def _sum_rows(rows: Tensor, sums: Sums) -> Tensor:
    """Return sums [place, reader, d_model] of rows [place, row, d_model], place by place.

    Sums of half-precision numbers are computed in float32.
    """
    n_places, n_rows, width = rows.shape
    places = torch.arange(n_places, device=rows.device)[:, None]
    terms, starts = (torch.as_tensor(x, device=rows.device) for x in (sums.rows, sums.starts))
    index, offsets = (places * n_rows + terms).flatten(), (places * len(terms) + starts).flatten()
    return F.embedding_bag(index, rows.view(-1, width), offsets, mode="sum").view(n_places, len(starts), width)


def _norm_in_place(norm: Norm, streams: Tensor) -> None:
    """Replace streams [place, reader, d_model] by their norm."""
    for block in streams.flatten(0, 1).split(max(1, NORMED_AT_ONCE // streams.shape[-1])):
        block.copy_(norm(block))


def _project(
    layer: Layer, inputs: Inputs, heads: Ints, streams: Tensor, reference_qkv: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Return, by letter, q, k or v [place, node, d_head] of all nodes from streams [place, reader, d_model].

    reference_qkv  the reference's q, k and v [place, head, d_head], for nodes that read nothing there

    `streams` may be normalised in place.
    """
    norm, first = layer.attention_norm, 0
    projected = {}
    # A layer norm is one kernel. An RMS norm is several, each over all streams. So its scale, one number per stream,
    # multiplies the projected values, except in half precision, where products of unscaled streams might overflow.
    inverse_scale = None if norm.centred or streams.dtype.itemsize < 4 else _inverse_scale(norm, streams)
    if inverse_scale is None:
        _norm_in_place(norm, streams)
    for letter, nodes in inputs.letters:
        projection = layer.qkv[letter]
        readers, stored = slice(first, first + len(nodes)), heads[nodes] // projection.group
        values = streams.new_empty((len(streams), len(nodes), projection.weight.shape[1]))
        for head, equal in _equal_ranges(stored):
            weight = projection.weight[head] if inverse_scale is None else projection.weight[head] * norm.weight
            _multiply(streams[:, readers][:, equal], weight, values[:, equal])
        if inverse_scale is not None:
            values *= inverse_scale[:, readers]
        if projection.bias is not None:
            values += projection.bias[stored]
        if len(nodes) < len(heads):
            read_values, values = values, reference_qkv[letter][:, heads]
            values[:, nodes] = read_values
        projected[letter] = values
        first = readers.stop
    return projected


def _inverse_scale(norm: Norm, streams: Tensor) -> Tensor:
    """Return the inverse scale [place, reader, 1] of an RMS norm."""
    squares = torch.linalg.vector_norm(streams, dim=-1, keepdim=True).square()
    return torch.rsqrt(squares / streams.shape[-1] + norm.eps)


def _multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write x [place, node, in] times weight [out, in] to `out` [place, node, out], in one product."""
    if x.shape[1] == 1:
        torch.mm(x[:, 0], weight.T, out=out[:, 0])
    else:
        out.copy_((x.flatten(0, 1) @ weight.T).view_as(out))


def _equal_ranges(values: Ints) -> Iterator[tuple[int, slice]]:
    """Yield every value of an ascending sequence with the range of its positions."""
    starts = np.flatnonzero(np.diff(values, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), slice(start, stop)
