"""Read and write files about edges in the format of their suffix: EAP-IG's json and pt, and our npz.

EAP-IG / MIB files have the shape of a graph, and score and membership of every node and edge. A json has them by name.
A pt has them as tensors, padded to [source, destination] and saved by torch. Only this module knows the padded matrix;
everything else uses [edge]. edgewise writes its circuits in these forms with one more key, `edgewise`, which says how
the circuit was made.

The npz is the small format of a circuit, with one bit per edge, and scores of the circuit's edges only. EAP-IG's json
takes about 75 bytes per edge of the graph. The arrays of an npz are:

about    the graph and how the circuit was made, as JSON in bytes
inside   [byte] whether each edge is in the circuit, as packed bits
score    [edge of the circuit] the signed scores that the circuit was selected by, float32
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph, Graph, NeuronGraph, NodeGraph, frozen
from .arrays import Shape, load_torch_file, read_arrays
from .atomic import atomic_file, write_bytes
from .reading import file_size, first_line, wrap_read_errors
from .records import MAX_JSON_BYTES, convert_graph, parse_json

CIRCUIT_FORMAT, CIRCUIT_VERSION = "edgewise-circuit", 1
ARRAYS: Mapping[str, tuple[str, Shape]] = {"about": ("u1", (None,)), "inside": ("u1", (None,)), "score": ("f", (None,))}
NPZ = ".npz"
# The formats that EAP-IG and MIB read, too.
EAP_SUFFIXES = (".json", ".pt")
SUFFIX_WORDS = ".json, .pt or .npz"
# Up to this many edges, any file is accepted. Beyond, the file's size must be in proportion: a few bytes could
# otherwise claim a graph that fills the memory.
MAX_EDGES_UNCHECKED = 2_000_000
CFG_KEYS = ("n_layers", "n_heads", "d_model")
# Names of content that is not of the level that is read.
NODES_SCORES, NEURONS, EDGES = "nodes_scores", "neurons", "edges_in_graph"
# Level -> score and mask in a file: [edge], [source] or [source, d_model]. NaN is no score, None is no such content.
LevelContent = dict[str, tuple[NDArray[np.floating] | None, NDArray[np.bool_] | None]]

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


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """The content of an EAP-IG or MIB file, or of an edgewise circuit.

    score   [edge] NaN for edges without a score; None if no edge has one
    mask    [edge] whether an edge is in the circuit (`in_graph`); None if the file does not say
    about   how the circuit was made, if edgewise wrote the file
    unread  names of content of other levels than that of `graph`: scores of nodes, neurons, edges
    """

    path: Path
    graph: BaseGraph
    score: NDArray[np.floating] | None
    mask: NDArray[np.bool_] | None
    about: Mapping[str, Any]
    unread: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("score", "mask"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name)))

    @property
    def has_circuit(self) -> bool:
        """Whether the file is of a circuit. A json or pt without an edge is one if it was selected, else of scores."""
        if self.mask is None:
            return False
        return bool(self.mask.any()) or self.path.suffix == ".npz" or "edges_asked" in self.about

    def require_scores(self) -> NDArray[np.floating]:
        """Return the scores [edge]. Raise InputError if an edge has none."""
        if self.score is None:
            raise InputError(f"{self.path} has no scores, only membership; give a file in which every edge has a score")
        wrong = np.flatnonzero(~np.isfinite(self.score))
        if wrong.size:
            raise InputError(
                f"{self.path}: {wrong.size} of {self.graph.n_edges} edges have no score that is a finite number "
                f"(none, NaN or infinite), the first is edge {self.graph.edge_name(int(wrong[0]))}; score every edge"
            )
        return self.score

    def require_mask(self) -> NDArray[np.bool_]:
        """Return the mask [edge]. Raise InputError if the file has none, or is a circuit of two levels at once."""
        if self.mask is None:
            raise InputError(
                f"{self.path} has scores only: no edge says whether it is in_graph; select a circuit first"
            )
        if self.graph.level == "edge" and NEURONS in self.unread:
            raise InputError(
                f"{self.path} is a circuit of neurons, and edgewise runs circuits of edges between whole nodes; read "
                "it at level 'neuron'"
            )
        if EDGES in self.unread:
            raise InputError(
                f"{self.path} is a circuit of {self.graph.unit}s without some edges among them; edgewise runs circuits "
                "of edges, or of nodes or neurons with all edges among them"
            )
        return self.mask


def choose_level(
    path: Path, level: str | None, plain: Graph, about: Mapping[str, Any], content: LevelContent
) -> EdgeFile:
    """Return the content of an EAP-IG or MIB file at one level; None takes the one that the file is about."""
    (edge_score, edge_mask), (neuron_score, neuron_mask) = content["edge"], content["neuron"]
    has_neurons = _has_numbers(neuron_score) or (neuron_mask is not None and bool(neuron_mask.any()))
    finer = ("neuron",) * has_neurons + ("node",) * _has_numbers(content["node"][0])
    # EAP-IG's files of nodes and neurons have edges, too, with scores of 0.
    is_about_edges = not finer or (edge_score is not None and bool(np.nan_to_num(edge_score).any()))
    levels = ("edge", *finer) if is_about_edges else (*finer, "edge")
    chosen = levels[0] if level is None else level
    if chosen not in levels:
        raise InputError(f"{path} has no {chosen}s, only {' and '.join(f'{name}s' for name in sorted(levels))}")
    others = {"node": NODES_SCORES, "neuron": NEURONS}
    unread = tuple(others[name] for name in levels if name in others and name != chosen)
    if chosen == "edge":
        return EdgeFile(path, plain, edge_score, edge_mask, about, unread)
    values, inside = content[chosen]
    kind = NodeGraph if chosen == "node" else NeuronGraph
    graph = kind(plain)
    if values is not None:
        is_scored = ~np.isnan(values)
        # What has no score is in every circuit, unless this file is of a circuit without it.
        if is_scored.any() and (inside is None or not inside.any() or inside[~is_scored].all()):
            graph = kind.of_scored(plain, is_scored)
    mask = None if inside is None else inside.ravel()[graph.members]
    if mask is not None and mask.any() and edge_mask is not None and edge_mask.any():
        unread += () if np.array_equal(graph.plain_mask(mask), edge_mask) else (EDGES,)
    return EdgeFile(path, graph, None if values is None else values.ravel()[graph.members], mask, about, unread)


def _has_numbers(values: NDArray[np.floating] | None) -> bool:
    return values is not None and not bool(np.isnan(values).all())


def check_level(path: Path, graph: BaseGraph, level: str | None) -> None:
    """Raise InputError if what is at a path is of another level than asked for; None is any."""
    if level is not None and level != graph.level:
        raise InputError(f"{path} has no {level}s, only {graph.level}s")


def read_cfg(cfg: object, path: Path, max_edges: int | None = None) -> Graph:
    """Return the graph that EAP-IG's `cfg` describes. `max_edges` is the most that a file of this size can describe."""
    if not isinstance(cfg, Mapping) or any(key not in cfg for key in CFG_KEYS):
        raise InputError(f"{path}: cfg must map {', '.join(CFG_KEYS)} to numbers")
    try:
        graph = Graph(**{key: cfg[key] for key in CFG_KEYS}, parallel=cfg.get("parallel_attn_mlp", False))
    except InputError as error:
        raise InputError(f"{path}: cfg is wrong: {error}") from None
    if max_edges is not None and graph.n_edges > max(MAX_EDGES_UNCHECKED, max_edges):
        raise InputError(f"{path} is too small a file for {graph}, which has {graph.n_edges:,} edges")
    return graph


def make_cfg(graph: Graph) -> dict[str, int | bool]:
    """Return `cfg` as EAP-IG writes it."""
    sizes = {"n_layers": graph.n_layers, "n_heads": graph.n_heads}
    return {**sizes, "parallel_attn_mlp": graph.parallel, "d_model": graph.d_model}


def read_about(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return how a circuit was made, the key `edgewise`: plain data that can be written again as JSON."""
    about = data.get("edgewise", {})
    if not isinstance(about, dict):
        raise InputError(f"{path}: edgewise must be an object, but is {type(about).__name__}")
    with wrap_read_errors(f"edgewise in {path}"):
        return dict(parse_json(json.dumps(about, allow_nan=False)))


def read_edge_file(path: Path, level: str | None = None) -> EdgeFile:
    """Return the content of an EAP-IG json or pt, or of an edgewise npz.

    level  'edge', 'node' or 'neuron' of a file that has several; None for the one that the file is about
    """
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; a circuit is a file that ends in {SUFFIX_WORDS}")
    file_size(path)  # before the suffix: a missing file is the more likely mistake
    check_suffix(path)
    with wrap_read_errors(path):
        return FORMATS[path.suffix][0](path, level)


def write_edge_file(
    path: Path, graph: BaseGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit in the format of the path's suffix.

    mask   [edge] whether each edge is in the circuit
    score  [edge] the signed scores that the circuit was selected by
    about  plain data that says how the circuit was made
    """
    check_suffix(path)
    if score.shape != (graph.n_edges,):
        raise InputError(f"{path}: scores have shape {score.shape}, but the graph has {graph.count(graph.n_edges)}")
    if not np.isfinite(score).all():
        raise InputError(f"{path} isn't written: some scores are NaN or infinite; scores must be finite")
    check_holds(path, graph)
    FORMATS[path.suffix][1](path, graph, mask, score, about)


def check_holds(path: Path, graph: BaseGraph) -> None:
    """Raise InputError if files with the suffix of a path can't hold circuits of a graph."""
    if path.suffix in EAP_SUFFIXES and not isinstance(graph, Graph | NodeGraph):
        raise InputError(
            f"{path} isn't written: EAP-IG's {path.suffix} files have no place for {graph.units}; write an {NPZ}"
        )


def check_suffix(path: Path) -> None:
    """Raise InputError if the suffix of a path is of no known format."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a circuit is a file that ends in {SUFFIX_WORDS}")


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
    by_level: LevelContent = {"edge": (score, mask), **_node_arrays(graph, nodes, path, size)}
    return choose_level(path, level, graph, read_about({"edgewise": about}, path), by_level)


def _node_arrays(graph: Graph, nodes: Mapping[str, Node], path: Path, size: int) -> LevelContent:
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
    of_sources = [None if values is None else values[sources] for values in (neuron_score, neuron_mask)]
    return {"node": (score[sources], mask[sources]), "neuron": (of_sources[0], of_sources[1])}


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
    if not isinstance(data, dict) or any(data.get(key) is None for key in REQUIRED_KEYS):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys {', '.join(REQUIRED_KEYS)} and edges_scores")
    graph = read_cfg(data["cfg"], path)
    shape, wide = (graph.n_sources, graph.n_destinations), (graph.n_sources, graph.d_model)
    inside, score = (
        _read_tensor(data, "edges_in_graph", shape, path, "b"),
        _read_tensor(data, "edges_scores", shape, path),
    )
    assert inside is not None
    for key, names in (("src_nodes", graph.source_names), ("dst_nodes", graph.destination_names)):
        if tuple(data[key]) != names:  # the order of the tensors
            raise InputError(f"{path}: {key} must list the nodes of {graph} in order, from {names[0]} to {names[-1]}")
    edges = (graph.edge_source, graph.edge_destination)
    # If EAP-IG selected nodes or neurons, edges_in_graph marks every pair of selected nodes, even without an edge, so
    # extra marks are allowed.
    has_levels = any(data.get(key) is not None for key in LEVEL_KEYS)
    if np.count_nonzero(inside) > np.count_nonzero(inside[edges]) and not has_levels:
        raise InputError(f"{path}: edges_in_graph must be true or false, and false where {graph} has no edge")
    content = {
        "edge": (None if score is None else score[edges], inside[edges]),
        "node": (
            _read_tensor(data, "nodes_scores", shape[:1], path),
            _read_tensor(data, "nodes_in_graph", shape[:1], path, "b"),
        ),
        "neuron": (
            _read_tensor(data, "neurons_scores", wide, path),
            _read_tensor(data, "neurons_in_graph", wide, path, "b"),
        ),
    }
    return choose_level(path, level, graph, read_about(data, path), content)


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


def _read_tensor(
    data: dict[str, Any], key: str, shape: tuple[int, ...], path: Path, kind: str = "f"
) -> NDArray[Any] | None:
    """Return a tensor of a file as an array; None if the file has none. Half precision becomes float32: no bit is lost.

    kind  'f' for scores, which are floating-point numbers; 'b' for true and false, or 1 and 0
    """
    import torch

    if (tensor := data.get(key)) is None:
        return None
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_complex():
        raise InputError(f"{path}: {key} must be a dense tensor of real numbers")
    if tensor.shape != shape:
        raise InputError(f"{path}: {key} has shape {list(tensor.shape)}, but {list(shape)} is expected by its cfg")
    is_half = tensor.is_floating_point() and tensor.itemsize < 4
    array: NDArray[Any] = (tensor.detach().float() if is_half else tensor.detach()).numpy()
    if kind == "b":
        if not np.isin(array, (0, 1)).all():
            raise InputError(f"{path}: {key} must be true or false")
        return array.astype(bool)
    if array.dtype.kind != "f":
        raise InputError(f"{path}: {key} holds {array.dtype}, but scores are floating-point numbers")
    return array


def _pad(graph: Graph, values: NDArray[Any]) -> NDArray[Any]:
    """Return values [edge] as a matrix [source, destination], zero where there is no edge."""
    matrix = np.zeros((graph.n_sources, graph.n_destinations), values.dtype)
    matrix[graph.edge_source, graph.edge_destination] = values
    return matrix


def read_npz(path: Path, level: str | None = None) -> EdgeFile:
    """Return the content of a file. Edges outside the circuit have no score."""
    arrays = read_arrays(path, ARRAYS)
    if arrays["about"].nbytes > MAX_JSON_BYTES:
        raise InputError(f"{path}: about has {arrays['about'].nbytes:,} bytes, but may have {MAX_JSON_BYTES:,}")
    with wrap_read_errors(f"about in {path}"):
        about = parse_json(arrays["about"].tobytes())
    if not isinstance(about, dict) or [about.get("format"), about.get("version")] != [CIRCUIT_FORMAT, CIRCUIT_VERSION]:
        raise InputError(
            f"{path} doesn't have format {CIRCUIT_FORMAT} version {CIRCUIT_VERSION}, which this edgewise reads"
        )
    largest = 8 * file_size(path)
    graph: BaseGraph = read_cfg(about.get("cfg"), path, max_edges=largest)
    if "graph" in about:  # a graph of another kind that is made from the plain one
        plain, graph = graph, convert_graph(about["graph"], str(path))
        if graph.plain != plain:
            raise InputError(f"{path}: graph is one of {graph.plain}, but cfg is {plain}")
        if graph.n_edges > max(MAX_EDGES_UNCHECKED, largest):
            raise InputError(f"{path} is too small a file for {graph}, which has {graph.count(graph.n_edges)}")
    check_level(path, graph, level)
    packed, stored_score = arrays["inside"], arrays["score"]
    if len(packed) != (graph.n_edges + 7) // 8:
        raise InputError(f"{path}: inside has {len(packed):,} bytes, but {graph} has {graph.n_edges:,} edges")
    mask = np.unpackbits(packed, count=graph.n_edges).astype(bool)
    if len(stored_score) != np.count_nonzero(mask):
        raise InputError(f"{path} has {len(stored_score):,} scores for {np.count_nonzero(mask):,} edges inside")
    if not np.isfinite(stored_score).all():
        raise InputError(f"{path} has scores that are NaN or infinite")
    score = np.full(graph.n_edges, np.nan)
    score[mask] = stored_score
    return EdgeFile(path, graph, score, mask, read_about(about, path))


def write_npz(
    path: Path, graph: BaseGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
    with np.errstate(over="ignore"):
        stored_score = score[mask].astype(np.float32)
    if not np.isfinite(stored_score).all():
        raise InputError(f"{path} isn't written: some scores are too large for it; write a json")
    record = {"format": CIRCUIT_FORMAT, "version": CIRCUIT_VERSION, "cfg": make_cfg(graph.plain)}
    record |= {} if graph == graph.plain else {"graph": graph.record()}
    record |= {"edgewise": dict(about)}
    text = np.frombuffer(json.dumps(record, allow_nan=False).encode(), np.uint8)
    with atomic_file(path) as draft:
        # Not compressed, so that the file's size grows with the graph, as `read_npz` expects.
        np.savez(draft, about=text, inside=np.packbits(mask), score=stored_score)


# Suffix -> functions that read and write. None imports torch before it needs it.
FORMATS: Mapping[str, tuple[Callable[[Path, str | None], EdgeFile], Callable[..., None]]] = {
    ".json": (read_eap_json, write_eap_json),
    ".pt": (read_eap_pt, write_eap_pt),
    NPZ: (read_npz, write_npz),
}
