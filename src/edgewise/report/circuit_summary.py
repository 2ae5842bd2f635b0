"""What a circuit is, in words: its strongest edges, its heads and MLPs, and what kinds of edges it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ..core.circuit import Circuit
from ..errors import InputError
from ..io.edge_file import edge_name
from .edge_kinds import KINDS, edge_kinds
from .formatting import format_score
from .tables import number_tables

TOP = 8
# Between tables.
GAP = 4


@dataclass(frozen=True)
class ScoredEdge:
    """An edge's name and its score, if there are scores."""

    name: str
    score: float | None


@dataclass(frozen=True)
class NodeTotal:
    """A head or an MLP: how many of the circuit's edges end and start there, and the total of their absolute scores."""

    name: str
    total: float | None
    edges_in: int
    edges_out: int


@dataclass(frozen=True)
class CircuitWords:
    """What there is to say of a circuit.

    edges      inside, of `of` in the graph; `heads` and `mlps` have an edge inside
    strongest  edges by absolute score; without scores the first in the graph's order
    nodes      heads and MLPs by total absolute score; without scores by their edges
    kinds      how many edges end in a head's q, k or v, in an MLP, in the logits
    signs      how many edges are positive, negative and zero; None where signs mean nothing
    """

    edges: int
    of: int
    heads: int
    mlps: int
    strongest: tuple[ScoredEdge, ...]
    nodes: tuple[NodeTotal, ...]
    kinds: Mapping[str, int]
    signs: Mapping[str, int] | None

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """How large it is and of what kinds its edges are."""
        share = f" ({self.edges / self.of:.1%})"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items() if count)
        signs = "" if self.signs is None else ", ".join(f"{n:,} {sign}" for sign, n in self.signs.items() if n)
        found = f"{self.edges:,} of {self.of:,} edges{share}, heads: {self.heads:,}, MLPs: {self.mlps:,}"
        return "; ".join(part for part in (found, kinds, signs) if part)


def describe(
    circuit: Circuit, score: NDArray[np.floating] | None = None, signed: bool = True, top: int = TOP
) -> CircuitWords:
    """A circuit in words.

    score   [edge]; without it, edges have no order and nodes go by how many they have
    signed  whether the signs of scores mean something
    top     how many edges and nodes to name
    """
    if top < 1:
        raise InputError(f"the number of edges to name must be at least 1, not {top}")
    graph, edges = circuit.graph, np.flatnonzero(circuit.mask)
    known = None if score is None else np.asarray(score, np.float64)[edges]
    weight = np.ones(len(edges)) if known is None else np.abs(known)
    starts, ends = graph.edge_source[edges], graph.edge_head[edges]
    total, outgoing, incoming = (
        np.bincount(np.concatenate(nodes), weights, graph.n_nodes)
        for nodes, weights in (((starts, ends), np.tile(weight, 2)), ((starts,), None), ((ends,), None))
    )
    inner = np.arange(1, graph.n_nodes - 1)  # neither input nor logits
    used = inner[circuit.nodes[inner]]
    is_mlp = (used - 1) % (graph.n_heads + 1) == graph.n_heads
    names = graph.node_names
    ranked = used[np.argsort(-total[used], kind="stable")][:top].tolist()
    strongest = np.argsort(-weight, kind="stable")[:top].tolist()
    kinds = np.bincount(edge_kinds(graph)[edges], minlength=len(KINDS))
    return CircuitWords(
        edges=len(edges),
        of=graph.n_edges,
        heads=int((~is_mlp).sum()),
        mlps=int(is_mlp.sum()),
        strongest=tuple(
            ScoredEdge(edge_name(graph, int(edges[at])), None if known is None else float(known[at]))
            for at in strongest
        ),
        nodes=tuple(
            NodeTotal(names[n], None if known is None else float(total[n]), int(incoming[n]), int(outgoing[n]))
            for n in ranked
        ),
        kinds=dict(zip(KINDS, kinds.tolist(), strict=True)),
        signs=None
        if known is None or not signed
        else {
            "positive": int((known > 0).sum()),
            "negative": int((known < 0).sum()),
            "zero": int((known == 0).sum()),
        },
    )


def circuit_tables(words: CircuitWords, width: int) -> list[Table]:
    """The strongest edges, and heads and MLPs by total score: side by side if the width allows."""
    if not words.edges:
        return []
    signed = words.signs is not None
    edges = edge_tables("strongest edges", words.strongest, width, signed)
    counts = [(node.edges_in, node.edges_out) for node in words.nodes]
    totals = [() if node.total is None else (format_score(node.total, signed=False),) for node in words.nodes]
    rows = [(node.name, *total, *both) for node, total, both in zip(words.nodes, totals, counts, strict=True)]
    heads = ("heads and MLPs", *(["total"] if any(totals) else []), "in", "out")
    return beside([*edges, *(number_tables(heads, rows, width) if rows else [])], width)


def edge_tables(heading: str, edges: Sequence[ScoredEdge], width: int, signed: bool = True) -> list[Table]:
    """Edges with their scores, if they have any."""
    if any(edge.score is None for edge in edges):
        return number_tables((heading,), [(edge.name,) for edge in edges], width)
    rows = [(edge.name, format_score(edge.score or 0.0, signed)) for edge in edges]
    return number_tables((heading, "score"), rows, width)


def beside(tables: Sequence[Table], width: int) -> list[Table]:
    """Tables next to each other if the width allows, else as they are."""
    console = Console(width=width)
    widths = [Measurement.get(console, console.options, table).maximum for table in tables]
    if len(tables) < 2 or sum(widths) + GAP * (len(tables) - 1) > width:
        return list(tables)
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_row(*tables)
    return [grid]
