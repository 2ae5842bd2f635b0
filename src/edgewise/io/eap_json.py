"""EAP-IG / MIB json: the shape of a graph, and score and membership of every node and edge by name.

edgewise writes its circuits in this form with one more key, `edgewise`, which says how the circuit was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from .atomic import atomic_file
from .edge_file import EdgeFile, make_cfg, read_about, read_cfg
from .reading import file_size, first_line, wrap_read_errors
from .records import parse_json

EDGES_PER_WRITE = 2**14
MAX_BYTES = 2**30
NAN_WORDS = (b"NaN", b"Infinity")


class Edge(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One edge of a file."""

    score: float | None = None
    in_graph: bool | None = None


class Content(msgspec.Struct, frozen=True):
    """A file whose parts are decoded one by one."""

    cfg: msgspec.Raw
    nodes: msgspec.Raw
    edges: msgspec.Raw
    edgewise: msgspec.Raw = msgspec.Raw(b"{}")


def read(path: Path) -> EdgeFile:
    """Return the content of a file. Edges may come in any order; missing ones are outside the circuit."""
    size = file_size(path, MAX_BYTES)
    with wrap_read_errors(path):
        data = path.read_bytes()
    try:
        content = msgspec.json.decode(data, type=Content)
        cfg, nodes, about = (parse_json(bytes(part)) for part in (content.cfg, content.nodes, content.edgewise))
        edges = msgspec.json.decode(content.edges, type=dict[str, Edge])
    except msgspec.ValidationError as error:
        raise InputError(f"{path} isn't an EAP-IG file with the keys cfg, nodes and edges: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "it has NaN or infinite numbers; null means no score" if any(w in data for w in NAN_WORDS) else ""
        raise InputError(f"{path} isn't JSON: {why or first_line(error)}") from None
    graph = read_cfg(cfg, path, max_edges=size)
    unread = _check_nodes(graph, nodes, path)
    score, mask = _edge_arrays(graph, edges, path)
    if bytes(content.edges).count(b"->") > len(edges):  # msgspec does not notice a repeated key
        raise InputError(f"{path}: an edge is there more than once; give every edge once")
    return EdgeFile(path, graph, score, mask, read_about({"edgewise": about}, path), unread)


def _check_nodes(graph: Graph, nodes: Any, path: Path) -> tuple[str, ...]:
    """Return the keys of nodes other than `in_graph`, which follows from the edges."""
    if not isinstance(nodes, dict):
        raise InputError(f"{path}: nodes must be an object, but is {type(nodes).__name__}")
    known = set(graph.node_names)
    for name, node in nodes.items():
        if name not in known or not isinstance(node, dict) or not isinstance(node.get("in_graph", False), bool):
            raise InputError(f"{path}: node {name!r} isn't in a graph of {graph}, or its in_graph isn't true or false")
    return tuple(sorted({key for node in nodes.values() for key in node} - {"in_graph"}))


def _edge_arrays(
    graph: Graph, edges: Mapping[str, Edge], path: Path
) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_] | None]:
    """Return score and mask [edge]; None if no edge has one."""
    # By the names of both ends: a dictionary of all edges' names would take more memory than the file.
    sources = {name: index for index, name in enumerate(graph.source_names)}
    destinations = {name: index for index, name in enumerate(graph.destination_names)}
    ends = [name.partition("->") for name in edges]
    source = np.fromiter((sources.get(end[0], -1) for end in ends), np.int64, len(ends))
    destination = np.fromiter((destinations.get(end[2], -1) for end in ends), np.int64, len(ends))
    del ends
    indices = graph.edges_between(source, destination)
    if (wrong := np.flatnonzero(indices < 0)).size:
        raise InputError(f"{path}: there is no edge {list(edges)[wrong[0]]!r} in a graph of {graph}")
    flags = [edge.in_graph for edge in edges.values()]
    n_unknown = flags.count(None)
    if 0 < n_unknown < len(flags):
        raise InputError(f"{path}: some edges say whether they are in_graph, true or false, but others don't")
    mask = np.zeros(graph.n_edges, bool)
    mask[indices] = np.array(flags, bool)
    score = np.full(graph.n_edges, np.nan)
    score[indices] = [np.nan if edge.score is None else edge.score for edge in edges.values()]
    return None if np.isnan(score).all() else score, None if n_unknown else mask


def write(
    path: Path, graph: Graph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
    used = graph.used_nodes(mask).tolist()
    nodes = {name: {"in_graph": is_used} for name, is_used in zip(graph.node_names, used, strict=True)}
    head = json.dumps({"cfg": make_cfg(graph), "nodes": nodes})
    tail = json.dumps({"edgewise": dict(about)}, allow_nan=False)
    sources, destinations = graph.source_names, graph.destination_names
    columns = (graph.edge_source, graph.edge_destination, score, np.where(mask, "true", "false"))
    with atomic_file(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write(f'{head[:-1]}, "edges": {{')
        for start in range(0, graph.n_edges, EDGES_PER_WRITE):
            rows = zip(*(column[start : start + EDGES_PER_WRITE].tolist() for column in columns), strict=True)
            edges = (
                f'"{sources[u]}->{destinations[v]}": {{"score": {float(value)!r}, "in_graph": {flag}}}'
                for u, v, value, flag in rows
            )
            file.write(", " * bool(start) + ", ".join(edges))
        file.write(f"}}, {tail[1:]}")
