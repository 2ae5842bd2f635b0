"""Run circuits: every destination reads in-circuit sources from this run, and all others from the reference run
(under patching, the corrupted run).

Only the nodes of the circuits run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

The logits are read at one position. A node whose output reaches them through no key or value of another head matters
only at that position, so it runs only there. The other nodes run at all positions.

Changes of node outputs from the reference are stored in two tables, one for all positions and one for the last. Nodes
that run at all positions have a row in both. The first two rows of a table are the reference's stream and the change of
`input`. Several circuits run as one graph of all their nodes, so that a few large products replace many small ones.
A node that reads the same in several circuits runs once: these circuits share its rows.

Circuits of (edge, span) pairs run the nodes that have a pair at any span. What a node reads differs between spans of
tokens: at a position of a span it sums the edges whose pair with that span is inside. Other circuits have one span.

Circuits of neurons have a part of the output dimensions of each node: changes are multiplied by masks [node, d_model].
Those with a part of `input` have a row of their own for its change, after the first two.

Products with the model's weights take most of the time. Sums over edges read the changes of one position after the
other, which fit into a processor's cache, and their time grows with the number of edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.circuit import Circuit
from ..graph import Graph, NodeGraph
from .forward import Frame, Trace, attend, frame_at, sum_heads
from .memory import NORMED_AT_ONCE
from .transformer import Layer, Norm, Transformer

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
# The first rows of every table: the reference's stream at the current readers, and the change of `input`.
STREAM, INPUT, FIRST_FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of several circuits.

    inside      [circuit, span, source, destination] the edges of each circuit
    first       [circuit, source] the first circuit in which the node has the same output. It runs there only
    runs        [circuit, source] whether the node runs
    everywhere  [circuit, source] whether its output matters at other positions than the last
    outputs     per circuit, which dimensions [source, d_model] of node outputs it has; None for all
    """

    inside: Bools
    first: Ints
    runs: Bools
    everywhere: Bools
    outputs: tuple[Bools | None, ...]


def number_nodes(circuits: Sequence[Circuit]) -> Ints:
    """Return [circuit, source] a number per distinct output of a node; -1 for nodes that do not run.

    A node has the same output in two circuits if it has the same edges, from sources with the same outputs.
    """
    graph = circuits[0].graph.plain
    numbers = np.full((len(circuits), graph.n_sources), -1)
    numbers[:, 0] = 0
    known: dict[tuple[int, int, bytes, bytes], int] = {}
    for index, circuit in enumerate(circuits):
        # Circuits with parts of outputs share nothing: their masks would have to be equal, too.
        owner = -1 if circuit.graph.output_mask(circuit.mask) is None else index
        mask = _mask_in_spans(circuit)
        edges, spans = np.nonzero(mask)
        order = np.argsort(graph.edge_target[edges], kind="stable")
        inside = edges[order] * mask.shape[1] + spans[order]
        ends = np.searchsorted(graph.edge_target[edges[order]], np.arange(graph.n_nodes + 1)).tolist()
        sources, row = graph.edge_source[edges[order]], numbers[index]
        for node in np.flatnonzero(circuit.plain().node_mask[1:-1]).tolist():
            read = slice(ends[node + 1], ends[node + 2])
            key = (owner, node, inside[read].tobytes(), row[sources[read]].tobytes())
            row[node + 1] = known.setdefault(key, len(known) + 1)
    return numbers


def _mask_in_spans(circuit: Circuit) -> Bools:
    """Return the edges [edge, span] of the plain graph that a circuit has; circuits without spans have one."""
    plain = circuit.plain() if isinstance(circuit.graph, NodeGraph) else circuit
    return plain.mask.reshape(circuit.graph.plain.n_edges, -1)


def _find_nodes(circuits: Sequence[Circuit], numbers: Ints) -> Nodes:
    """Return the nodes of circuits of one graph; `numbers` are those of `number_nodes`."""
    graph = circuits[0].graph.plain
    masks = np.stack([_mask_in_spans(circuit) for circuit in circuits])
    inside = np.zeros((len(circuits), masks.shape[2], graph.n_sources, graph.n_destinations), bool)
    inside[:, :, graph.edge_source, graph.edge_destination] = masks.transpose(0, 2, 1)
    everywhere = _runs_everywhere(graph, np.logical_or.reduce(inside, 1))
    first = np.empty_like(numbers)
    for source, column in enumerate(numbers.T):
        _, where, group = np.unique(column, return_index=True, return_inverse=True)
        first[:, source] = where[group]
        everywhere[:, source] = (np.bincount(group, everywhere[:, source]) > 0)[group]
    runs = (numbers >= 0) & (first == np.arange(len(circuits))[:, None])
    return Nodes(inside, first, runs, everywhere, tuple(c.graph.output_mask(c.mask) for c in circuits))


def _runs_everywhere(graph: Graph, inside: Bools) -> Bools:
    """Return [circuit, source] whether a node's output matters at other positions than the last.

    This is so if a key or value reads it, or a query or MLP that itself matters at other positions than the last.
    """
    everywhere = np.zeros((len(inside), graph.n_sources), bool)
    reads_everywhere = np.zeros((len(inside), graph.n_destinations), bool)  # destinations that read at all positions
    for layer in range(graph.n_layers):
        queries = graph.attention_destinations(layer).start
        reads_everywhere[:, queries + graph.n_heads : queries + 3 * graph.n_heads] = True
    for layer in reversed(range(graph.n_layers)):
        mlp = graph.mlp_source_index(layer)
        everywhere[:, mlp] = (inside[:, mlp] & reads_everywhere).any(1)
        reads_everywhere[:, graph.mlp_destination(layer)] = everywhere[:, mlp]
        heads = graph.n_attention_sources(layer) + np.arange(graph.n_heads)
        everywhere[:, heads] = (inside[:, heads] & reads_everywhere[:, None]).any(2)
        reads_everywhere[:, graph.attention_destinations(layer).start + np.arange(graph.n_heads)] = everywhere[:, heads]
    everywhere[:, 0] = True
    return everywhere


def run_circuits(
    model: Transformer,
    circuits: Sequence[Circuit],
    numbers: Ints,
    at_once: int,
    clean: Tensor,
    reference: Trace,
    frame: Frame,
    last: Tensor,
    spans: Tensor | None = None,
) -> Tensor:
    """Return the streams [circuit, example * read, d_model] of the logits at the positions that the metric reads.

    circuits  of one graph
    numbers   what `number_nodes` returns for the circuits
    at_once   how many MLPs run together, and heads of as many layers
    clean     [batch, position, d_model] the output of the node `input` on the clean prompt
    last      [batch, read] the positions that the metric reads
    spans     [batch, position] for circuits of (edge, span) pairs, the span of each position; padding may have any
    """
    nodes, examples = _find_nodes(circuits, numbers), torch.arange(len(clean), device=last.device)[:, None]
    places, change = (examples * clean.shape[1] + last).flatten(), clean - reference.embedding
    full = Table(model, reference, nodes, nodes.runs & nodes.everywhere, change, spans=spans)
    at_last = Table(model, reference, nodes, nodes.runs, change, places, spans)
    run = _Run(model, nodes, reference, full, at_last, frame, frame_at(frame, (examples, last)))
    chosen = ((full, nodes.runs & nodes.everywhere), (at_last, nodes.runs & ~nodes.everywhere))
    for index in range(model.graph.n_layers):
        first_head, mlp = model.graph.n_attention_sources(index), model.graph.mlp_source_index(index)
        for table, runs in chosen:
            heads, owners = np.nonzero(runs[:, first_head:mlp].T)  # [node] the head and the circuit
            size = at_once * model.graph.n_heads
            for start in range(0, len(heads), size):
                run.run_heads(index, table, heads[start : start + size], owners[start : start + size])
        for table, runs in chosen:
            owners = np.flatnonzero(runs[:, mlp])
            for start in range(0, len(owners), at_once):
                run.run_mlps(index, table, owners[start : start + at_once])
    return at_last.read(np.arange(len(circuits)), nodes.inside[:, :, :, -1], reference.final).transpose(0, 1)


@dataclass(frozen=True, eq=False)
class _Run:
    """A run of circuits: groups of nodes of a layer read from the tables, and get rows in them.

    A group has the table of the positions at which it runs, and `circuits` [node], the circuit of each node.
    """

    model: Transformer
    nodes: Nodes
    reference: Trace
    full: Table
    at_last: Table
    frame: Frame
    last_frame: Frame

    def run_heads(self, index: int, table: Table, heads: Ints, circuits: Ints) -> None:
        """Run the heads [node], in ascending order. At the last position, only queries are read there."""
        layer, graph, is_last = self.model.layers[index], self.model.graph, table is self.at_last
        first, queries = graph.n_attention_sources(index), graph.attention_destinations(index).start
        where = ((table, self.reference.q), (self.full, self.reference.k), (self.full, self.reference.v))
        reference_qkv = [places.select(values[index]) for places, values in where]
        projected: dict[int, Tensor] = {}
        for places, letters in ((table, (0,)), (self.full, (1, 2))) if is_last else ((table, (0, 1, 2)),):
            edges = {x: self.nodes.inside[circuits, :, :first, queries + x * graph.n_heads + heads] for x in letters}
            readers = {letter: np.flatnonzero(mask.any((1, 2))) for letter, mask in edges.items() if mask.any()}
            if readers:
                of_circuits = np.concatenate([circuits[rows] for rows in readers.values()])
                reader_edges = np.concatenate([edges[letter][rows] for letter, rows in readers.items()])
                stream = self.reference.attention_in[index]
                # No name for the streams, so that they are freed before the next are read.
                projected |= _project(
                    layer, readers, heads, places.read(of_circuits, reader_edges, stream), reference_qkv
                )
        parts = (projected[i] if i in projected else x[:, heads] for i, x in enumerate(reference_qkv))
        q, k, v = (x.unflatten(0, (len(self.frame.positions), -1)) for x in parts)
        query_frame = self.last_frame if is_last else None
        head_index = torch.as_tensor(heads, device=layer.device)
        mix = attend(self.model, index, q, k, v, self.frame, head_index, query_frame).flatten(0, 1)
        mix = mix - table.select(self.reference.mix[index])[:, heads]
        out = table.add_rows(circuits, first + heads)
        # Head by head: gathering the weights of several heads would copy them, which is slower than the products.
        for head, equal in _equal_ranges(heads):
            _multiply(mix[:, equal], layer.out[:, head], out[:, equal])
        self._finish(table, circuits, first + heads, out)

    def run_mlps(self, index: int, table: Table, circuits: Ints) -> None:
        """Run a layer's MLP of several circuits."""
        layer, graph, reference = self.model.layers[index], self.model.graph, self.reference
        edges = self.nodes.inside[circuits, :, : graph.n_mlp_sources(index), graph.mlp_destination(index)]
        sources = np.full(len(circuits), graph.mlp_source_index(index))
        streams = table.read(circuits, edges, reference.mlp_in[index])
        out = table.add_rows(circuits, sources)
        torch.sub(layer.run_mlp(streams), table.select(reference.mlp_out[index])[:, None], out=out)
        self._finish(table, circuits, sources, out)

    def _finish(self, table: Table, circuits: Ints, sources: Ints, out: Tensor) -> None:
        """Set changes [place, node, d_model] to 0 in dimensions that circuits lack; copy them to the last position."""
        if any(mask is not None for mask in self.nodes.outputs):
            masks = np.ones((len(circuits), out.shape[-1]), bool)
            for row, (circuit, source) in enumerate(zip(circuits.tolist(), sources.tolist(), strict=True)):
                if (mask := self.nodes.outputs[circuit]) is not None:
                    masks[row] = mask[source]
            out *= torch.as_tensor(masks, device=out.device)
        if table is self.full:
            self.at_last.add_rows(circuits, sources).copy_(self.at_last.select_places(out))


class Table:
    """The changes of node outputs from the reference: rows [place, row, d_model].

    Only the nodes of the circuits have rows, in the order in which they run. `weighted.Rows` is the table of weighted
    circuits: differentiable, with a fixed row for every node.

    A place is one position of one example. Rows are on the device of their node's layer, `input` on that of the first.

    in_table  [circuit, source] which nodes get a row
    change    [example, position, d_model] the change of `input`
    places    [place] which positions of all examples, counted together, the table is for; None for all
    spans     [example, position] the span of tokens of each position; None if there is only one
    """

    def __init__(
        self,
        model: Transformer,
        reference: Trace,
        nodes: Nodes,
        in_table: Bools,
        change: Tensor,
        places: Tensor | None = None,
        spans: Tensor | None = None,
    ) -> None:
        self._model, self._reference, self._first, self._places = model, reference, nodes.first, places
        self._spans = None if spans is None else self.select(spans)
        self._row_of = np.full(in_table.shape, INPUT, np.intp)  # [circuit, source]
        of_input = {i: mask[0] for i, mask in enumerate(nodes.outputs) if mask is not None and not mask[0].all()}
        self._row_of[list(of_input), 0] = FIRST_FREE + np.arange(len(of_input))
        self._n_rows = FIRST_FREE + len(of_input)
        change = self.select(change)
        self._parts: list[tuple[int, Tensor]] = []  # (first row, rows), per range of layers on one device
        start = 0
        for layers in model.device_ranges:
            end = self._n_rows + np.count_nonzero(in_table[:, 1 : model.graph.mlp_source_index(layers[-1]) + 1])
            rows = change.new_empty((len(change), end - start, change.shape[-1]), device=model.layers[layers[0]].device)
            self._parts.append((start, rows))
            start = end
        first_part = self._parts[0][1]
        first_part[:, INPUT] = change
        if of_input:
            masks = torch.as_tensor(np.array([*of_input.values()]), device=change.device)
            first_part[:, FIRST_FREE : self._n_rows] = change[:, None] * masks

    def select(self, x: Tensor) -> Tensor:
        """Return the table's places of x [example, position, ...] as [place, ...]."""
        return self.select_places(x.flatten(0, 1))

    def select_places(self, x: Tensor) -> Tensor:
        """Return the table's places of x [position of all examples, ...]."""
        return x if self._places is None else x[self._places.to(x.device)]

    def add_rows(self, circuits: Ints, sources: Ints) -> Tensor:
        """Give nodes of one layer [node] the next rows. Return a view [place, node, d_model] of these, to write to."""
        start, columns = self._n_rows, np.unique(sources)
        self._n_rows += len(circuits)
        self._row_of[circuits, sources] = np.arange(start, self._n_rows)
        self._row_of[:, columns] = self._row_of[self._first[:, columns], columns]
        first, part = next(part for part in reversed(self._parts) if part[0] <= start)
        return part[:, start - first : self._n_rows - first]

    def read(self, circuits: Ints, edges: Bools, stream: Tensor) -> Tensor:
        """Return what readers read [place, reader, d_model]: the reference's stream plus changes.

        circuits  [reader] the circuit of each reader
        edges     [reader, span, source] its edges
        stream    [example, position, d_model]
        """
        self._parts[0][1][:, STREAM] = self.select(stream)
        graph, rows = self._model.graph, self._row_of[circuits, : edges.shape[2]]
        # If a norm follows attention, the heads of a layer are summed apart, and normed together.
        through_norms = []
        if self._model.has_post_norm:
            edges = edges.copy()
            for index in range(graph.n_layers):
                heads = slice(graph.n_attention_sources(index), graph.mlp_source_index(index))
                readers = np.flatnonzero(edges[..., heads].any((1, 2)))
                if len(readers):
                    through_norms.append((index, readers, rows[readers, heads], edges[readers, :, heads]))
                edges[..., heads] = False
        rows = np.concatenate([np.full((len(edges), 1), STREAM), rows], 1)
        reads_stream = np.ones((*edges.shape[:2], 1), bool)
        total = self._sum(rows, np.concatenate([reads_stream, edges], 2), stream.device)
        for index, readers, head_rows, head_edges in through_norms:
            layer = self._model.layers[index]
            assert layer.post_norm is not None
            before = sum_heads(layer, self.select(self._reference.mix[index]))[:, None]
            change = self._sum(head_rows, head_edges, layer.device).add_(before)
            _norm_in_place(layer.post_norm, change)
            total[:, readers] += change.sub_(layer.post_norm(before)).to(total.device)
        return total

    def _sum(self, rows: Ints, edges: Bools, device: torch.device) -> Tensor:
        """Return the sums [place, reader, d_model] of the rows [reader, source] that have an edge, on a device.

        edges  [reader, span, source]

        Rows are summed on their own device.
        """
        by_span = edges.swapaxes(0, 1)
        counts = by_span.sum(2)
        starts = np.cumsum(counts).reshape(counts.shape) - counts  # [span, reader] where the rows of a reader begin
        terms = np.broadcast_to(rows, by_span.shape)[by_span]
        if len(self._parts) == 1:
            return _sum_rows(self._parts[0][1], terms, starts, self._spans)
        total: Tensor | None = None
        for first, part in self._parts:
            in_part = (terms >= first) & (terms < first + part.shape[1])
            if in_part.any():
                part_starts = np.searchsorted(np.flatnonzero(in_part), starts)
                part_sum = _sum_rows(part, terms[in_part] - first, part_starts, self._spans).to(device)
                total = part_sum if total is None else total.add_(part_sum)
        assert total is not None
        return total


def _sum_rows(rows: Tensor, row_numbers: Ints, first_terms: Ints, spans: Tensor | None) -> Tensor:
    """Return sums [place, reader, d_model] of rows [place, row, d_model], place by place.

    row_numbers  [term] the rows to sum, reader by reader
    first_terms  [span, reader] where the terms of a reader begin
    spans        [place] which of the sums a place has; None if there is one span

    Sums of half-precision numbers are computed in float32.
    """
    n_places, n_rows, width = rows.shape
    places = torch.arange(n_places, device=rows.device)
    terms, starts = (torch.as_tensor(x, device=rows.device) for x in (row_numbers, first_terms))
    if spans is None:
        index, offsets = places[:, None] * n_rows + terms, places[:, None] * len(terms) + starts
    else:
        spans = spans.to(rows.device)
        ends = torch.cat([starts[1:, 0], starts.new_tensor([len(terms)])])
        first, n_terms = starts[spans, 0], (ends - starts[:, 0])[spans]
        before = n_terms.cumsum(0) - n_terms  # terms of all earlier places
        # The terms of a place are those of its span, from `first` on.
        place = places.repeat_interleave(n_terms)
        index = torch.arange(len(place), device=rows.device).add_((first - before)[place])
        index = terms[index].add_(place.mul_(n_rows))
        offsets = starts[spans].add_((before - first)[:, None])
    sums_by_place = F.embedding_bag(index.flatten(), rows.view(-1, width), offsets.flatten(), mode="sum")
    return sums_by_place.view(n_places, -1, width)


def _norm_in_place(norm: Norm, streams: Tensor) -> None:
    """Replace streams [place, reader, d_model] by their norm."""
    for block in streams.flatten(0, 1).split(max(1, NORMED_AT_ONCE // streams.shape[-1])):
        block.copy_(norm(block))


def _project(
    layer: Layer, readers_of: Mapping[int, Ints], heads: Ints, streams: Tensor, reference_qkv: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Return, by letter, q, k or v [place, node, d_head] of all nodes from streams [place, reader, d_model].

    readers_of     0, 1 or 2 for q, k or v -> the nodes that read something there, in the order of the streams
    heads          [node] the head of each node, ascending
    reference_qkv  the reference's q, k and v [place, head, d_head], for nodes that read nothing there

    `streams` may be normalised in place.
    """
    norm, first = layer.attention_norm, 0
    projected = {}
    # A layer norm is one kernel. An RMS norm is several, each over all streams. So its scale, one number per stream,
    # multiplies the projected values, except in half precision, where products of unscaled streams might overflow.
    inverse_scale = None
    if norm is not None and not norm.centred and streams.dtype.itemsize >= 4:
        squares = torch.linalg.vector_norm(streams, dim=-1, keepdim=True).square()
        inverse_scale = torch.rsqrt(squares / streams.shape[-1] + norm.eps)  # [place, reader, 1]
    elif norm is not None:
        _norm_in_place(norm, streams)
    for letter, nodes in readers_of.items():
        projection = layer.qkv[letter]
        readers, stored = slice(first, first + len(nodes)), heads[nodes] // projection.group
        values = streams.new_empty((len(streams), len(nodes), projection.weight.shape[1]))
        for head, equal in _equal_ranges(stored):
            inputs = streams[:, readers][:, equal]
            if projection.norm is not None:
                values[:, equal] = projection.one_head(inputs, head)
                continue
            weight = projection.weight[head]
            if norm is not None and inverse_scale is not None:
                weight = weight * norm.weight
            _multiply(inputs, weight, values[:, equal])
        if inverse_scale is not None:
            values *= inverse_scale[:, readers]
        if projection.bias is not None and projection.norm is None:
            values += projection.bias[stored]
        if len(nodes) < len(heads):
            read_values, values = values, reference_qkv[letter][:, heads]
            values[:, nodes] = read_values
        projected[letter] = values
        first = readers.stop
    return projected


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
