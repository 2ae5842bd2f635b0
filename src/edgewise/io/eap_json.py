"""EAP-IG / MIB json: a graph's shape, scores and membership of every node and edge, by name.

edgewise writes its circuits in the same form, with one more key, `edgewise`, that says how the circuit came about.
A file of a large model has a million edges and more, so nothing here makes the names of all edges at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from .atomic import whole_file
from .edge_file import ALWAYS_EDGES, EdgeFile, about_of, cfg_of, check_score, edge_name, graph_of
from .json_parts import NotInOrderError, json_parts
from .reading import file_size, read_json

EDGES_AT_ONCE = 2**14
LARGEST_BYTES = 2**30
NEEDED = ("cfg", "nodes", "edges")
# What is known of an edge's membership, besides 0 and 1: that it was listed without any, or not at all.
SILENT, UNTOLD = -1, -2
KEYS = {"score", "in_graph"}
Bools = NDArray[np.bool_]


def read(path: Path) -> EdgeFile:
    """Everything that a file says about edges, listed in any order. Those that it leaves out are outside.

    A file as EAP-IG writes it, `cfg` before `edges`, is read a piece at a time; any other is read whole.
    """
    file_size(path, LARGEST_BYTES)
    try:
        return _gather(path, json_parts(path, "edges"))
    except NotInOrderError:
        return _gather(path, _whole(path))


def _whole(path: Path) -> Iterator[tuple[str, Any]]:
    """The parts of a file in the order in which they can be read."""
    # Whether a score is a number is asked by those who need scores.
    data = read_json(path, finite=False, largest=LARGEST_BYTES)
    data = data if isinstance(data, dict) else {}
    if not all(isinstance(data.get(key), dict) for key in NEEDED):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys {', '.join(NEEDED[:-1])} and {NEEDED[-1]}")
    yield from sorted(data.items(), key=lambda part: part[0] != "cfg")


def _gather(path: Path, parts: Iterable[tuple[str, Any]]) -> EdgeFile:
    """What the parts of a file say: `edges` may come in several pieces, but after `cfg`."""
    edges: _Edges | None = None
    found: dict[str, Any] = {}
    has_edges = False
    for key, part in parts:
        if key == "cfg":
            graph = graph_of(part, path)
            if graph.n_edges > max(ALWAYS_EDGES, file_size(path)):
                raise InputError(f"{path} is too small a file for {graph}, which has {graph.n_edges:,} edges")
            edges = _Edges(path, graph)
        elif key != "edges":
            found[key] = part
        elif edges is None:
            raise NotInOrderError
        else:
            edges.add(part)
            has_edges = True
    if edges is None or not has_edges or not isinstance(found.get("nodes"), dict):
        raise NotInOrderError
    beyond = _beyond(edges.graph, found["nodes"], path)
    return EdgeFile(path, edges.graph, edges.scores(), edges.members(), about_of(found, path), beyond)


class _Edges:
    """The scores and the membership of edges that are told a few at a time."""

    def __init__(self, path: Path, graph: Graph) -> None:
        self.path, self.graph = path, graph
        self.score = np.full(graph.n_edges, np.nan)
        self.inside = np.full(graph.n_edges, UNTOLD, np.int8)

    def add(self, told: Mapping[str, Any]) -> None:
        """Take in some edges, each of which may be told once."""
        path, names, infos = self.path, list(told), list(told.values())
        edges = _indices(self.graph, names, path)
        if (again := np.flatnonzero(self.inside[edges] != UNTOLD)).size:
            raise InputError(f"{path} isn't JSON: the key {names[again[0]]!r} is there more than once")
        if any(type(info) is not dict for info in infos):
            name = next(name for name, info in told.items() if type(info) is not dict)
            raise InputError(f"{path}: edge {name} must be an object with score and in_graph")
        if not set().union(*set(map(tuple, infos))) <= KEYS:
            name, more = next((name, set(info) - KEYS) for name, info in told.items() if set(info) - KEYS)
            raise InputError(
                f"{path}: edge {name} has {', '.join(sorted(more))}, but only score and in_graph are known"
            )
        self.score[edges] = _scores([info.get("score") for info in infos], names, path)
        self.inside[edges] = _members([info.get("in_graph") for info in infos], names, path)

    def scores(self) -> NDArray[np.float64] | None:
        """[edge] NaN where there is none; None if no edge has one."""
        return None if np.isnan(self.score).all() else self.score

    def members(self) -> NDArray[np.bool_] | None:
        """[edge] whether it is inside; None if no edge says."""
        silent = self.inside == SILENT
        if not silent.any():
            return self.inside == 1
        if (self.inside >= 0).any():
            name = edge_name(self.graph, int(np.argmax(silent)))
            raise InputError(f"{self.path}: edge {name} must say whether it is in_graph, true or false")
        return None


def write(path: Path, graph: Graph, mask: Bools, score: NDArray[np.floating], about: Mapping[str, Any]) -> None:
    """Write a circuit's mask with the signed scores that it was chosen by, both [edge]; `about` says how."""
    check_score(path, graph, score)
    used = graph.used_nodes(mask).tolist()
    nodes = dict(zip(graph.node_names, ({"in_graph": inside} for inside in used), strict=True))
    head = json.dumps({"cfg": cfg_of(graph), "nodes": nodes})
    tail = json.dumps({"edgewise": dict(about)}, allow_nan=False)
    with whole_file(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write(f'{head[:-1]}, "edges": {{')
        for start in range(0, graph.n_edges, EDGES_AT_ONCE):
            some = slice(start, start + EDGES_AT_ONCE)
            file.write(", " * bool(start))
            file.write(", ".join(_members_as_json(graph, some, score[some], mask[some])))
        file.write(f"}}, {tail[1:]}")


def _members_as_json(graph: Graph, edges: slice, score: NDArray[np.floating], inside: Bools) -> Iterator[str]:
    sources, destinations = graph.source_names, graph.destination_names
    rows = (graph.edge_source[edges], graph.edge_destination[edges], score, np.where(inside, "true", "false"))
    for u, v, value, flag in zip(*(row.tolist() for row in rows), strict=True):
        yield f'"{sources[u]}->{destinations[v]}": {{"score": {float(value)!r}, "in_graph": {flag}}}'


def _beyond(graph: Graph, nodes: dict[str, Any], path: Path) -> tuple[str, ...]:
    """What the nodes have besides membership, which follows from the edges."""
    known = set(graph.node_names)
    for name, info in nodes.items():
        if name not in known or not isinstance(info, dict) or not isinstance(info.get("in_graph", False), bool):
            raise InputError(
                f"{path}: node {name!r} is unknown in a graph of {graph}, or doesn't say true or false for in_graph"
            )
    return tuple(sorted({key for info in nodes.values() for key in info} - {"in_graph"}))


def _indices(graph: Graph, names: Sequence[str], path: Path) -> NDArray[np.int64]:
    """[listed] the edge that each name stands for.

    By the names of its two ends: a look-up table of all edges' names would be larger than the file.
    """
    nowhere = -(graph.n_sources * graph.n_destinations)
    tail = {name: index for index, name in enumerate(graph.source_names)}
    head = {name: index * graph.n_sources for index, name in enumerate(graph.destination_names)}
    ends = (name.partition("->") for name in names)
    pairs = np.fromiter(
        (tail.get(source, nowhere) + head.get(destination, nowhere) for source, _, destination in ends),
        np.int64,
        len(names),
    )
    destinations, sources = np.divmod(pairs, graph.n_sources)
    found = graph.edges_between(sources, np.maximum(destinations, -1))
    wrong = np.flatnonzero(found < 0)
    if wrong.size:
        raise InputError(f"{path}: there is no edge {names[wrong[0]]!r} in a graph of {graph}")
    return found


def _scores(values: list[Any], names: Sequence[str], path: Path) -> NDArray[np.float64]:
    """[listed] scores, NaN for null or none."""
    for kind in set(map(type, values)) - {int, float, type(None)}:
        name, value = next((n, v) for n, v in zip(names, values, strict=True) if type(v) is kind)
        raise InputError(f"{path}: the score of edge {name} is {value!r}, but must be a number")
    try:
        found = np.array(values, np.float64)
    except OverflowError:
        raise InputError(f"{path}: a score is a whole number too large to be one; scores must be finite") from None
    for place in np.flatnonzero(~np.isfinite(found)).tolist():
        if values[place] is not None:
            raise InputError(f"{path} has a score that is NaN or infinite, of edge {names[place]}; null means none")
    return found


def _members(values: list[Any], names: Sequence[str], path: Path) -> NDArray[np.int8]:
    """[listed] membership: 1, 0, or `SILENT` for none."""
    kinds = set(map(type, values))
    for kind in kinds - {bool, type(None)}:
        name = next(name for name, value in zip(names, values, strict=True) if type(value) is kind)
        raise InputError(f"{path}: edge {name} must say whether it is in_graph, true or false")
    return np.array(values if kinds == {bool} else [SILENT if one is None else one for one in values], np.int8)
