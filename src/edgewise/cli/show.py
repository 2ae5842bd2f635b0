"""edgewise show: what is in a circuit?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .console import out, print_json, print_tables, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.circuit import Circuit
    from ..recipes.outcome import Outcome
    from ..report.open_circuit import OpenCircuit

NAME = "show"


def command(
    circuit: Annotated[
        Path, typer.Argument(help="A circuit (npz, EAP-IG json or pt), or a folder made by `edgewise run`.")
    ],
    method: options.MethodOfRun = None,
    metric: options.MetricOfRun = None,
    size: options.SizeOfRun = None,
    top: options.Top = 8,
    json: options.Json = False,
) -> None:
    """Show a circuit: its strongest edges, its heads and MLPs by total score, and how faithful it is by size.

    Of a result folder, the circuit of one method at one size: unless you choose, of the method whose circuits the run
    wrote, and the smallest that has a faithfulness of 0.9 or more.
    """
    from ..report.circuit_summary import describe
    from ..report.open_circuit import open_circuit

    opened = open_circuit(circuit, method, metric, size)
    if not json:
        show_open(opened, top)
        return
    words = describe(opened.circuit, opened.score, top=top)
    found = {"circuit": str(circuit), "graph": str(opened.circuit.graph), **words.record()}
    if opened.row is not None:
        row, sizes = opened.row, opened.row.curve.rows()
        found |= {"metric": row.measure.name, "method": row.name, "size": sizes[opened.place], "sizes": sizes}
    print_json(found)


def show_open(opened: OpenCircuit, top: int = 8) -> None:
    """Print a circuit that was opened: what it is, its edges and nodes, and its method's curve if it is of a run."""
    from ..report.formatting import format_number

    show_circuit(opened.name, opened.circuit, opened.score, top=top)
    if opened.row is not None:
        faithful, reason = opened.row.curve.faithfulness[opened.place], f" ({opened.reason})" * bool(opened.reason)
        say(f"faithfulness: {format_number(faithful)}{reason}; scores: means over the training examples")
        show_curve(opened.row)


def show_circuit(
    name: str, circuit: Circuit, score: NDArray[np.floating] | None, signed: bool = True, top: int = 8
) -> None:
    """Print a circuit: how large it is, its strongest edges, its heads and MLPs."""
    from ..report.circuit_summary import circuit_tables, describe

    words = describe(circuit, score, signed, top)
    say(words.sentence, name)
    print_tables(circuit_tables(words, out.width))
    if not words.edges:
        say("no edge is inside: a size that asks for none, or scores from which a circuit is still to be selected")
    elif score is None:
        say("it has no scores: edges are in the graph's order, heads and MLPs by how many edges they have")


def show_curve(row: Outcome) -> None:
    """Print the curve of a method."""
    from ..report.terminal_curve import can_show, curve_lines

    curve = row.curve
    say(f"faithfulness of {row.name} by share of the edges", row.measure.name)
    sizes = curve.nonempty_sizes
    shares, values = [curve.shares[at] for at in sizes], curve.faithfulness[sizes].tolist()
    lines = curve_lines(shares, values, out.width, can_show(out.encoding))
    out.print("\n".join(lines), markup=False, no_wrap=True, overflow="ignore", crop=False)
