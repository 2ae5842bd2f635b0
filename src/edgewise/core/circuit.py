"""A circuit: a graph and the edges that are in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from ..graph import Graph
from ..io.formats import read_edge_file, write_edge_file


@dataclass(frozen=True, eq=False)
class Circuit:
    """A subset of a graph's edges: `mask` is [edge], True for the edges inside."""

    graph: Graph
    mask: NDArray[np.bool_]

    def __post_init__(self) -> None:
        mask = np.array(self.mask, dtype=bool)
        if mask.shape != (self.graph.n_edges,):
            raise InputError(f"the circuit's mask has shape {mask.shape}, but the graph has {self.graph.n_edges} edges")
        mask.setflags(write=False)
        object.__setattr__(self, "mask", mask)

    @classmethod
    def full(cls, graph: Graph) -> Circuit:
        """The circuit of all edges: the model itself."""
        return cls(graph, np.ones(graph.n_edges, bool))

    @classmethod
    def empty(cls, graph: Graph) -> Circuit:
        """The circuit of no edges."""
        return cls(graph, np.zeros(graph.n_edges, bool))

    @classmethod
    def from_edges(cls, graph: Graph, edges: Iterable[str]) -> Circuit:
        """The circuit of the edges with these names, such as `input->a0.h1<q>`, each once."""
        counts = np.bincount(graph.edge_indices(edges), minlength=graph.n_edges)
        if (twice := np.flatnonzero(counts > 1)).size:
            raise InputError(f"edge {graph.edge_names[twice[0]]} is given {counts[twice[0]]} times; give it once")
        return cls(graph, counts > 0)

    @classmethod
    def load(cls, path: str | Path) -> Circuit:
        """The circuit in a file: an EAP-IG json or pt, or a npz of ours. Edges that a json leaves out are outside."""
        held = read_edge_file(Path(path))
        return cls(held.graph, held.require_mask())

    def save(self, path: str | Path, score: ArrayLike | None = None, about: Mapping[str, Any] | None = None) -> None:
        """Write an EAP-IG json or pt, or a npz of a few bytes, as the suffix says, whole or not at all.

        score  [edge] the signed scores that the circuit was chosen by; zeros without them. A npz keeps those inside
        about  plain data that says how it came about
        """
        known = np.zeros(self.graph.n_edges) if score is None else np.asarray(score, np.float64)
        write_edge_file(Path(path), self.graph, self.mask, known, about or {})

    @property
    def n_edges(self) -> int:
        """How many edges are inside."""
        return int(np.count_nonzero(self.mask))

    @property
    def nodes(self) -> NDArray[np.bool_]:
        """[node] whether a node has an edge inside."""
        return self.graph.used_nodes(self.mask)

    @property
    def edges(self) -> tuple[str, ...]:
        """The names of the edges inside, in the graph's order."""
        names = self.graph.edge_names
        return tuple(names[edge] for edge in np.flatnonzero(self.mask))

    def prune(self) -> Circuit:
        """Without the edges that lie on no path from `input` to `logits`."""
        return Circuit(self.graph, connected(self.graph, self.mask))

    def __repr__(self) -> str:
        return f"Circuit({self.n_edges:,} of {self.graph.n_edges:,} edges, {self.graph})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Circuit) and self.graph == other.graph and bool((self.mask == other.mask).all())

    def __hash__(self) -> int:
        return hash((self.graph, self.mask.tobytes()))


def connected(graph: Graph, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[edge] the edges of `mask` that remain after dropping, again and again, nodes without in- or out-edge."""
    edges = np.flatnonzero(mask)
    tail, head = graph.edge_source[edges], graph.edge_head[edges]
    while True:
        has_in, has_out = np.zeros((2, graph.n_nodes), bool)
        has_in[0] = has_out[-1] = True
        has_in[head] = has_out[tail] = True
        stays = has_in[tail] & has_out[head]
        if stays.all():
            break
        edges, tail, head = edges[stays], tail[stays], head[stays]
    kept = np.zeros(graph.n_edges, bool)
    kept[edges] = True
    return kept
