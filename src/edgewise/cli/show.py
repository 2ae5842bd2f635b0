"""edgewise show: print a circuit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..graph import BaseGraph, NodeGraph
from ..report.circuit_summary import TOP, OpenCircuit, circuit_tables, describe, summary_sentence
from ..report.formatting import format_number, format_score
from ..report.tables import curve_tables, number_tables
from . import options
from .console import out, print_json, print_tables, say

STRONGEST_EDGES = 10


def command(
    *,
    circuit: Path = options.CIRCUIT,
    chosen: options.CircuitOptions,
    top: int = options.TOP,
    json: bool = options.JSON,
) -> None:
    """Show a circuit: its strongest edges, its heads and MLPs by total score, and its faithfulness by size.

    Of a result folder, show the circuit of one recipe at one size: by default of the recipe in its circuits/, and the
    smallest faithful one: for CMD with faithfulness within 0.1 of 1, for CPR with 0.9 or more.
    """
    opened = chosen.open(circuit)
    if not json:
        show_open(opened, top)
        return
    summary = describe(opened.circuit, opened.score, top=top)
    record = {"circuit": str(circuit), "graph": str(opened.circuit.graph), **summary, **weighted_edges(opened.circuit)}
    if opened.outcome is not None:
        outcome, sizes = opened.outcome, opened.outcome.curve.rows()
        record |= {"measure": outcome.measure.name, "recipe": outcome.name}
        record |= {"size": sizes[opened.size_index], "sizes": sizes}
    print_json(record)


def show_open(opened: OpenCircuit, top: int = TOP) -> None:
    """Print an opened circuit: its edges and nodes, and, if it is of a run, the curve of its recipe."""
    show_circuit(opened.name, opened.circuit, opened.score, top=top)
    if opened.outcome is None:
        if opened.score is not None:
            say("scores: those in the file; a run writes the values that the circuit was selected by")
        return
    outcome, curve = opened.outcome, opened.outcome.curve
    faithfulness = format_number(curve.faithfulness[opened.size_index])
    say(f"faithfulness: {faithfulness}; scores: means over the training examples")
    if opened.reason:
        say(opened.reason)
    say(f"faithfulness of {outcome.name} by share of the {opened.circuit.graph.units}", outcome.measure.name)
    sizes = curve.nonempty_sizes
    shares, values = [curve.shares[place] for place in sizes], curve.faithfulness[sizes].tolist()
    print_tables(curve_tables(shares, values, out.width))


def show_circuit(
    name: str, circuit: Circuit, score: NDArray[np.floating] | None, signed: bool = True, top: int = TOP
) -> None:
    """Print a circuit: its size, its strongest edges, its heads and MLPs."""
    summary = describe(circuit, score, signed, top)
    say(summary_sentence(summary), name)
    print_tables(circuit_tables(summary, out.width))
    if (weighted := weighted_edges(circuit)) and summary["edges"]:
        n_edges = f"{circuit.plain().n_edges:,} edges among its nodes"
        say(f"{n_edges}; weighted edge count, as MIB counts it: {format_number(weighted['weighted_edges'], digits=1)}")
    if not summary["edges"]:
        say(
            f"the circuit has no {circuit.graph.units}: its size is too small, or this is a file of scores to "
            "select from"
        )
    elif score is None:
        say(
            f"the file has no scores: {circuit.graph.units} are in the graph's order, heads and MLPs by their "
            "number of edges"
        )


def weighted_edges(circuit: Circuit) -> dict[str, float]:
    """Return the weighted edge count of a circuit of nodes or neurons, as MIB reports it; nothing for edges."""
    graph = circuit.graph
    return {"weighted_edges": graph.weighted_edge_count(circuit.mask)} if isinstance(graph, NodeGraph) else {}


def show_strongest(head: str, graph: BaseGraph, value: NDArray[np.floating], signed: bool = True) -> None:
    """Print the edges with the largest values [edge], or of signed values the largest absolute ones."""
    order = np.argsort(-np.abs(value) if signed else -value, kind="stable")[:STRONGEST_EDGES]
    rows = [(graph.edge_name(edge), format_score(value[edge], signed)) for edge in order]
    print_tables(number_tables((f"{'strongest' if signed else 'best'} {graph.level}s", head), rows, out.width))
