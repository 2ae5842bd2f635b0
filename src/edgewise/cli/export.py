"""edgewise export: write a circuit as a graph for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import InputError
from ..io.atomic import check_file, write_text
from ..report.exports import EXPORTS, export_format, export_text
from . import options
from .console import print_json, say
from .options import option
from .repeat import is_written


def command(
    *,
    circuit: Path = options.CIRCUIT,
    chosen: options.CircuitOptions,
    to: str | None = option(None, "Output", "The format; by default by the suffix of --out.", choices=EXPORTS),
    out_file: Path | None = option(None, "Output", "FILE.dot, FILE.graphml or FILE.cyjs; by default stdout.", "--out"),
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
) -> None:
    """Export a circuit as a graph: Graphviz' dot, GraphML, or Cytoscape's JSON. networkx reads all of them.

    Nodes have their kind, layer and head; edges have their input (q, k or v), score and sign. Edges into q, k and v of
    the same head are separate.
    """
    kind = export_format(to, out_file)
    if out_file is not None:
        check_file(out_file, inputs=[circuit])
    elif json:
        raise InputError("--json describes the written file; give --out FILE, or omit --json to print the graph")
    opened = chosen.open(circuit)
    text = export_text(kind, opened.circuit, opened.score, opened.name)
    if out_file is None:
        sys.stdout.write(text)
        return
    if not is_written(out_file, text):
        check_file(out_file, overwrite)
        write_text(out_file, text)
    is_edges = opened.circuit.graph.level == "edge"
    drawn = opened.circuit if is_edges else opened.circuit.plain()
    n_nodes, n_edges = int(drawn.node_mask.sum()), drawn.n_edges
    if json:
        print_json({"out": str(out_file), "format": kind, "nodes": n_nodes, "edges": n_edges})
    else:
        say(f"wrote {out_file}: {n_edges:,} {drawn.graph.units} between {n_nodes:,} nodes, {EXPORTS[kind].readers}")
