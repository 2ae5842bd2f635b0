"""Plan a run of circuits: which nodes run, at which positions, and what each of them reads.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..graph import Graph, NodeGraph

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
