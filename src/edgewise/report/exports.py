"""Circuits as graphs for other programs: Graphviz dot, GraphML, Cytoscape JSON.

All are directed graphs with parallel edges: a head reads q, k and v through separate edges, which have different keys.
Nodes are those with an edge in the circuit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..graph import LETTERS, NodeGraph
from ..method import as_known
from .circuit_summary import COLOURS, KINDS, edge_kinds
from .formatting import one_line

if TYPE_CHECKING:
    from networkx import MultiDiGraph


@dataclass(frozen=True)
class ExportFormat:
    """A file format: its suffixes, the programs that read it, and the function that writes it as text."""

    suffixes: tuple[str, ...]
    readers: str
    to_text: Callable[[MultiDiGraph], str]


def export_format(name: str | None, path: Path | None) -> str:
    """Return the format of a name, in any case, or of a file's suffix."""
    if name is not None:
        return as_known("format", name, EXPORTS)
    suffix = "" if path is None else path.suffix.lower()
    for format_name, export in EXPORTS.items():
        if suffix in export.suffixes:
            return format_name
    problem = "no format was given" if path is None else f"{path} has the suffix {path.suffix!r}"
    suffixes = ", ".join(export.suffixes[0] for export in EXPORTS.values())
    raise InputError(f"{problem}; give --to {', '.join(EXPORTS)}, or --out with a suffix such as {suffixes}")


def export_text(format: str, circuit: Circuit, score: NDArray[np.floating] | None = None, name: str = "") -> str:
    """Return a circuit as the text of a file; `score` [edge] is signed."""
    return EXPORTS[format].to_text(to_networkx(circuit, score, one_line(name)))


def to_networkx(circuit: Circuit, score: NDArray[np.floating] | None = None, name: str = "") -> MultiDiGraph:
    """Return a circuit as a networkx graph whose edges have their names as keys.

    A circuit of nodes or neurons is given by the edges among its nodes, each with the score of its source.
    """
    from networkx import MultiDiGraph

    if isinstance(circuit.graph, NodeGraph):
        inside = None if score is None else np.where(circuit.mask, score, 0.0)
        score = None if inside is None else circuit.graph.plain_score(inside)
        circuit = circuit.plain()
    graph, kinds, names = circuit.graph, edge_kinds(circuit.graph), circuit.graph.node_names
    exported = MultiDiGraph(name=name)
    for node in np.flatnonzero(circuit.node_mask).tolist():
        layer, head = divmod(int(graph.plain_node[node]) - 1, graph.plain.n_heads + 1)
        if node in (0, graph.n_nodes - 1):
            exported.add_node(names[node], kind=names[node])
        elif head == graph.plain.n_heads:
            exported.add_node(names[node], kind="mlp", layer=layer)
        else:
            exported.add_node(names[node], kind="head", layer=layer, head=head)
    for edge in np.flatnonzero(circuit.mask).tolist():
        kind, key = KINDS[kinds[edge]], graph.edge_name(edge)
        attributes: dict[str, Any] = {"name": key, "kind": kind, "letter": kind if kind in LETTERS else ""}
        if score is not None:
            value = float(score[edge])
            attributes |= {"score": value, "sign": "positive" if value > 0 else "negative" if value < 0 else "zero"}
        exported.add_edge(names[graph.edge_source[edge]], names[graph.edge_target[edge]], key, **attributes)
    return exported


def _to_dot(graph: MultiDiGraph) -> str:
    def quote(value: object) -> str:
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def list_attributes(attributes: dict[str, Any]) -> str:
        return f"[{', '.join(f'{name}={quote(value)}' for name, value in attributes.items())}]"

    largest = max((abs(score) for _, _, score in graph.edges(data="score", default=0.0)), default=0.0) or 1.0
    lines = [f"digraph {quote(graph.name)} {{", "  rankdir=BT;", "  node [shape=box, style=rounded];"]
    layers: dict[Any, list[str]] = {}
    for node, attributes in graph.nodes(data=True):
        lines.append(f"  {quote(node)} {list_attributes(attributes)};")
        layers.setdefault((attributes["kind"], attributes.get("layer")), []).append(quote(node))
    lines += [f"  {{rank=same; {'; '.join(nodes)}}}" for nodes in layers.values() if len(nodes) > 1]
    for start, end, key, attributes in graph.edges(keys=True, data=True):
        drawn = {"key": key, "label": attributes["letter"], **attributes, "color": COLOURS[attributes["kind"]]}
        drawn["style"] = "dashed" if attributes.get("sign") == "negative" else "solid"
        if "score" in attributes:
            drawn["penwidth"] = f"{0.5 + 3.5 * abs(attributes['score']) / largest:.3g}"
        lines.append(f"  {quote(start)} -> {quote(end)} {list_attributes(drawn)};")
    return "\n".join([*lines, "}", ""])


def _to_graphml(graph: MultiDiGraph) -> str:
    from networkx import generate_graphml

    return "\n".join(generate_graphml(graph)) + "\n"


def _to_cytoscape(graph: MultiDiGraph) -> str:
    from networkx import cytoscape_data

    data = cytoscape_data(graph)
    data["data"] = dict(graph.graph)
    for edge in data["elements"]["edges"]:
        edge["data"]["id"] = edge["data"]["key"]
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


EXPORTS = {
    "dot": ExportFormat((".dot", ".gv"), "for Graphviz", _to_dot),
    "graphml": ExportFormat((".graphml", ".xml"), "for networkx, Gephi and others", _to_graphml),
    "cytoscape": ExportFormat((".cyjs", ".json"), "for Cytoscape and networkx", _to_cytoscape),
}
