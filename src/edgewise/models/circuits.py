"""Run circuits: every destination reads in-circuit sources from this run, and all others from the reference run
(under patching, the corrupted run).

Only the nodes of the circuits run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

`plan_circuits` plans which nodes run, at which positions, and what each of them reads. The logits are read at one
position. A node whose output reaches them through no key or value of another head matters only at that position, so it
runs only there. The other nodes run at all positions.

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

from collections.abc import Iterator, Sequence
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
# Pairs of 0, 1 or 2 for q, k or v, and the nodes that read something there. Readers are in this order.
Letters = tuple[tuple[int, Ints], ...]
# The first rows of every table: the reference's stream at the current readers, and the change of `input`.
STREAM, INPUT, FIRST_FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Sums:
    """The rows of a table that each reader sums at positions of each span of tokens.

    rows    [term]
    starts  [span, reader] where the rows of a reader begin
    """

    rows: Ints
    starts: Ints


@dataclass(frozen=True, eq=False)
class Reading:
    """What readers sum: the reference's stream and changes of sources.

    at_last        whether they read the table of the last position
    through_norms  if a norm follows attention, heads are not part of `sums`; instead, per layer whose heads are read:
                   the layer, the readers of its heads, and their sums
    """

    at_last: bool
    sums: Sums
    through_norms: tuple[tuple[int, Ints, Sums], ...] = ()


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of one layer, in all circuits, that run at the same positions.

    at_last    whether they run only at the last position
    rows       the rows of their changes in the table of the positions at which they run
    last_rows  their rows in the table of the last position; the same if they run only there
    masks      [node, d_model] which dimensions of their outputs change; None for all
    """

    at_last: bool
    rows: slice
    last_rows: slice
    masks: Bools | None


@dataclass(frozen=True, eq=False)
class Heads(Group):
    """A group of heads. Those that run only at the last position read queries there, keys and values at all positions.

    heads   [node] the head of each node, in ascending order
    inputs  per table that is read, the nodes that read it and their reading
    """

    heads: Ints
    inputs: tuple[tuple[Letters, Reading], ...]


@dataclass(frozen=True, eq=False)
class Mlps(Group):
    """A group of MLPs."""

    reading: Reading


@dataclass(frozen=True, eq=False)
class CircuitsPlan:
    """The steps of a run of circuits.

    ends         after each layer, how many rows are filled in the two tables: (all positions, last position)
    layers       per layer, groups of heads and groups of MLPs
    logits       what the logits of every circuit read
    input_masks  [row, d_model] which dimensions of `input` change in the rows from FIRST_FREE on
    """

    ends: tuple[tuple[int, int], ...]
    layers: tuple[tuple[tuple[Heads, ...], tuple[Mlps, ...]], ...]
    logits: Reading
    input_masks: Bools


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


def plan_circuits(
    circuits: Sequence[Circuit],
    through_norms: bool = False,
    at_once: int | None = None,
    numbers: Ints | None = None,
) -> CircuitsPlan:
    """Return which nodes must run for circuits of one graph, and at which positions.

    through_norms  whether a norm follows attention
    at_once        how many MLPs run together, and heads of as many layers; None for all
    numbers        what `number_nodes` returns for the circuits
    """
    graph = circuits[0].graph.plain
    numbers = number_nodes(circuits) if numbers is None else numbers
    masks = np.stack([_mask_in_spans(circuit) for circuit in circuits])
    inside = np.zeros((len(circuits), masks.shape[2], graph.n_sources, graph.n_destinations), bool)
    inside[:, :, graph.edge_source, graph.edge_destination] = masks.transpose(0, 2, 1)
    everywhere = _runs_everywhere(graph, np.logical_or.reduce(inside, 1))
    first = np.empty_like(numbers)  # the first circuit with the same output
    for source, column in enumerate(numbers.T):
        _, where, group = np.unique(column, return_index=True, return_inverse=True)
        first[:, source] = where[group]
        everywhere[:, source] = (np.bincount(group, everywhere[:, source]) > 0)[group]
    runs = (numbers >= 0) & (first == np.arange(len(circuits))[:, None])
    outputs = [circuit.graph.output_mask(circuit.mask) for circuit in circuits]
    planner = _Planner(graph, inside, first, through_norms, outputs, at_once or len(circuits))
    layers, ends = [], []
    for layer in range(graph.n_layers):
        heads = slice(graph.attention_sources(layer), graph.attention_sources(layer) + graph.n_heads)
        mlp = graph.mlp_source(layer)
        chosen = ((runs & everywhere, False), (runs & ~everywhere, True))
        head_groups = [group for nodes, last in chosen for group in planner.plan_heads(layer, nodes[:, heads], last)]
        mlp_groups = [group for nodes, last in chosen for group in planner.plan_mlps(layer, nodes[:, mlp], last)]
        layers.append((tuple(head_groups), tuple(mlp_groups)))
        ends.append((planner.n_rows[0], planner.n_rows[1]))
    logits = planner.plan_reading(True, np.arange(len(circuits)), inside[:, :, :, -1])
    return CircuitsPlan(tuple(ends), tuple(layers), logits, planner.input_masks)


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
        mlp = graph.mlp_source(layer)
        everywhere[:, mlp] = (inside[:, mlp] & reads_everywhere).any(1)
        reads_everywhere[:, graph.mlp_destination(layer)] = everywhere[:, mlp]
        heads = graph.attention_sources(layer) + np.arange(graph.n_heads)
        everywhere[:, heads] = (inside[:, heads] & reads_everywhere[:, None]).any(2)
        reads_everywhere[:, graph.attention_destinations(layer).start + np.arange(graph.n_heads)] = everywhere[:, heads]
    everywhere[:, 0] = True
    return everywhere


class _Planner:
    """Assign rows to nodes, in the order in which the nodes run.

    The two tables have the indices False (all positions) and True (the last position).

    inside       [circuit, span, source, destination]
    first        [circuit, source] the circuit whose row of the node is used
    outputs      per circuit, which dimensions [source, d_model] of node outputs it has; None for all
    at_once      see `plan_circuits`
    n_rows       [table] the number of rows assigned so far
    row_of       [table, circuit, source] the row of each node
    input_masks  see `CircuitsPlan`
    """

    def __init__(
        self,
        graph: Graph,
        inside: Bools,
        first: Ints,
        through_norms: bool,
        outputs: Sequence[Bools | None],
        at_once: int,
    ) -> None:
        self.graph, self.inside, self.first, self.at_once = graph, inside, first, at_once
        self.through_norms, self.outputs = through_norms, outputs
        self.row_of = np.full((2, len(inside), graph.n_sources), INPUT, np.intp)
        of_input = {index: mask[0] for index, mask in enumerate(outputs) if mask is not None and not mask[0].all()}
        self.input_masks = np.array([*of_input.values()], bool).reshape(-1, graph.d_model)
        self.row_of[:, list(of_input), 0] = FIRST_FREE + np.arange(len(of_input))
        self.n_rows = [FIRST_FREE + len(of_input)] * 2

    def plan_heads(self, layer: int, chosen: Bools, at_last: bool) -> Iterator[Heads]:
        """Yield groups of the heads `chosen` [circuit, head]."""
        all_heads, all_circuits = np.nonzero(chosen.T)
        first = self.graph.attention_sources(layer)
        queries = self.graph.attention_destinations(layer).start
        size = self.at_once * self.graph.n_heads
        for start in range(0, len(all_heads), size):
            nodes = slice(start, start + size)
            heads, circuits, inputs = all_heads[nodes], all_circuits[nodes], []
            for table, letters in ((True, (0,)), (False, (1, 2))) if at_last else ((False, (0, 1, 2)),):
                edges = {x: self.inside[circuits, :, :first, queries + x * self.graph.n_heads + heads] for x in letters}
                readers = {letter: np.flatnonzero(mask.any((1, 2))) for letter, mask in edges.items() if mask.any()}
                if readers:
                    reader_circuits = np.concatenate([circuits[rows] for rows in readers.values()])
                    reader_edges = np.concatenate([edges[letter][rows] for letter, rows in readers.items()])
                    inputs.append((tuple(readers.items()), self.plan_reading(table, reader_circuits, reader_edges)))
            yield Heads(*self._assign_rows(circuits, first + heads, at_last), heads, tuple(inputs))

    def plan_mlps(self, layer: int, chosen: Bools, at_last: bool) -> Iterator[Mlps]:
        """Yield groups of the MLPs `chosen` [circuit]."""
        all_circuits, mlp = np.flatnonzero(chosen), self.graph.mlp_source(layer)
        for start in range(0, len(all_circuits), self.at_once):
            circuits = all_circuits[start : start + self.at_once]
            edges = self.inside[circuits, :, : self.graph.mlp_sources(layer), self.graph.mlp_destination(layer)]
            reading = self.plan_reading(at_last, circuits, edges)
            yield Mlps(*self._assign_rows(circuits, np.full(len(circuits), mlp), at_last), reading)

    def plan_reading(self, at_last: bool, circuits: Ints, edges: Bools) -> Reading:
        """Return what readers, each of one of `circuits` [reader], sum for their edges [reader, span, source]."""
        row_of, joined = self.row_of[int(at_last)], []
        if self.through_norms:
            edges = edges.copy()
            for layer in range(self.graph.n_layers):
                first = self.graph.attention_sources(layer)
                heads = slice(first, first + self.graph.n_heads)
                readers = np.flatnonzero(edges[..., heads].any((1, 2)))
                if len(readers):
                    sums = _sum_edges(row_of[circuits[readers], heads], edges[readers, :, heads])
                    joined.append((layer, readers, sums))
                edges[..., heads] = False
        rows = np.concatenate([np.full((len(edges), 1), STREAM), row_of[circuits, : edges.shape[2]]], 1)
        reads_stream = np.ones((*edges.shape[:2], 1), bool)
        return Reading(at_last, _sum_edges(rows, np.concatenate([reads_stream, edges], 2)), tuple(joined))

    def _assign_rows(self, circuits: Ints, sources: Ints, at_last: bool) -> tuple[bool, slice, slice, Bools | None]:
        """Assign the next rows to nodes, in the table of the last position or in both. Return the fields of a group."""
        rows, columns = [], np.unique(sources)
        for table in (1,) if at_last else (0, 1):
            start = self.n_rows[table]
            self.n_rows[table] += len(circuits)
            self.row_of[table, circuits, sources] = np.arange(start, self.n_rows[table])
            self.row_of[table][:, columns] = self.row_of[table][self.first[:, columns], columns]
            rows.append(slice(start, self.n_rows[table]))
        if all(mask is None for mask in self.outputs):
            return at_last, rows[0], rows[-1], None
        masks = np.ones((len(circuits), self.graph.d_model), bool)
        for row, (circuit, source) in enumerate(zip(circuits.tolist(), sources.tolist(), strict=True)):
            if (mask := self.outputs[circuit]) is not None:
                masks[row] = mask[source]
        return at_last, rows[0], rows[-1], None if masks.all() else masks


def _sum_edges(rows: Ints, edges: Bools) -> Sums:
    """Return the sums over the rows [reader, source] that have an edge [reader, span, source]."""
    by_span = edges.swapaxes(0, 1)
    counts = by_span.sum(2)
    starts = np.cumsum(counts).reshape(counts.shape) - counts
    return Sums(np.broadcast_to(rows, by_span.shape)[by_span], starts)


def run_circuits(
    model: Transformer,
    plan: CircuitsPlan,
    clean: Tensor,
    reference: Trace,
    frame: Frame,
    last: Tensor,
    spans: Tensor | None = None,
) -> Tensor:
    """Return the streams [circuit, example * read, d_model] of the logits at the positions that the metric reads.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    last   [batch, read] these positions
    spans  [batch, position] for circuits of (edge, span) pairs, the span of each position; padding may have any
    """
    batch, length, _ = clean.shape
    examples = torch.arange(batch, device=last.device)[:, None]
    last_frame = frame_at(frame, (examples, last))
    ends, last_ends = zip(*(plan.ends[span[-1]] for span in model.spans), strict=True)
    change = clean - reference.embedding
    last_places = (examples * length + last).flatten()
    full = Table(model, reference, ends, change, plan.input_masks, spans=spans)
    at_last = Table(model, reference, last_ends, change, plan.input_masks, last_places, spans)
    tables = (full, at_last)
    for index, layer in enumerate(model.layers):
        head_groups, mlp_groups = plan.layers[index]
        for group in head_groups:
            table, attention_in = tables[group.at_last], reference.attention_in[index]
            where = ((table, reference.q), (full, reference.k), (full, reference.v))
            reference_qkv = [places.select(values[index]) for places, values in where]
            projected: dict[int, Tensor] = {}
            for letters, reading in group.inputs:
                # No name for the streams, so that they are freed before the next are read.
                projected |= _project(
                    layer, letters, group.heads, tables[reading.at_last].read(reading, attention_in), reference_qkv
                )
            parts = (projected[i] if i in projected else x[:, group.heads] for i, x in enumerate(reference_qkv))
            q, k, v = (x.unflatten(0, (batch, -1)) for x in parts)
            heads = torch.as_tensor(group.heads, device=layer.device)
            mix = attend(model, index, q, k, v, frame, heads, last_frame if group.at_last else None).flatten(0, 1)
            mix = mix - table.select(reference.mix[index])[:, group.heads]
            out = table.view(group.rows)
            # Head by head: gathering the weights of several heads would copy them, which is slower than the products.
            for head, nodes in _equal_ranges(group.heads):
                _multiply(mix[:, nodes], layer.out[:, head], out[:, nodes])
            _apply_masks(out, group.masks)
            if not group.at_last:
                at_last.view(group.last_rows).copy_(at_last.select_places(out))
        for mlps in mlp_groups:
            table = tables[mlps.at_last]
            streams, out = table.read(mlps.reading, reference.mlp_in[index]), table.view(mlps.rows)
            torch.sub(layer.run_mlp(streams), table.select(reference.mlp_out[index])[:, None], out=out)
            _apply_masks(out, mlps.masks)
            if not mlps.at_last:
                at_last.view(mlps.last_rows).copy_(at_last.select_places(out))
    return at_last.read(plan.logits, reference.final).transpose(0, 1)


class Table:
    """The changes of node outputs from the reference: rows [place, row, d_model].

    Only the nodes of the circuits have rows. `rows.Rows` is the table of weighted circuits: differentiable, with a
    fixed row for every node.

    A place is one position of one example. Rows are on the device of their node's layer, `input` on that of the first.

    ends         for every span of layers on one device, the number of rows up to its end
    change       [example, position, d_model] the change of `input`
    input_masks  [row, d_model] which dimensions of it are in the rows after its own
    places       [place] which positions of all examples, counted together, the table is for; None for all
    spans        [example, position] the span of tokens of each position; None if there is only one
    """

    def __init__(
        self,
        model: Transformer,
        reference: Trace,
        ends: Sequence[int],
        change: Tensor,
        input_masks: Bools,
        places: Tensor | None = None,
        spans: Tensor | None = None,
    ) -> None:
        self._model, self._reference, self._places = model, reference, places
        self._parts: list[tuple[int, Tensor]] = []  # (first row, rows)
        self._spans = None if spans is None else self.select(spans)
        change = self.select(change)
        for span, first, end in zip(model.spans, (0, *ends), ends, strict=False):
            shape, device = (len(change), end - first, change.shape[-1]), model.layers[span[0]].device
            self._parts.append((first, change.new_empty(shape, device=device)))
        self._parts[0][1][:, INPUT] = change
        parts_of_input = self.view(slice(FIRST_FREE, FIRST_FREE + len(input_masks)))
        parts_of_input.copy_(change[:, None])
        _apply_masks(parts_of_input, input_masks)

    def select(self, x: Tensor) -> Tensor:
        """Return the table's places of x [example, position, ...] as [place, ...]."""
        return self.select_places(x.flatten(0, 1))

    def select_places(self, x: Tensor) -> Tensor:
        """Return the table's places of x [position of all examples, ...]."""
        return x if self._places is None else x[self._places.to(x.device)]

    def view(self, rows: slice) -> Tensor:
        """Return a view [place, row, d_model] of rows of one layer, to write to."""
        first, part = next(part for part in reversed(self._parts) if part[0] <= rows.start)
        return part[:, rows.start - first : rows.stop - first]

    def read(self, reading: Reading, stream: Tensor) -> Tensor:
        """Return what readers read [place, reader, d_model]: the reference's stream plus changes.

        stream  [example, position, d_model]
        """
        self._parts[0][1][:, STREAM] = self.select(stream)
        total = self._sum(reading.sums, stream.device)
        for index, readers, sums in reading.through_norms:
            layer = self._model.layers[index]
            assert layer.post_norm is not None
            before = sum_heads(layer, self.select(self._reference.mix[index]))[:, None]
            change = self._sum(sums, layer.device).add_(before)
            _norm_in_place(layer.post_norm, change)
            total[:, readers] += change.sub_(layer.post_norm(before)).to(total.device)
        return total

    def _sum(self, sums: Sums, device: torch.device) -> Tensor:
        """Return sums [place, reader, d_model] on a device; rows are summed on their own device."""
        if len(self._parts) == 1:
            return _sum_rows(self._parts[0][1], sums, self._spans)
        total: Tensor | None = None
        for first, part in self._parts:
            in_part = (sums.rows >= first) & (sums.rows < first + part.shape[1])
            if in_part.any():
                starts = np.searchsorted(np.flatnonzero(in_part), sums.starts)
                part_sum = _sum_rows(part, Sums(sums.rows[in_part] - first, starts), self._spans).to(device)
                total = part_sum if total is None else total.add_(part_sum)
        assert total is not None
        return total


def _sum_rows(rows: Tensor, sums: Sums, spans: Tensor | None) -> Tensor:
    """Return sums [place, reader, d_model] of rows [place, row, d_model], place by place.

    Sums of half-precision numbers are computed in float32. `spans` [place] says which of the sums a place has.
    """
    n_places, n_rows, width = rows.shape
    places = torch.arange(n_places, device=rows.device)
    terms, starts = (torch.as_tensor(x, device=rows.device) for x in (sums.rows, sums.starts))
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


def _apply_masks(changes: Tensor, masks: Bools | None) -> None:
    """Set changes [place, node, d_model] to 0 in the dimensions that masks [node, d_model] do not have."""
    if masks is not None:
        changes *= torch.as_tensor(masks, device=changes.device)


def _norm_in_place(norm: Norm, streams: Tensor) -> None:
    """Replace streams [place, reader, d_model] by their norm."""
    for block in streams.flatten(0, 1).split(max(1, NORMED_AT_ONCE // streams.shape[-1])):
        block.copy_(norm(block))


def _project(
    layer: Layer, letters: Letters, heads: Ints, streams: Tensor, reference_qkv: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Return, by letter, q, k or v [place, node, d_head] of all nodes from streams [place, reader, d_model].

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
    for letter, nodes in letters:
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
