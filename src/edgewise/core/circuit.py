"""A circuit: a subset of a graph's edges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from ..graph import BaseGraph, NodeGraph
from ..io.formats import read_edge_file, write_edge_file
from .notebook import MAX_ROWS, data_frame, edge_columns, html_table

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Circuit:
    """A subset of a graph's edges: `mask` is [edge], True for the edges inside."""

    graph: BaseGraph
    mask: NDArray[np.bool_]

    def __post_init__(self) -> None:
        values = np.asarray(self.mask)
        mask = values.astype(bool)
        if mask.shape != (self.graph.n_edges,):
            raise InputError(
                f"the circuit's mask has shape {mask.shape}, but the graph has {self.graph.count(self.graph.n_edges)}"
            )
        wrong = np.flatnonzero(mask != values)
        if len(wrong):  # scores or indices instead of a mask
            first = f"{values[wrong[0]]} for edge {self.graph.edge_name(int(wrong[0]))}"
            raise InputError(f"a circuit's mask has True or False for each edge, but {len(wrong)} are neither: {first}")
        mask.setflags(write=False)
        object.__setattr__(self, "mask", mask)

    @classmethod
    def full(cls, graph: BaseGraph) -> Circuit:
        """Return the circuit of all edges, which behaves like the model."""
        return cls(graph, np.ones(graph.n_edges, bool))

    @classmethod
    def empty(cls, graph: BaseGraph) -> Circuit:
        """Return the circuit without edges."""
        return cls(graph, np.zeros(graph.n_edges, bool))

    @classmethod
    def from_edges(cls, graph: BaseGraph, edges: Iterable[str]) -> Circuit:
        """Return the circuit of edges with these names, such as `input->a0.h1<q>`, each once."""
        counts = np.bincount(graph.edge_indices(edges), minlength=graph.n_edges)
        if (repeated := np.flatnonzero(counts > 1)).size:
            raise InputError(f"edge {graph.edge_name(repeated[0])} is given {counts[repeated[0]]} times; give it once")
        return cls(graph, counts > 0)

    @classmethod
    def load(cls, path: str | Path) -> Circuit:
        """Return the circuit in a file: an EAP-IG json or pt, or an edgewise npz. Missing edges are outside."""
        content = read_edge_file(Path(path))
        return cls(content.graph, content.require_mask())

    def save(self, path: str | Path, score: ArrayLike | None = None, about: Mapping[str, Any] | None = None) -> None:
        """Write an EAP-IG json or pt, or a small npz, by the suffix of the path, atomically.

        Parameters
        ----------
        score
            [edge] Signed scores of all edges, such as `discovery.mean_scores`. A circuit has none of its own: without
            them, the file has zeros, and `edgewise show` lists its edges in the graph's order. An npz keeps the scores
            of the circuit's edges only.
        about
            Plain data that says how the circuit was made.
        """
        scores = np.zeros(self.graph.n_edges) if score is None else self._check_score(score)
        write_edge_file(Path(path), self.graph, self.mask, scores, about or {})

    @property
    def n_edges(self) -> int:
        """The number of edges in the circuit."""
        return int(np.count_nonzero(self.mask))

    def to_frame(self, score: ArrayLike | None = None) -> DataFrame:
        """Return a pandas DataFrame with a row per edge of the circuit: edge, source, destination, input, and score.

        Pairs also have their span. Circuits of nodes have a column `node`, those of neurons also `neuron` and
        `dimension`.

        Parameters
        ----------
        score
            [edge] Signed scores of all edges of the graph, such as `discovery.mean_scores`.

        Examples
        --------
        >>> discovery.best("CMD").circuit(0.05).to_frame(discovery.mean_scores)
        """
        edges = np.flatnonzero(self.mask)
        columns = edge_columns(self.graph, edges.tolist())
        if score is not None:
            columns["score"] = self._check_score(score)[edges].tolist()
        return data_frame(columns)

    def _check_score(self, score: ArrayLike) -> NDArray[np.float64]:
        """Return [edge] scores as an array. Raise InputError if there isn't one number per edge."""
        try:
            values = np.asarray(score, np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"score must be an array of one number per edge, not {type(score).__name__}; EdgeScores have one as "
                "`.mean()`, a discovery as `.mean_scores`"
            ) from None
        if values.shape != self.mask.shape:
            raise InputError(f"score has shape {values.shape}, but the graph has {self.graph.n_edges} edges")
        return values

    @property
    def node_mask(self) -> NDArray[np.bool_]:
        """[node] Whether a node has an edge in the circuit."""
        return self.graph.used_nodes(self.mask)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that have an edge in the circuit, in the graph's order.

        Of a circuit of nodes or neurons, these are its nodes and `logits`.
        """
        if isinstance(self.graph, NodeGraph):
            return self.plain().nodes
        return tuple(self.graph.node_names[node] for node in np.flatnonzero(self.node_mask))

    @property
    def edges(self) -> tuple[str, ...]:
        """The names of the circuit's edges, in the graph's order."""
        return tuple(self.graph.edge_name(edge) for edge in np.flatnonzero(self.mask).tolist())

    def plain(self) -> Circuit:
        """Return the circuit of the plain graph with all edges that are inside at least in part."""
        if self.graph.plain is self.graph:
            return self
        return Circuit(self.graph.plain, self.graph.plain_mask(self.mask))

    def complement(self) -> Circuit:
        """Return the circuit of all other edges."""
        return Circuit(self.graph, ~self.mask)

    def without(self, nodes_or_edges: str | Iterable[str]) -> Circuit:
        """Return the circuit without these edges, and without all edges out of these nodes.

        Parameters
        ----------
        nodes_or_edges
            Names such as `a9.h9`, `m0` or `m0->a5.h5<q>`. Edges that aren't in the circuit are ignored.

        Returns
        -------
        Circuit

        Raises
        ------
        InputError
            If the graph has no such edge, or no such node with edges out of it.

        Examples
        --------
        >>> Circuit.full(model.graph).without(["a2.h3", "m0->logits"])
        """
        names = [nodes_or_edges] if isinstance(nodes_or_edges, str) else list(nodes_or_edges)
        mask = self.mask.copy()
        for name in names:
            mask[self.graph.edges_of(name)] = False
        return Circuit(self.graph, mask)

    def prune(self) -> Circuit:
        """Return the circuit without edges that lie on no path from `input` to `logits`."""
        return Circuit(self.graph, connected(self.graph, self.mask))

    def __repr__(self) -> str:
        return f"Circuit({self.n_edges:,} of {self.graph.n_edges:,} {self.graph.units}, {self.graph})"

    def _repr_html_(self) -> str:
        columns = edge_columns(self.graph, np.flatnonzero(self.mask)[:MAX_ROWS].tolist())
        return html_table(repr(self), list(columns), list(zip(*columns.values(), strict=True)), self.n_edges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Circuit) and self.graph == other.graph and bool((self.mask == other.mask).all())

    def __hash__(self) -> int:
        return hash((self.graph, self.mask.tobytes()))


def connected(graph: BaseGraph, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the edges [edge] of `mask` on paths from `input` to `logits`: drop dead ends until none is left."""
    edges = np.flatnonzero(mask)
    source, target = graph.edge_source[edges], graph.edge_target[edges]
    while True:
        has_in, has_out = np.zeros((2, graph.n_nodes), bool)
        has_in[0] = has_out[-1] = True
        has_in[target] = has_out[source] = True
        stays = has_in[source] & has_out[target]
        if stays.all():
            break
        edges, source, target = edges[stays], source[stays], target[stays]
    on_path = np.zeros(graph.n_edges, bool)
    on_path[edges] = True
    return on_path


def masks_digest(circuits: Iterable[Circuit]) -> str:
    """Return a hash of the edges of several circuits, in their order."""
    return hashlib.sha256(b"".join(np.packbits(circuit.mask).tobytes() for circuit in circuits)).hexdigest()
