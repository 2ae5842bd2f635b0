"""edgewise export: a circuit for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import print_json, say

NAME = "export"


def command(
    circuit: Annotated[
        Path, typer.Argument(help="A circuit (npz, EAP-IG json or pt), or a folder made by `edgewise run`.")
    ],
    to: Annotated[
        str | None, typer.Option(help="dot, graphml or cytoscape; by default what the suffix of --out says.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="FILE.dot, FILE.graphml or FILE.cyjs; without it, stdout.")
    ] = None,
    method: options.MethodOfRun = None,
    metric: options.MetricOfRun = None,
    size: options.SizeOfRun = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Export a circuit as a graph: Graphviz' dot, GraphML, or Cytoscape's JSON; networkx reads all of them.

    Nodes say their kind, layer and head; edges whether they end in q, k or v, their score and its sign. Edges of q, k
    and v between the same heads are edges of their own.
    """
    import sys

    from ..errors import InputError
    from ..io.atomic import check_file, write_text
    from ..report.exports import EXPORTS, export_format, export_text
    from ..report.open_circuit import open_circuit

    kind = export_format(to, out_file)
    if out_file is not None:
        check_file(out_file, overwrite, [circuit])
    elif json:
        raise InputError("--json says what was written; give --out FILE, or leave --json out to print the graph")
    opened = open_circuit(circuit, method, metric, size)
    text = export_text(kind, opened.circuit, opened.score, opened.name)
    if out_file is None:
        sys.stdout.write(text)
        return
    check_file(out_file, overwrite, [circuit])  # somebody may have written there meanwhile
    write_text(out_file, text)
    record = {"out": str(out_file), "format": kind, "nodes": int(opened.circuit.nodes.sum())}
    record["edges"] = opened.circuit.n_edges
    if json:
        print_json(record)
    else:
        say(f"wrote {out_file}: {record['edges']:,} edges between {record['nodes']:,} nodes, {EXPORTS[kind].words}")
