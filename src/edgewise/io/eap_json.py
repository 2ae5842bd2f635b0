"""EAP-IG / MIB json: the shape of a graph, and score and membership of every node and edge by name.

edgewise writes its circuits in this form with one more key, `edgewise`, which says how the circuit was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph, NodeGraph
from .atomic import atomic_file
from .edge_file import EdgeFile, LevelContent, make_cfg, read_about, read_cfg
from .reading import file_size, first_line, wrap_read_errors
from .records import parse_json

EDGES_PER_WRITE = 2**14
MAX_BYTES = 2**30
# Up to this many neurons, any file is accepted; beyond, the file's size must be in proportion.
MAX_NEURONS_UNCHECKED = 2**24
NAN_WORDS = (b"NaN", b"Infinity")
# Scores of nodes and neurons may be NaN, which is no JSON: no score.
NODES_PART = re.compile(rb'"nodes"\s*:\s*\{(.*?)(?="edges"\s*:|\Z)', re.DOTALL)
NAN_VALUE = re.compile(rb"(?<=[\[,:\s])-?NaN(?=\s*[\],}])")


class Edge(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One edge of a file."""

    score: float | None = None
    in_graph: bool | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """One node of a file."""

    in_graph: bool = False
    score: float | None = None
    neurons: list[bool | float] | None = None
    neurons_scores: list[float | None] | None = None


class Content(msgspec.Struct, frozen=True):
    """A file whose parts are decoded one by one."""

    cfg: msgspec.Raw
    nodes: msgspec.Raw
    edges: msgspec.Raw
    edgewise: msgspec.Raw = msgspec.Raw(b"{}")


def read(path: Path, level: str | None = None) -> EdgeFile:
    """Return the content of a file at a level. Edges may come in any order; missing ones are outside the circuit."""
    size = file_size(path, MAX_BYTES)
    with wrap_read_errors(path):
        data = path.read_bytes()
    if b"NaN" in data and (part := NODES_PART.search(data)) is not None:
        data = data[: part.start()] + NAN_VALUE.sub(b"null", part[0]) + data[part.end() :]
    try:
        content = msgspec.json.decode(data, type=Content)
        cfg, about = (parse_json(bytes(part)) for part in (content.cfg, content.edgewise))
        nodes = msgspec.json.decode(content.nodes, type=dict[str, Node])
        edges = msgspec.json.decode(content.edges, type=dict[str, Edge])
    except msgspec.ValidationError as error:
        raise InputError(f"{path} isn't an EAP-IG file with the keys cfg, nodes and edges: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "it has NaN or infinite numbers; null means no score" if any(w in data for w in NAN_WORDS) else ""
        raise InputError(f"{path} isn't JSON: {why or first_line(error)}") from None
    graph = read_cfg(cfg, path, max_edges=size)
    score, mask = _edge_arrays(graph, edges, path)
    if bytes(content.edges).count(b"->") > len(edges):  # msgspec does not notice a repeated key
        raise InputError(f"{path}: an edge is there more than once; give every edge once")
    contents = LevelContent(score, mask, *_node_arrays(graph, nodes, path, size))
    return contents.at_level(level, path, graph, read_about({"edgewise": about}, path))


def _node_arrays(
    graph: Graph, nodes: Mapping[str, Node], path: Path, size: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64] | None, NDArray[np.bool_] | None]:
    """Return score and mask of nodes [source], and of neurons [source, d_model], None if no node has any."""
    index = {name: place for place, name in enumerate(graph.node_names)}
    score, mask = np.full(graph.n_nodes, np.nan), np.zeros(graph.n_nodes, bool)
    wide = (graph.n_nodes, graph.d_model)
    has_scores, has_masks = (
        any(getattr(node, name) is not None for node in nodes.values()) for name in ("neurons_scores", "neurons")
    )
    if (has_scores or has_masks) and graph.n_nodes * graph.d_model > max(MAX_NEURONS_UNCHECKED, size):
        raise InputError(f"{path} is too small a file for the neurons of {graph}")
    neuron_score = np.full(wide, np.nan) if has_scores else None
    neuron_mask = np.zeros(wide, bool) if has_masks else None
    for name, node in nodes.items():
        place = index.get(name)
        if place is None:
            raise InputError(f"{path}: node {name!r} isn't in a graph of {graph}")
        mask[place], score[place] = node.in_graph, np.nan if node.score is None else node.score
        for key, listed in (("neurons", node.neurons), ("neurons_scores", node.neurons_scores)):
            if listed is not None and len(listed) != graph.d_model:
                raise InputError(f"{path}: {key} of {name} has {len(listed)} values, but d_model is {graph.d_model}")
        if neuron_mask is not None and node.neurons is not None:
            if any(value not in (0, 1) for value in node.neurons):
                raise InputError(f"{path}: neurons of {name} must be true or false")
            neuron_mask[place] = node.neurons
        if neuron_score is not None and node.neurons_scores is not None:
            neuron_score[place] = [np.nan if value is None else value for value in node.neurons_scores]
    sources = slice(graph.n_sources)  # `logits` is in every circuit
    return (
        score[sources], mask[sources], None if neuron_score is None else neuron_score[sources],
        None if neuron_mask is None else neuron_mask[sources],
    )  # fmt: skip


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
    path: Path, graph: Graph | NodeGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
    head = json.dumps({"cfg": make_cfg(graph.plain), "nodes": _write_nodes(graph, mask, score)})
    if isinstance(graph, NodeGraph):
        graph, mask, score = graph.plain, graph.plain_mask(mask), np.zeros(graph.plain.n_edges)
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


def _write_nodes(
    graph: Graph | NodeGraph, mask: NDArray[np.bool_], score: NDArray[np.floating]
) -> dict[str, dict[str, Any]]:
    """Return the nodes of a circuit by name, with what EAP-IG and MIB have for nodes and neurons."""
    names = graph.plain.node_names
    if not isinstance(graph, NodeGraph):
        return {name: {"in_graph": used} for name, used in zip(names, graph.used_nodes(mask).tolist(), strict=True)}
    members, values = graph.member_mask(mask), graph.member_values(score.astype(np.float64))
    nodes: dict[str, dict[str, Any]] = {}
    for name, inside, scores in zip(graph.plain.source_names, members, values, strict=True):
        nodes[name] = {"in_graph": bool(inside.any())}
        if graph.width > 1:
            nodes[name]["neurons"] = inside.tolist()
        if not np.isnan(scores).all():  # without a key, nothing has a score
            nodes[name] |= {"neurons_scores": scores.tolist()} if graph.width > 1 else {"score": float(scores[0])}
    return nodes | {names[-1]: {"in_graph": bool(members.any())}}
