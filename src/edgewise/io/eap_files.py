"""EAP-IG / MIB files: the shape of a graph, and score and membership of every node and edge.

A json has them by name. A pt has them as tensors, padded to [source, destination] and saved by torch. Only this module
knows the padded matrix; everything else uses [edge]. edgewise writes its circuits in these forms with one more key,
`edgewise`, which says how the circuit was made.
"""

from __future__ import annotations

import io
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
from .arrays import load_torch_file
from .atomic import atomic_file, write_bytes
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
REQUIRED_KEYS = ("cfg", "src_nodes", "dst_nodes", "edges_in_graph", "nodes_in_graph")
LEVEL_KEYS = ("nodes_scores", "neurons_in_graph", "neurons_scores")


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


def read_eap_json(path: Path, level: str | None = None) -> EdgeFile:
    """Return the content of a file at a level. Edges may come in any order; missing ones are outside the circuit."""
    size = file_size(path, MAX_BYTES)
    with wrap_read_errors(path):
        data = path.read_bytes()
    if b"NaN" in data and (part := NODES_PART.search(data)) is not None:
        data = data[: part.start()] + NAN_VALUE.sub(b"null", part[0]) + data[part.end() :]
    try:
        content = msgspec.json.decode(data, type=Content)
        # The nodes too: msgspec does not notice that one is there twice.
        cfg, about, _ = (parse_json(bytes(part)) for part in (content.cfg, content.edgewise, content.nodes))
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


def write_eap_json(
    path: Path, graph: Graph | NodeGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
    plain, nodes = graph.plain, dict[str, dict[str, Any]]()
    if isinstance(graph, NodeGraph):
        members, values = graph.member_mask(mask), graph.member_values(score.astype(np.float64))
        for name, inside, scores in zip(plain.source_names, members, values, strict=True):
            nodes[name] = {"in_graph": bool(inside.any())}
            if graph.width > 1:
                nodes[name]["neurons"] = inside.tolist()
            if not np.isnan(scores).all():  # without a key, nothing has a score
                nodes[name] |= {"neurons_scores": scores.tolist()} if graph.width > 1 else {"score": float(scores[0])}
        nodes[plain.node_names[-1]] = {"in_graph": bool(members.any())}
        mask, score = graph.plain_mask(mask), np.zeros(plain.n_edges)
    else:
        used_nodes = zip(plain.node_names, plain.used_nodes(mask).tolist(), strict=True)
        nodes = {name: {"in_graph": is_used} for name, is_used in used_nodes}
    head = json.dumps({"cfg": make_cfg(plain), "nodes": nodes})
    tail = json.dumps({"edgewise": dict(about)}, allow_nan=False)
    sources, destinations = plain.source_names, plain.destination_names
    columns = (plain.edge_source, plain.edge_destination, score, np.where(mask, "true", "false"))
    with atomic_file(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write(f'{head[:-1]}, "edges": {{')
        for start in range(0, plain.n_edges, EDGES_PER_WRITE):
            rows = zip(*(column[start : start + EDGES_PER_WRITE].tolist() for column in columns), strict=True)
            edges = (
                f'"{sources[u]}->{destinations[v]}": {{"score": {float(value)!r}, "in_graph": {flag}}}'
                for u, v, value, flag in rows
            )
            file.write(", " * bool(start) + ", ".join(edges))
        file.write(f"}}, {tail[1:]}")


def read_eap_pt(path: Path, level: str | None = None) -> EdgeFile:
    """Return the content of a file at a level. Scores of pairs that are no edge are ignored."""
    data = load_torch_file(path)
    if not isinstance(data, dict) or any(key not in data for key in REQUIRED_KEYS):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys {', '.join(REQUIRED_KEYS)} and edges_scores")
    graph = read_cfg(data["cfg"], path)
    shape = (graph.n_sources, graph.n_destinations)
    inside = _read_tensor(data, "edges_in_graph", shape, path)
    nodes = _read_flags(data, "nodes_in_graph", shape[:1], path)
    score = _read_scores(data, "edges_scores", shape, path) if "edges_scores" in data else None
    for key, names in (("src_nodes", graph.source_names), ("dst_nodes", graph.destination_names)):
        if tuple(data[key]) != names:  # the order of the tensors
            raise InputError(f"{path}: {key} must list the nodes of {graph} in order, from {names[0]} to {names[-1]}")
    mask = inside[graph.edge_source, graph.edge_destination]
    level_keys = {key for key in LEVEL_KEYS if data.get(key) is not None}
    # For nodes and neurons, EAP-IG sets all pairs of chosen ones, also those that are no edge.
    is_strict = np.count_nonzero(inside) == np.count_nonzero(mask) or bool(level_keys)
    if not np.isin(inside, (0, 1)).all() or not is_strict:
        raise InputError(f"{path}: edges_in_graph must be true or false, and false where {graph} has no edge")
    wide = (graph.n_sources, graph.d_model)
    content = LevelContent(
        None if score is None else score[graph.edge_source, graph.edge_destination],
        mask.astype(bool),
        _read_scores(data, "nodes_scores", shape[:1], path) if "nodes_scores" in level_keys else None,
        nodes,
        _read_scores(data, "neurons_scores", wide, path) if "neurons_scores" in level_keys else None,
        _read_flags(data, "neurons_in_graph", wide, path) if "neurons_in_graph" in level_keys else None,
    )
    return content.at_level(level, path, graph, read_about(data, path))


def write_eap_pt(
    path: Path, graph: Graph | NodeGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`.

    Scores are written as float32, as EAP-IG does, if that keeps every bit, and as float64 if not.
    """
    import torch

    with np.errstate(over="ignore"):
        single = score.astype(np.float32)
    values = single if (single == score).all() else score
    plain, levels = graph.plain, {}
    if isinstance(graph, NodeGraph):
        members, all_values = graph.member_mask(mask), graph.member_values(values)
        edge_values, nodes = np.zeros(plain.n_edges, np.float32), members.any(1)
        if graph.width == 1:
            levels = {"nodes_scores": torch.from_numpy(all_values[:, 0])}
        else:
            levels = {"neurons_in_graph": torch.from_numpy(members), "neurons_scores": torch.from_numpy(all_values)}
    else:
        edge_values, nodes = values, plain.used_nodes(mask)[: plain.n_sources]
    data = {
        "cfg": make_cfg(plain),
        "src_nodes": list(plain.source_names),
        "dst_nodes": list(plain.destination_names),
        "edges_scores": torch.from_numpy(_pad(plain, edge_values)),
        "edges_in_graph": torch.from_numpy(_pad(plain, graph.plain_mask(mask))),
        "nodes_in_graph": torch.from_numpy(nodes),
        **levels,
        # Through JSON, so that only plain values are written: others can't be loaded again.
        "edgewise": json.loads(json.dumps(dict(about), allow_nan=False)),
    }
    # Into memory first: torch writes a file's name into the file, and has errors of its own for a full disk.
    buffer = io.BytesIO()
    torch.save(data, buffer)
    write_bytes(path, buffer.getvalue())


def _read_scores(data: dict[str, Any], key: str, shape: tuple[int, ...], path: Path) -> NDArray[Any]:
    """Return a tensor of floating-point numbers."""
    score = _read_tensor(data, key, shape, path)
    if score.dtype.kind != "f":
        raise InputError(f"{path}: {key} holds {score.dtype}, but scores are floating-point numbers")
    return score


def _read_flags(data: dict[str, Any], key: str, shape: tuple[int, ...], path: Path) -> NDArray[np.bool_]:
    """Return a tensor of true and false, or 1 and 0."""
    flags = _read_tensor(data, key, shape, path)
    if not np.isin(flags, (0, 1)).all():
        raise InputError(f"{path}: {key} must be true or false")
    return flags.astype(bool)


def _read_tensor(data: dict[str, Any], key: str, shape: tuple[int, ...], path: Path) -> NDArray[Any]:
    """Return a tensor of a file as an array; half precision becomes float32, which keeps every bit."""
    import torch

    tensor = data[key]
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_complex():
        raise InputError(f"{path}: {key} must be a dense tensor of real numbers")
    if tensor.shape != shape:
        raise InputError(f"{path}: {key} has shape {list(tensor.shape)}, but {list(shape)} is expected by its cfg")
    is_half = tensor.is_floating_point() and tensor.itemsize < 4
    array: NDArray[Any] = (tensor.detach().float() if is_half else tensor.detach()).numpy()
    return array


def _pad(graph: Graph, values: NDArray[Any]) -> NDArray[Any]:
    """Return values [edge] as a matrix [source, destination], zero where there is no edge."""
    matrix = np.zeros((graph.n_sources, graph.n_destinations), values.dtype)
    matrix[graph.edge_source, graph.edge_destination] = values
    return matrix
