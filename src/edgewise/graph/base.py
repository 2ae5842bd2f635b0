"""The computation graph of a decoder-only transformer: which nodes read what other nodes write.

`BaseGraph` is what selection, circuits and reports need of a graph, whatever its circuits consist of.
"""

from __future__ import annotations

import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

LETTERS = "qkv"
# Pairs of source and destination: several times those of the largest models.
MAX_PAIRS = 2**32


class BaseGraph(ABC):
    """What can be selected, and how it is connected. Frozen values that are equal if they describe the same.

    What is selected is called an edge here, whatever it is: a circuit is a mask [edge]. Every edge leads from a node to
    a later one. The first node is `input`, the last one `logits`. Every other node has edges from `input` and to
    `logits`. A node is used if an edge touches it, and every used node needs an edge in and an edge out.

    plain  the graph of the model's edges
    kind   the name of this kind of graph in files
    level  'edge', 'node' or 'neuron'
    unit   the word for one edge in messages, in singular
    """

    kind: ClassVar[str]
    level: ClassVar[str]
    unit: ClassVar[str]

    if TYPE_CHECKING:  # a field of most kinds, for which an inherited property would be a default value

        @property
        def plain(self) -> Graph: ...

    @property
    @abstractmethod
    def n_edges(self) -> int:
        """The number of edges, computed without making them."""

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """The number of nodes."""

    @property
    @abstractmethod
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, from `input` to `logits`."""

    @property
    @abstractmethod
    def edge_source(self) -> NDArray[np.int32]:
        """[edge] The node that an edge begins at."""

    @property
    @abstractmethod
    def edge_target(self) -> NDArray[np.int32]:
        """[edge] The node that an edge ends in."""

    @property
    @abstractmethod
    def plain_node(self) -> NDArray[np.int32]:
        """[node] The node of `plain` that a node is a part of."""

    @abstractmethod
    def edge_name(self, edge: int) -> str:
        """Return the name of one edge, without making the names of all."""

    @abstractmethod
    def edge_index(self, name: str) -> int:
        """Return the index of the edge with a name."""

    @abstractmethod
    def edges_of(self, name: str) -> NDArray[np.intp]:
        """Return the edges with a name, or those out of the node with a name."""

    def plain_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which edges of `plain` a mask [edge] has, at least in part. In a plain graph, these are the same."""
        return mask

    def plain_score(self, score: NDArray[Any]) -> NDArray[Any]:
        """Return the scores of the edges of `plain` that follow from scores [edge]."""
        return score

    def from_plain(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return for each edge [edge] the value of its edge of `plain`."""
        return values

    def output_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Return [source, d_model] which dimensions of node outputs a circuit has; None for all."""
        return None

    @property
    def edge_names(self) -> tuple[str, ...]:
        """Names of all edges."""
        return tuple(self.edge_name(edge) for edge in range(self.n_edges))

    def edge_indices(self, names: Iterable[str]) -> NDArray[np.intp]:
        """Return the indices of the edges with these names."""
        return np.array([self.edge_index(name) for name in names], np.intp)

    def used_nodes(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether [node] each node has an edge in a mask [edge]."""
        used = np.zeros(self.n_nodes, bool)
        used[self.edge_source[mask]] = used[self.edge_target[mask]] = True
        return used

    def record(self) -> dict[str, Any]:
        """Return the graph as plain data for JSON."""
        return {"kind": self.kind} | asdict(self)  # type: ignore[call-overload, no-any-return]

    @property
    def units(self) -> str:
        """The word for edges in messages, in plural."""
        return f"{self.unit}s"

    def describe(self) -> str:
        """Return what circuits consist of, and the graph: two graphs may differ in the first only."""
        return f"{self.units} of {self}"

    def count(self, n_edges: int) -> str:
        """Return a number of edges as text, such as '324 edges'."""
        return f"{n_edges:,} {self.unit}{'' if n_edges == 1 else 's'}"


@dataclass(frozen=True)
class Graph(BaseGraph):
    """The edges of a model, which follow from its shape.

    Sources write to the residual stream: `input`, then per layer its heads `a{l}.h{h}` and its MLP `m{l}`.
    Destinations read it: per layer `a{l}.h{h}<q>` of all heads, all `<k>`, all `<v>`, then `m{l}`; last `logits`.
    Nodes are the sources, then `logits`. An edge joins every source to every later destination.

    Edges have one order everywhere, the order of EAP-IG's files: reader by reader (a layer's attention, its MLP,
    ..., the logits), therein by source, then head, then q, k, v. So each reader's edges are one block.
    """

    n_layers: int
    n_heads: int
    d_model: int
    parallel: bool = False

    kind: ClassVar[str] = "edges"
    level: ClassVar[str] = "edge"
    unit: ClassVar[str] = "edge"

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "d_model"):
            value = getattr(self, name)
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise InputError(f"a graph's {name} must be a whole number, not {short(value)}")
            number = operator.index(value)
            if number < 1:
                raise InputError(f"a graph's {name} must be at least 1, not {number}")
            if number >= 2**31:
                raise InputError(f"a graph's {name} is larger than any model's")
            object.__setattr__(self, name, number)
        if not isinstance(self.parallel, bool):
            raise InputError(f"whether a graph is parallel must be true or false, not {short(self.parallel)}")
        if self.n_sources * self.n_destinations > MAX_PAIRS:
            raise InputError(f"{self} is larger than any model")

    @property
    def plain(self) -> Graph:
        """The graph itself."""
        return self

    @property
    def n_sources(self) -> int:
        """Number of sources: input, and per layer its heads and its MLP: 1 + L(H+1)."""
        return 1 + self.n_layers * (self.n_heads + 1)

    @property
    def n_destinations(self) -> int:
        """Number of destinations: per layer its heads' q, k and v and its MLP, and logits: L(3H+1) + 1."""
        return self.n_layers * (3 * self.n_heads + 1) + 1

    @property
    def n_nodes(self) -> int:
        """The sources and `logits`."""
        return self.n_sources + 1

    @property
    def n_edges(self) -> int:
        readers = 3 * self.n_heads + 1
        read = self.n_layers + (self.n_heads + 1) * self.n_layers * (self.n_layers - 1) // 2
        return read * readers + (0 if self.parallel else self.n_layers * self.n_heads) + self.n_sources

    def n_attention_sources(self, layer: int) -> int:
        """Return how many sources a layer's q, k and v read, which is also the source index of its first head."""
        return 1 + layer * (self.n_heads + 1)

    def n_mlp_sources(self, layer: int) -> int:
        """Return how many sources a layer's MLP reads: those of its attention, and its heads if not parallel."""
        return self.n_attention_sources(layer) + (0 if self.parallel else self.n_heads)

    def mlp_source_index(self, layer: int) -> int:
        """Return the source index of a layer's MLP."""
        return self.n_attention_sources(layer) + self.n_heads

    def attention_destinations(self, layer: int) -> slice:
        """Return the slice of destinations through which a layer's attention reads the stream: all q, all k, all v."""
        first = layer * (3 * self.n_heads + 1)
        return slice(first, first + 3 * self.n_heads)

    def mlp_destination(self, layer: int) -> int:
        """Return the destination index of a layer's MLP."""
        return self.attention_destinations(layer).stop

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """The edges of each reader: attention 0, MLP 0, attention 1, ..., MLP L-1, logits.

        An attention block is [source, head, qkv], the others [source], flattened.
        """
        counts = []
        for layer in range(self.n_layers):
            counts += [self.n_attention_sources(layer) * self.n_heads * 3, self.n_mlp_sources(layer)]
        stops = np.cumsum([0, *counts, self.n_sources])
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(stops))

    @cached_property
    def heads(self) -> NDArray[np.int64]:
        """[layer * head] The nodes that are heads."""
        first = np.array([self.n_attention_sources(layer) for layer in range(self.n_layers)])
        return freeze((first[:, None] + np.arange(self.n_heads)).ravel())

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Names of the sources, in order."""
        names = ["input"]
        for layer in range(self.n_layers):
            names += [f"a{layer}.h{head}" for head in range(self.n_heads)] + [f"m{layer}"]
        return tuple(names)

    @cached_property
    def destination_names(self) -> tuple[str, ...]:
        """Names of the destinations, in order."""
        names = []
        for layer in range(self.n_layers):
            names += [f"a{layer}.h{head}<{letter}>" for letter in LETTERS for head in range(self.n_heads)]
            names.append(f"m{layer}")
        return (*names, "logits")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes: the sources, then `logits`."""
        return (*self.source_names, "logits")

    @cached_property
    def destination_node(self) -> NDArray[np.int32]:
        """[destination] The node that each destination belongs to."""
        node = np.empty(self.n_destinations, np.int32)
        for layer in range(self.n_layers):
            heads = self.n_attention_sources(layer) + np.arange(self.n_heads)
            node[self.attention_destinations(layer)] = np.tile(heads, 3)
            node[self.mlp_destination(layer)] = self.mlp_source_index(layer)
        node[-1] = self.n_sources
        return freeze(node)

    @cached_property
    def _edges(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        first, step, count = self._places
        destination = np.repeat(np.arange(self.n_destinations, dtype=np.int32), count)
        source = np.arange(self.n_edges) - np.repeat(np.cumsum(count) - count, count)
        edges = np.empty((2, self.n_edges), np.int32)
        edges[:, first[destination] + source * step[destination]] = source, destination
        source_of, destination_of = freeze(edges)
        return source_of, destination_of

    @property
    def edge_source(self) -> NDArray[np.int32]:
        """[edge] The source of an edge; its index is also that of the node."""
        return self._edges[0]

    @property
    def edge_destination(self) -> NDArray[np.int32]:
        """[edge] The destination of an edge."""
        return self._edges[1]

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """[destination] Its first edge (from `input`), the step to the next source's edge, and its number of edges."""
        first, step, count = np.ones((3, self.n_destinations), np.int64)
        for layer in range(self.n_layers):
            at, mlp = self.attention_destinations(layer), self.mlp_destination(layer)
            heads = 3 * np.arange(self.n_heads) + np.arange(3)[:, None]
            first[at], first[mlp] = (block.start for block in self.blocks[2 * layer : 2 * layer + 2])
            first[at] += heads.ravel()
            step[at], count[at] = 3 * self.n_heads, self.n_attention_sources(layer)
            count[mlp] = self.n_mlp_sources(layer)
        first[-1], count[-1] = self.blocks[-1].start, self.n_sources
        return freeze(first), freeze(step), freeze(count)

    def edges_between(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the edges [pair] from sources to destinations, all by index; -1 where there is none."""
        first, step, count = (part[destinations] for part in self._places)
        joined = (sources >= 0) & (destinations >= 0) & (sources < count)
        return np.where(joined, first + sources * step, -1)

    @cached_property
    def edge_target(self) -> NDArray[np.int32]:
        return freeze(self.destination_node[self.edge_destination])

    @cached_property
    def plain_node(self) -> NDArray[np.int32]:
        return freeze(np.arange(self.n_nodes, dtype=np.int32))

    def edge_name(self, edge: int) -> str:
        return f"{self.source_names[self.edge_source[edge]]}->{self.destination_names[self.edge_destination[edge]]}"

    @cached_property
    def edge_names(self) -> tuple[str, ...]:
        """Names of the edges, such as `input->a0.h1<q>`."""
        sources, destinations = self.source_names, self.destination_names
        pairs = zip(self.edge_source.tolist(), self.edge_destination.tolist(), strict=True)
        return tuple(f"{sources[u]}->{destinations[v]}" for u, v in pairs)

    @cached_property
    def _index_of_edge(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.edge_names)}

    def edge_index(self, name: str) -> int:
        try:
            return self._index_of_edge[name]
        except KeyError:
            raise InputError(f"there is no edge {name!r} in a graph of {self}") from None

    def record(self) -> dict[str, Any]:
        """Return the graph as plain data for JSON. It has no kind, as in files of all versions."""
        return asdict(self)

    def edges_of(self, name: str) -> NDArray[np.intp]:
        """Return the index of the edge with a name, or the indices of all edges out of the node with a name."""
        if "->" in name:
            return self.edge_indices([name])
        if name not in self.source_names:
            expected = f"a0.h0 to a{self.n_layers - 1}.h{self.n_heads - 1}, m0 to m{self.n_layers - 1} or input"
            raise InputError(
                f"there is no node {name!r} with edges out of it in a graph of {self}; "
                f"give {expected}, or an edge such as {self.edge_names[0]}"
            )
        return np.flatnonzero(self.edge_source == self.source_names.index(name))

    def __str__(self) -> str:
        kind = "parallel" if self.parallel else "sequential"
        return f"{self.n_layers} layers x {self.n_heads} heads, width {self.d_model}, {kind} attention and MLP"


def frozen(values: ArrayLike, kind: type | None = None) -> NDArray:
    """Return values as a read-only array; copy them if they are writable."""
    array = np.asarray(values, kind)
    return freeze(array.copy()) if array.flags.writeable else array


def freeze(array: NDArray) -> NDArray:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


def size_to_edges(share: float, n_edges: int) -> int:
    """Return int(share * edges), as MIB defines it."""
    if not 0 <= share <= 1:
        raise InputError(f"a circuit's size is a share of the edges, from 0 to 1, but {share} was given")
    return int(share * n_edges)
