"""Summarise a circuit: its strongest edges, its heads and MLPs, and its kinds of edges."""

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
# Columns between tables.
TABLE_GAP = 4


@dataclass(frozen=True)
class ScoredEdge:
    """An edge's name and its score, if there are scores."""

    name: str
    score: float | None


@dataclass(frozen=True)
class NodeTotal:
    """A head or an MLP: the number of its edges in the circuit, and the total of their absolute scores."""

    name: str
    total: float | None
    edges_in: int
    edges_out: int


@dataclass(frozen=True)
class CircuitSummary:
    """A summary of a circuit.

    Attributes
    ----------
    edges, of
        The number of edges in the circuit and in the graph.
    heads, mlps
        The number of heads and MLPs with an edge in the circuit.
    strongest
        Edges by absolute score. Without scores the first in the graph's order.
    nodes
        Heads and MLPs by total absolute score. Without scores by their number of edges.
    kinds
        The number of edges into a head's q, k or v, into an MLP, into the logits.
    signs
        The number of positive, negative and zero scores. None where signs have no meaning.
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
        """Return plain data for JSON."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """The size and the kinds of edges in one line."""
        share = f" ({self.edges / self.of:.1%})"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items() if count)
        signs = "" if self.signs is None else ", ".join(f"{n:,} {sign}" for sign, n in self.signs.items() if n)
        found = f"{self.edges:,} of {self.of:,} edges{share}, heads: {self.heads:,}, MLPs: {self.mlps:,}"
        return "; ".join(part for part in (found, kinds, signs) if part)


def describe(
    circuit: Circuit, score: NDArray[np.floating] | None = None, signed: bool = True, top: int = TOP
) -> CircuitSummary:
    """Summarise a circuit.

    Parameters
    ----------
    score
        [edge] Without it, edges have the graph's order and nodes are sorted by their number of edges.
    signed
        Whether the signs of scores have a meaning.
    top
        The number of edges and nodes to list.
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
    return CircuitSummary(
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


def circuit_tables(summary: CircuitSummary, width: int) -> list[Table]:
    """Return tables of the strongest edges and of nodes, side by side if the width allows."""
    if not summary.edges:
        return []
    signed = summary.signs is not None
    edges = edge_tables("strongest edges", summary.strongest, width, signed)
    counts = [(node.edges_in, node.edges_out) for node in summary.nodes]
    totals = [() if node.total is None else (format_score(node.total, signed=False),) for node in summary.nodes]
    rows = [(node.name, *total, *both) for node, total, both in zip(summary.nodes, totals, counts, strict=True)]
    heads = ("heads and MLPs", *(["total"] if any(totals) else []), "in", "out")
    return beside([*edges, *(number_tables(heads, rows, width) if rows else [])], width)


def edge_tables(heading: str, edges: Sequence[ScoredEdge], width: int, signed: bool = True) -> list[Table]:
    """Return a table of edges, with their scores if they have any."""
    if any(edge.score is None for edge in edges):
        return number_tables((heading,), [(edge.name,) for edge in edges], width)
    rows = [(edge.name, format_score(edge.score or 0.0, signed)) for edge in edges]
    return number_tables((heading, "score"), rows, width)


def beside(tables: Sequence[Table], width: int) -> list[Table]:
    """Return tables side by side if the width allows, else as they are."""
    console = Console(width=width)
    widths = [Measurement.get(console, console.options, table).maximum for table in tables]
    if len(tables) < 2 or sum(widths) + TABLE_GAP * (len(tables) - 1) > width:
        return list(tables)
    grid = Table.grid(padding=(0, TABLE_GAP, 0, 0))
    grid.add_row(*tables)
    return [grid]
