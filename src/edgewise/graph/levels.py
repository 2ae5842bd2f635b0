"""SpanGraph, NodeGraph and NeuronGraph: circuits of edges at spans of tokens, of nodes, and of output dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, unknown_name
from .base import BaseGraph, Graph, freeze

# Ranges of unscored nodes or neurons are few: usually whole kinds of nodes. With them, a graph may have this many nodes
# or neurons: files could otherwise claim a graph that fills the memory.
MAX_RANGES, MAX_PARTLY_SCORED = 100_000, 2**26
MAX_SPANS = 1000


@dataclass(frozen=True)
class SpanGraph(BaseGraph):
    """Pairs of an edge and a span: circuits whose edges act at some token positions only.

    A task names spans: groups of positions that correspond between prompts, such as the first subject. A circuit with
    the pair (edge, span) reads the edge's source at the positions of that span; elsewhere the edge gives the reference.

    A pair has the index `edge * n_spans + span` and a name such as `input->a0.h1<q>@S1`.

    An MLP works on each position alone, so its node exists once per span: `m3@S1` needs a pair in and a pair out, both
    at S1. Attention moves information between positions, so a head is one node that joins all spans: it needs a pair
    in at any span and a pair out at any span. `input` and `logits` are one node each. So again a circuit in which every
    used node has an edge in and an edge out has all its nodes on paths from input to logits.
    """

    plain: Graph
    spans: tuple[str, ...]

    kind: ClassVar[str] = "spans"
    level: ClassVar[str] = "edge"
    unit: ClassVar[str] = "(edge, span) pair"

    def __post_init__(self) -> None:
        if not isinstance(self.plain, Graph):
            raise InputError(f"spans are those of a plain graph, not of a {type(self.plain).__name__}")
        if isinstance(self.spans, str) or not isinstance(self.spans, Sequence):
            raise InputError(f"spans are a sequence of names, not {type(self.spans).__name__}")
        object.__setattr__(self, "spans", tuple(self.spans))
        if not 1 <= len(self.spans) <= MAX_SPANS:
            raise InputError(f"a graph has 1 to {MAX_SPANS:,} spans, not {len(self.spans):,}")
        if not all(isinstance(name, str) and name and name.isprintable() for name in self.spans):
            raise InputError("the names of spans must be printable text that isn't empty")
        if len(set(self.spans)) < len(self.spans):
            raise InputError(f"the names of spans must differ: {', '.join(self.spans)[:100]}")

    @property
    def n_spans(self) -> int:
        """The number of spans."""
        return len(self.spans)

    @property
    def n_edges(self) -> int:
        return self.plain.n_edges * self.n_spans

    @property
    def n_nodes(self) -> int:
        """The number of nodes: input, heads, MLPs at each span, logits."""
        return self.plain.n_nodes + self.plain.n_layers * (self.n_spans - 1)

    @cached_property
    def plain_node(self) -> NDArray[np.int32]:
        return freeze(np.repeat(np.arange(self.plain.n_nodes, dtype=np.int32), self._copies))

    @cached_property
    def _copies(self) -> NDArray[np.int32]:
        """[plain node] How many nodes it has here: MLPs have one per span."""
        copies = np.ones(self.plain.n_nodes, np.int32)
        copies[[self.plain.mlp_source_index(layer) for layer in range(self.plain.n_layers)]] = self.n_spans
        return copies

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes: MLPs have their span, such as `m3@S1`."""
        names: list[str] = []
        for name, n_copies in zip(self.plain.node_names, self._copies.tolist(), strict=True):
            names += [f"{name}@{span}" for span in self.spans] if n_copies > 1 else [name]
        return tuple(names)

    def _nodes(self, plain_nodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Map plain nodes [edge] to this graph's nodes [pair]: an MLP becomes its copy at the span."""
        first = np.cumsum(self._copies, dtype=np.int32) - self._copies
        nodes = np.repeat(first[plain_nodes], self.n_spans)
        at_span = np.outer(self._copies[plain_nodes] > 1, np.arange(self.n_spans, dtype=np.int32))
        nodes += at_span.ravel().astype(np.int32, copy=False)
        return freeze(nodes)

    @cached_property
    def edge_source(self) -> NDArray[np.int32]:
        return self._nodes(self.plain.edge_source)

    @cached_property
    def edge_target(self) -> NDArray[np.int32]:
        return self._nodes(self.plain.edge_target)

    def edge_name(self, edge: int) -> str:
        """Return the name of a pair, such as `input->a0.h1<q>@S1`."""
        plain_edge, span = divmod(int(edge), self.n_spans)
        return f"{self.plain.edge_name(plain_edge)}@{self.spans[span]}"

    def edge_index(self, name: str) -> int:
        edge, _, span = name.partition("@")
        return self.plain.edge_index(edge) * self.n_spans + self._span_index(span)

    def edges_of(self, name: str) -> NDArray[np.intp]:
        """Return the pairs of an edge, or those out of a node: at one span with a name such as `m3@S1`, else at all."""
        plain_name, at, span = name.partition("@")
        spans = [self._span_index(span)] if at else range(self.n_spans)
        return (self.plain.edges_of(plain_name)[:, None] * self.n_spans + np.array(spans)).ravel()

    def _span_index(self, span: str) -> int:
        if span not in self.spans:
            raise unknown_name("span", span, self.spans)
        return self.spans.index(span)

    def plain_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which edges [edge] have at least one span in a mask [pair]."""
        return np.logical_or.reduce(np.asarray(mask).reshape(-1, self.n_spans), 1)

    def plain_score(self, score: NDArray[Any]) -> NDArray[Any]:
        """Return the scores [edge]: the sums over spans."""
        return np.add.reduce(np.asarray(score).reshape(-1, self.n_spans), 1)

    def from_plain(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the value of a pair's edge, for every pair [pair]: a mask [edge] becomes the mask of all its pairs."""
        return np.repeat(values, self.n_spans)

    def __str__(self) -> str:
        return f"{self.plain}, {self.n_spans} spans: {', '.join(self.spans)[:200]}"


@dataclass(frozen=True)
class NodeGraph(BaseGraph):
    """Nodes: circuits that keep all edges among their nodes.

    Nodes outside a circuit give their reference output to everyone. What is selected are the sources, from `input` on;
    `logits` is in every circuit.

    `input` feeds every node, and every node feeds `logits`. So in a circuit with `input`, every node lies on a path
    from input to logits, and in one without it, none does: pruning then removes everything. Solvers, which select
    edges, see a graph of two nodes: `input` is an edge from the first to the second, every other node an edge back.

    unscored  ranges (start, stop) of nodes that have no score: they are in every circuit, and sizes do not count them
    """

    plain: Graph
    unscored: tuple[tuple[int, int], ...] = ()

    kind: ClassVar[str] = "nodes"
    level: ClassVar[str] = "node"
    unit: ClassVar[str] = "node"

    def __post_init__(self) -> None:
        if not isinstance(self.plain, Graph):
            raise InputError(f"{self.unit}s are those of a plain graph, not of a {type(self.plain).__name__}")
        if len(self.unscored) > MAX_RANGES:
            raise InputError(f"{len(self.unscored):,} ranges of unscored {self.unit}s are more than {MAX_RANGES:,}")
        if self.unscored and self.n_members > MAX_PARTLY_SCORED:
            raise InputError(f"graphs of {self.n_members:,} {self.unit}s must have a score for every one")
        ranges = tuple((int(start), int(stop)) for start, stop in self.unscored)
        bounds = [-1, *(bound for pair in ranges for bound in pair), self.n_members + 1]
        if any(low >= high for low, high in itertools.pairwise(bounds)):
            raise InputError(f"unscored must be ascending ranges of the {self.n_members:,} {self.unit}s, with gaps")
        object.__setattr__(self, "unscored", ranges)

    @classmethod
    def of_scored(cls, plain: Graph, is_scored: NDArray[np.bool_]) -> NodeGraph:
        """Return the graph in which only some members [source] or [source, d_model] have a score."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], ~np.ravel(is_scored), [False]])))
        return cls(plain, tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)))

    @property
    def width(self) -> int:
        """The number of members per node: 1, or the number of neurons."""
        return 1

    @property
    def n_members(self) -> int:
        """The number of nodes or neurons, scored or not."""
        return self.plain.n_sources * self.width

    @property
    def n_edges(self) -> int:
        """The number of nodes or neurons to select from: those with a score."""
        return self.n_members - sum(stop - start for start, stop in self.unscored)

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """[edge] The place of what is selected among all nodes or neurons: `source * width + dimension`."""
        return freeze(np.flatnonzero(~self._unscored_mask))

    @cached_property
    def _unscored_mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.n_members, bool)
        for start, stop in self.unscored:
            mask[start:stop] = True
        return freeze(mask)

    @property
    def n_nodes(self) -> int:
        """Two: what `input` needs, and what all others need."""
        return 2

    @property
    def node_names(self) -> tuple[str, ...]:
        """The two ends of the direct path."""
        return ("input", "logits")

    @property
    def plain_node(self) -> NDArray[np.int32]:
        return freeze(np.array([0, self.plain.n_sources], np.int32))

    @cached_property
    def edge_source(self) -> NDArray[np.int32]:
        """[edge] 0 for `input`, and for all if a part of `input` is in every circuit; 1 for others."""
        if self._unscored_mask[: self.width].any():
            return freeze(np.zeros(self.n_edges, np.int32))
        return freeze((self.members >= self.width).astype(np.int32))

    @cached_property
    def edge_target(self) -> NDArray[np.int32]:
        """[edge] The other one of the two nodes."""
        return freeze(1 - self.edge_source)

    def edge_name(self, edge: int) -> str:
        """Return the name of a node, such as `a0.h1`."""
        return self.plain.source_names[int(self.members[edge])]

    @cached_property
    def _source_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.plain.source_names)}

    def edge_index(self, name: str) -> int:
        """Return the index of the node or neuron with a name."""
        member = self._member(name)
        edge = int(np.searchsorted(self.members, member))
        if member < 0 or edge >= self.n_edges or self.members[edge] != member:
            raise InputError(f"there is no {self.unit} {name!r} with a score in a graph of {self.plain}")
        return edge

    def edges_of(self, name: str) -> NDArray[np.intp]:
        """Return the node or neuron with a name, or all neurons of the node with a name."""
        if self.width == 1 or name not in self._source_index:
            return self.edge_indices([name])
        return np.flatnonzero(self.members // self.width == self._source_index[name])

    def _member(self, name: str) -> int:
        """Return the place of a name among all nodes; -1 if there is none."""
        return self._source_index.get(name, -1)

    def member_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return [source, width] which nodes or neurons a circuit has, the unscored ones included."""
        members = self._unscored_mask.copy()
        members[self.members[mask]] = True
        return members.reshape(-1, self.width)

    def member_values(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values [edge] as [source, width]; NaN for what has no score."""
        members = np.full(self.n_members, np.nan, values.dtype)
        members[self.members] = values
        return members.reshape(-1, self.width)

    def plain_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the edges [plain edge] among the nodes of a circuit."""
        inside = np.append(self.member_mask(mask).any(1), True)
        return inside[self.plain.edge_source] & inside[self.plain.edge_target]

    def plain_score(self, score: NDArray[Any]) -> NDArray[Any]:
        """Return for each edge of `plain` the score of its source, the sum over its neurons; 0 if it has none."""
        total = np.bincount(self.members // self.width, score, self.plain.n_sources)
        return total[self.plain.edge_source]

    def from_plain(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return for each node or neuron the value of its node's edge to the logits."""
        return values[self.plain.blocks[-1]][self.members // self.width]

    def weighted_edge_count(self, mask: NDArray[np.bool_]) -> float:
        """Return the size of a circuit as MIB reports it.

        It counts all pairs of a node and of a destination in the circuit, those that are no edge as well; a pair counts
        as the share of the node's neurons in the circuit.
        """
        members = self.member_mask(mask)
        inside = np.append(members.any(1), True)
        return float(members.mean(1).sum() * inside[self.plain.destination_node].sum())

    def __str__(self) -> str:
        return str(self.plain)


@dataclass(frozen=True)
class NeuronGraph(NodeGraph):
    """Neurons: the output dimensions of nodes.

    A circuit has all edges among the nodes of its neurons. Along them go the changes of its neurons; other dimensions
    keep their reference value. If a norm follows attention, the neurons of a head are those before the norm.

    A circuit needs a neuron of `input`, as a circuit of nodes needs `input`.

    unscored  ranges (start, stop) of neurons, counted as `source * d_model + dimension`
    """

    kind: ClassVar[str] = "neurons"
    level: ClassVar[str] = "neuron"
    unit: ClassVar[str] = "neuron"

    @property
    def width(self) -> int:
        return self.plain.d_model

    def edge_name(self, edge: int) -> str:
        """Return the name of a neuron, such as `m3:17`."""
        source, dimension = divmod(int(self.members[edge]), self.width)
        return f"{self.plain.source_names[source]}:{dimension}"

    def _member(self, name: str) -> int:
        node, _, dimension = name.partition(":")
        source = self._source_index.get(node, -1)
        is_number = dimension.isdecimal() and len(dimension) < 10 and int(dimension) < self.width
        return source * self.width + int(dimension) if source >= 0 and is_number else -1

    def output_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self.member_mask(mask)
