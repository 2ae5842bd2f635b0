"""Runs of circuits: every destination reads its in-circuit sources as they are in this run, all others as in the
reference run (under patching, the corrupted one).

Only the circuits' own nodes run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

Logits are read at one position. A node whose outputs reach them through no key or value of another head matters at that
position alone, and runs there alone; the others run everywhere.

Several circuits run as one graph, of all their nodes: what many small products would take goes into few large ones.
What it costs is mostly what it must, the products with the model's weights: sums over edges read the changes of one
position after the other, which fit into a processor's cache, and cost as much as there are edges.
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
# Rows of every table: the reference's stream, as whoever reads at the moment sees it, and the change of `input`.
STREAM, INPUT, FIRST_FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Sums:
    """Which rows of a table each reader sums: `rows` [term], reader by reader, from `starts` [reader] on."""

    rows: Ints
    starts: Ints


@dataclass(frozen=True, eq=False)
class Reading:
    """What readers read: the reference's stream and changes of sources.

    through_norms  heads that join the stream through a norm aren't among the `sums`; instead, per layer that has such:
                   the layer, which of the readers read its heads, and the sums of those
    """

    sums: Sums
    through_norms: tuple[tuple[int, Ints, Sums], ...] = ()


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of heads that are read from one table.

    letters  0, 1 or 2 for q, k or v, and which of the nodes read something there; the readers in this order
    """

    letters: tuple[tuple[int, Ints], ...]
    reading: Reading


@dataclass(frozen=True, eq=False)
class Heads:
    """Nodes that are heads of a layer and run at the same positions, of all circuits.

    heads                [node] which head each is, rising
    at_last, everywhere  the inputs that are read at the last position, and at all; None for none
    rows, last_rows      where their changes go in the table of all positions (None if they run at the last one only),
                         and in that of the last one
    """

    heads: Ints
    at_last: Inputs | None
    everywhere: Inputs | None
    rows: slice | None
    last_rows: slice


@dataclass(frozen=True, eq=False)
class Mlps:
    """Nodes that are MLPs of a layer and run at the same positions, of all circuits."""

    reading: Reading
    rows: slice | None
    last_rows: slice


@dataclass(frozen=True, eq=False)
class CircuitsPlan:
    """Circuits as steps.

    ends    per layer, how many rows the tables of all positions, and of the last one, have up to and with it
    layers  per layer, groups of heads, and groups of MLPs
    logits  what the logits of every circuit read at the last position
    """

    ends: tuple[tuple[int, int], ...]
    layers: tuple[tuple[tuple[Heads, ...], tuple[Mlps, ...]], ...]
    logits: Reading


def plan_circuits(circuits: Sequence[Circuit], through_norms: bool = False) -> CircuitsPlan:
    """What has to run for circuits, mostly pruned ones, and where.

    through_norms  whether heads join the stream through a norm
    """
    graph = circuits[0].graph
    inside = np.zeros((len(circuits), graph.n_sources, graph.n_destinations), bool)
    inside[:, graph.edge_source, graph.edge_destination] = [circuit.mask for circuit in circuits]
    running = np.stack([circuit.nodes[:-1] for circuit in circuits])
    everywhere = _runs_everywhere(graph, inside)
    make = _Planner(graph, inside, through_norms)
    layers, ends = [], []
    for index in range(graph.n_layers):
        first, mlp = graph.attention_sources(index), graph.mlp_source(index)
        nodes = first + np.arange(graph.n_heads)
        heads = [make.heads(index, running[:, nodes] & (everywhere[:, nodes] == wide), wide) for wide in (True, False)]
        mlps = [make.mlps(index, running[:, mlp] & (everywhere[:, mlp] == wide), wide) for wide in (True, False)]
        layers.append((tuple(filter(None, heads)), tuple(filter(None, mlps))))
        ends.append((make.n_rows, make.n_last_rows))
    logits = make.reading(make.last, np.arange(len(circuits)), inside[:, :, -1])
    return CircuitsPlan(tuple(ends), tuple(layers), logits)


def _runs_everywhere(graph: Graph, inside: Bools) -> Bools:
    """[circuit, source] whether a node's output matters beyond the last position: a key or value reads it, or a q or an
    MLP that itself matters beyond the last position."""
    everywhere = np.zeros((len(inside), graph.n_sources), bool)
    wide = np.zeros((len(inside), graph.n_destinations), bool)  # destinations that are read at every position
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
    """Gives every node that runs its rows, in the order in which nodes are done.

    full, last  [circuit, source] a node's row in the table of all positions, and in that of the last one
    """

    def __init__(self, graph: Graph, inside: Bools, through_norms: bool) -> None:
        self.graph = graph
        self.inside = inside
        self.through_norms = through_norms
        self.n_rows = self.n_last_rows = FIRST_FREE
        self.full, self.last = np.full((2, *inside.shape[:2]), INPUT, np.intp)

    def heads(self, layer: int, chosen: Bools, wide: bool) -> Heads | None:
        """The group of heads `chosen` [circuit, head]."""
        heads, circuits = np.nonzero(chosen.T)
        if not len(heads):
            return None
        first = self.graph.attention_sources(layer)
        queries = self.graph.attention_destinations(layer).start
        read = [self.inside[circuits, :first, queries + letter * self.graph.n_heads + heads] for letter in range(3)]
        q = None if wide else self._inputs(self.last, circuits, {0: read[0]})
        rest = self._inputs(self.full, circuits, {letter: read[letter] for letter in ((0, 1, 2) if wide else (1, 2))})
        return Heads(heads, q, rest, *self._place(circuits, first + heads, wide))

    def mlps(self, layer: int, chosen: Bools, wide: bool) -> Mlps | None:
        """The group of MLPs `chosen` [circuit]."""
        circuits = np.flatnonzero(chosen)
        if not len(circuits):
            return None
        read = self.inside[circuits, : self.graph.mlp_sources(layer), self.graph.mlp_destination(layer)]
        reading = self.reading(self.full if wide else self.last, circuits, read)
        return Mlps(reading, *self._place(circuits, np.full(len(circuits), self.graph.mlp_source(layer)), wide))

    def reading(self, table: Ints, circuits: Ints, edges: Bools) -> Reading:
        """What readers of `circuits` [reader] read if they have these edges [reader, source]."""
        joined = []
        if self.through_norms:
            edges = edges.copy()
            for layer in range(self.graph.n_layers):
                first = self.graph.attention_sources(layer)
                heads = slice(first, first + self.graph.n_heads)
                readers = np.flatnonzero(edges[:, heads].any(1))
                if len(readers):
                    rows = table[circuits[readers], heads]
                    joined.append((layer, readers, _sums(rows, edges[readers, heads])))
                edges[:, heads] = False
        stream = np.full((len(edges), 1), STREAM)
        rows = np.concatenate([stream, table[circuits, : edges.shape[1]]], 1)
        return Reading(_sums(rows, np.concatenate([stream == STREAM, edges], 1)), tuple(joined))

    def _inputs(self, table: Ints, circuits: Ints, edges: dict[int, Bools]) -> Inputs | None:
        """Inputs of nodes of `circuits` [node] that have, for each letter, these edges [node, source]."""
        nodes = {letter: np.flatnonzero(some.any(1)) for letter, some in edges.items() if some.any()}
        if not nodes:
            return None
        every = np.concatenate([circuits[some] for some in nodes.values()])
        reading = self.reading(table, every, np.concatenate([edges[letter][some] for letter, some in nodes.items()]))
        return Inputs(tuple(nodes.items()), reading)

    def _place(self, circuits: Ints, sources: Ints, wide: bool) -> tuple[slice | None, slice]:
        """Give nodes the next rows."""
        rows = None
        if wide:
            rows = slice(self.n_rows, self.n_rows + len(sources))
            self.full[circuits, sources] = np.arange(rows.start, rows.stop)
            self.n_rows = rows.stop
        last_rows = slice(self.n_last_rows, self.n_last_rows + len(sources))
        self.last[circuits, sources] = np.arange(last_rows.start, last_rows.stop)
        self.n_last_rows = last_rows.stop
        return rows, last_rows


def _sums(rows: Ints, edges: Bools) -> Sums:
    """Sums over the rows [reader, source] that have an edge."""
    return Sums(rows[edges], np.cumsum([0, *edges.sum(1)])[:-1])


def reference_from_sources(model: Transformer, sources: Trace, frame: Frame) -> Trace:
    """A reference in which every source gives what `sources` (embedding, mix, mlp_out) says, whatever it reads."""
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
        for kept, part in zip(qkv, layer.project(layer.attention_norm(x)), strict=True):
            kept.append(part)
        mid = x + join_heads(layer, mix[index])
        mlp_in.append(x if model.graph.parallel else mid)
        x = mid + mlp_out[index]
    q, k, v = (tuple(part) for part in qkv)
    return Trace(sources.embedding, tuple(attention_in), q, k, v, mix, tuple(mlp_in), mlp_out, x.to(model.device))


def run_circuits(
    model: Transformer, plan: CircuitsPlan, clean: Tensor, reference: Trace, frame: Frame, last: Tensor
) -> Tensor:
    """The streams [circuit, example, d_model] that the logits read at each example's last position.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    """
    batch, length, _ = clean.shape
    at_home = at = torch.arange(batch, device=last.device) * length + last
    last_frame = frame_at(frame, (torch.arange(batch, device=last.device), last))
    change = (clean - reference.embedding).flatten(0, 1)
    ends, last_ends = zip(*(plan.ends[span[-1]] for span in model.spans), strict=True)
    full, at_last = Table(model, ends, change), Table(model, last_ends, change[at])
    for index, layer in enumerate(model.layers):
        heads, mlps = plan.layers[index]
        at = at_home.to(layer.device)
        stream, seen = (part[index].flatten(0, 1) for part in (reference.attention_in, reference.mix))
        full.join(index, seen)
        at_last.join(index, seen[at])
        for group in heads:
            unread = [part[index].flatten(0, 1) for part in (reference.q, reference.k, reference.v)]
            narrow = group.rows is None
            if narrow:
                unread[0] = unread[0][at]
            read: dict[int, Tensor] = {}
            for table, inputs, there in ((at_last, group.at_last, stream[at]), (full, group.everywhere, stream)):
                if inputs is not None:
                    read |= _project(layer, inputs, group.heads, table.read(inputs.reading, there), unread)
            parts = (read[letter] if letter in read else part[:, group.heads] for letter, part in enumerate(unread))
            q, k, v = (part.unflatten(0, (batch, -1)) for part in parts)
            which = torch.as_tensor(group.heads, device=layer.device)
            mix = attend(model, index, q, k, v, frame, which, last_frame if narrow else None).flatten(0, 1)
            before = seen[at] if narrow else seen
            room = at_last.room(group.last_rows) if group.rows is None else full.room(group.rows)
            _write_heads(layer, group.heads, mix - before[:, group.heads], room)
            if group.rows is not None:
                at_last.room(group.last_rows).copy_(room[at])
        for mlp in mlps:
            there, before = (part[index].flatten(0, 1) for part in (reference.mlp_in, reference.mlp_out))
            if mlp.rows is None:
                there, before = there[at], before[at]
            streams = (at_last if mlp.rows is None else full).read(mlp.reading, there)
            room = at_last.room(mlp.last_rows) if mlp.rows is None else full.room(mlp.rows)
            torch.sub(layer.mlp(layer.mlp_norm(streams)), before[:, None], out=room)
            if mlp.rows is not None:
                at_last.room(mlp.last_rows).copy_(room[at])
    return at_last.read(plan.logits, reference.final.flatten(0, 1)[at_home]).transpose(0, 1)


class Table:
    """How the outputs of nodes differ from the reference: rows [place, row, d_model]. A place is one position of one
    example.

    Rows lie where the layers of their nodes do; `ends` says, for every span of layers on one device, where its rows
    end. `input` is on the first.
    """

    def __init__(self, model: Transformer, ends: Sequence[int], of_input: Tensor) -> None:
        self._model = model
        self._mixes: dict[int, Tensor] = {}
        self._parts: list[tuple[int, Tensor]] = []  # the first row of each
        for span, first, end in zip(model.spans, (0, *ends), ends, strict=False):
            shape, device = (len(of_input), end - first, of_input.shape[-1]), model.layers[span[0]].device
            self._parts.append((first, of_input.new_empty(shape, device=device)))
        self._parts[0][1][:, INPUT] = of_input

    def room(self, rows: slice) -> Tensor:
        """[place, row, d_model] where changes of nodes of one layer are written to."""
        first, part = next(one for one in reversed(self._parts) if one[0] <= rows.start)
        return part[:, rows.start - first : rows.stop - first]

    def join(self, layer: int, mix: Tensor) -> None:
        """Note the reference's mixes [place, head, d_head] of a layer: a norm of heads needs their sum."""
        self._mixes[layer] = mix

    def read(self, reading: Reading, stream: Tensor) -> Tensor:
        """[place, reader, d_model] what readers see on top of the reference's stream [place, d_model], beside it."""
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
        """[place, reader, d_model] on a device; rows are summed where they lie."""
        first, *rest = (_sum_rows(part, some).to(device) for part, some in self._split(sums))
        for other in rest:
            first += other
        return first

    def _split(self, sums: Sums) -> Iterator[tuple[Tensor, Sums]]:
        """The parts that sums are taken over, and which of their rows."""
        if len(self._parts) == 1:
            yield self._parts[0][1], sums
            return
        for first, part in self._parts:
            mine = (sums.rows >= first) & (sums.rows < first + part.shape[1])
            if mine.any():
                yield part, Sums(sums.rows[mine] - first, np.searchsorted(np.flatnonzero(mine), sums.starts))


def _sum_rows(rows: Tensor, sums: Sums) -> Tensor:
    """[place, reader, d_model] of rows [place, row, d_model]: all readers of a place, then those of the next, whose
    rows are elsewhere. Sums of half-precision numbers are taken in float32."""
    places, n_rows, width = rows.shape
    every = torch.arange(places, device=rows.device)[:, None]
    read, starts = (torch.as_tensor(part, device=rows.device) for part in (sums.rows, sums.starts))
    index, offsets = (every * n_rows + read).flatten(), (every * len(read) + starts).flatten()
    return F.embedding_bag(index, rows.view(-1, width), offsets, mode="sum").view(places, len(starts), width)


def _norm_in_place(norm: Norm, streams: Tensor) -> None:
    """Put what a norm makes of streams [place, reader, d_model] into their place."""
    for some in streams.flatten(0, 1).split(max(1, NORMED_AT_ONCE // streams.shape[-1])):
        some.copy_(norm(some))


def _project(layer: Layer, inputs: Inputs, heads: Ints, streams: Tensor, unread: Sequence[Tensor]) -> dict[int, Tensor]:
    """What streams [place, reader, d_model] become: for some letters, q, k or v [place, node, d_head] of all nodes.

    unread  the reference's q, k and v [place, head, d_head], for nodes that read nothing there

    Streams may be normed in their place.
    """
    norm, first = layer.attention_norm, 0
    made = {}
    # Layer norm is one kernel. RMS norm is several over all of the streams: its scale, a number for each, comes later,
    # unless streams as they are could be too large for half precision once they are multiplied.
    shrink = None if norm.centred or streams.dtype.itemsize < 4 else _shrink(norm, streams)
    if shrink is None:
        _norm_in_place(norm, streams)
    for letter, nodes in inputs.letters:
        projection = layer.qkv[letter]
        mine, stored = slice(first, first + len(nodes)), heads[nodes] // projection.group
        found = streams.new_empty((len(streams), len(nodes), projection.weight.shape[1]))
        for one, some in _runs(stored):
            weight = projection.weight[one] if shrink is None else projection.weight[one] * norm.weight
            _multiply(streams[:, mine][:, some], weight, found[:, some])
        if shrink is not None:
            found *= shrink[:, mine]
        if projection.bias is not None:
            found += projection.bias[stored]
        if len(nodes) < len(heads):
            some_read, found = found, unread[letter][:, heads]
            found[:, nodes] = some_read
        made[letter] = found
        first = mine.stop
    return made


def _shrink(norm: Norm, streams: Tensor) -> Tensor:
    """[place, reader, 1] what an RMS norm multiplies streams with, besides its weight."""
    squares = torch.linalg.vector_norm(streams, dim=-1, keepdim=True).square()
    return torch.rsqrt(squares / streams.shape[-1] + norm.eps)


def _write_heads(layer: Layer, heads: Ints, mix: Tensor, room: Tensor) -> None:
    """Write to `room` [place, node, d_model] what heads add to the stream, from their mixes [place, node, d_head].

    Head by head: gathering the weights of some heads would copy them, which takes longer than the products.
    """
    for head, some in _runs(heads):
        _multiply(mix[:, some], layer.out[:, head], room[:, some])


def _multiply(x: Tensor, weight: Tensor, room: Tensor) -> None:
    """Write to `room` [place, node, out] x [place, node, in] times weight [out, in], in one product."""
    if x.shape[1] == 1:
        torch.mm(x[:, 0], weight.T, out=room[:, 0])
    else:
        room.copy_((x.flatten(0, 1) @ weight.T).view_as(room))


def _runs(values: Ints) -> Iterator[tuple[int, slice]]:
    """Every value of a rising sequence, and where it is."""
    starts = np.flatnonzero(np.diff(values, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), slice(start, stop)
