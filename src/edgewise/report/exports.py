"""Circuits as graphs for other programs: Graphviz' dot, GraphML, Cytoscape's JSON.

All are directed graphs with several edges between two nodes: a head's q, k and v are read by edges of their own, told
apart by their key. Nodes are those with an edge inside the circuit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..graph import LETTERS, Graph
from ..io.edge_file import edge_name
from ..method import as_known
from .edge_kinds import COLOURS, KINDS, edge_kinds
from .formatting import one_line

Attributes = Mapping[str, Any]
NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
XML_TYPES = {str: "string", int: "long", float: "double"}
# Widths of dot's lines, in points.
THINNEST, WIDEST = 0.5, 4.0


@dataclass(frozen=True)
class ExportGraph:
    """A circuit as nodes and edges with attributes: nodes by name, edges as (start, end, attributes)."""

    name: str
    nodes: Mapping[str, Attributes]
    edges: tuple[tuple[str, str, Attributes], ...]


@dataclass(frozen=True)
class ExportFormat:
    """How a graph becomes text; `words` say who reads it."""

    suffixes: tuple[str, ...]
    words: str
    text: Callable[[ExportGraph], str]


def export_format(name: str | None, path: Path | None) -> str:
    """The format that is named, in any case, or that a file's suffix stands for."""
    if name is not None:
        return as_known("format", name, EXPORTS)
    suffix = "" if path is None else path.suffix.lower()
    found = next((name for name, one in EXPORTS.items() if suffix in one.suffixes), None)
    if found is None:
        given = "no format was given" if path is None else f"{path} has the suffix {path.suffix!r}"
        suffixes = ", ".join(one.suffixes[0] for one in EXPORTS.values())
        raise InputError(f"{given}; give --to {', '.join(EXPORTS)}, or --out with a suffix such as {suffixes}")
    return found


def export_text(format: str, circuit: Circuit, score: NDArray[np.floating] | None = None, name: str = "") -> str:
    """A circuit as the text of a file; `score` [edge] is signed."""
    return EXPORTS[format].text(_graph(circuit, score, one_line(name)))


def _graph(circuit: Circuit, score: NDArray[np.floating] | None, name: str) -> ExportGraph:
    graph, kinds, names = circuit.graph, edge_kinds(circuit.graph), circuit.graph.node_names
    nodes = {names[node]: _node(graph, node) for node in np.flatnonzero(circuit.nodes).tolist()}
    edges = []
    for edge in np.flatnonzero(circuit.mask).tolist():
        kind = KINDS[kinds[edge]]
        about: dict[str, Any] = {
            "name": edge_name(graph, edge),
            "kind": kind,
            "letter": kind if kind in LETTERS else "",
        }
        if score is not None:
            value = float(score[edge])
            about |= {"score": value, "sign": "positive" if value > 0 else "negative" if value < 0 else "zero"}
        edges.append((names[graph.edge_source[edge]], names[graph.edge_head[edge]], about))
    return ExportGraph(name, nodes, tuple(edges))


def _node(graph: Graph, node: int) -> Attributes:
    """What a node is: heads and MLPs have a layer, heads a number in it."""
    if node in (0, graph.n_nodes - 1):
        return {"kind": graph.node_names[node]}
    layer, head = divmod(node - 1, graph.n_heads + 1)
    return {"kind": "mlp", "layer": layer} if head == graph.n_heads else {"kind": "head", "layer": layer, "head": head}


def _dot(graph: ExportGraph) -> str:
    largest = max((abs(about.get("score", 0.0)) for _, _, about in graph.edges), default=0.0) or 1.0
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=BT;", "  node [shape=box, style=rounded];"]
    lines += [f"  {_quoted(name)} {_listed(about)};" for name, about in graph.nodes.items()]
    rows: dict[Any, list[str]] = {}
    for name, about in graph.nodes.items():
        rows.setdefault((about["kind"], about.get("layer")), []).append(_quoted(name))
    lines += [f"  {{rank=same; {'; '.join(row)}}}" for row in rows.values() if len(row) > 1]
    for start, end, about in graph.edges:
        look = {"color": COLOURS[about["kind"]], "style": "dashed" if about.get("sign") == "negative" else "solid"}
        if "score" in about:
            look["penwidth"] = f"{THINNEST + (WIDEST - THINNEST) * abs(about['score']) / largest:.3g}"
        named = {"key": about["name"], "label": about["letter"]}
        lines.append(f"  {_quoted(start)} -> {_quoted(end)} {_listed({**named, **about, **look})};")
    return "\n".join([*lines, "}", ""])


def _listed(about: Attributes) -> str:
    return f"[{', '.join(f'{name}={_quoted(value)}' for name, value in about.items())}]"


def _quoted(value: object) -> str:
    r"""A string of dot, in which \ would begin an escape of its own."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _graphml(graph: ExportGraph) -> str:
    root = ElementTree.Element("graphml", xmlns=NAMESPACE)
    things = (("node", list(graph.nodes.values())), ("edge", [about for _, _, about in graph.edges]))
    for thing, abouts in things:
        for name, value in {key: value for about in abouts for key, value in about.items()}.items():
            facts = {"id": f"{thing}-{name}", "for": thing, "attr.name": name, "attr.type": XML_TYPES[type(value)]}
            ElementTree.SubElement(root, "key", facts)
    ElementTree.SubElement(root, "key", {"id": "name", "for": "graph", "attr.name": "name", "attr.type": "string"})
    body = ElementTree.SubElement(root, "graph", {"id": "circuit", "edgedefault": "directed"})
    ElementTree.SubElement(body, "data", key="name").text = graph.name
    for name, about in graph.nodes.items():
        _xml_data(ElementTree.SubElement(body, "node", id=name), "node", about)
    for start, end, about in graph.edges:
        _xml_data(ElementTree.SubElement(body, "edge", id=about["name"], source=start, target=end), "edge", about)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _xml_data(element: ElementTree.Element, thing: str, about: Attributes) -> None:
    for name, value in about.items():
        ElementTree.SubElement(element, "data", key=f"{thing}-{name}").text = str(value)


def _cytoscape(graph: ExportGraph) -> str:
    nodes = [{"data": {"id": name, "value": name, "name": name, **about}} for name, about in graph.nodes.items()]
    edges = [
        {"data": {"id": about["name"], "key": about["name"], "source": start, "target": end, **about}}
        for start, end, about in graph.edges
    ]
    found = {"data": {"name": graph.name}, "directed": True, "multigraph": True}
    return json.dumps(found | {"elements": {"nodes": nodes, "edges": edges}}, indent=1, allow_nan=False) + "\n"


EXPORTS = {
    "dot": ExportFormat((".dot", ".gv"), "for Graphviz", _dot),
    "graphml": ExportFormat((".graphml", ".xml"), "for networkx, Gephi and others", _graphml),
    "cytoscape": ExportFormat((".cyjs", ".json"), "for Cytoscape and networkx", _cytoscape),
}
