"""EAP-IG / MIB json: a graph's shape, scores and membership of every node and edge, by name.

edgewise writes its circuits in the same form, with one more key, `edgewise`, that says how the circuit came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError
from ..graph import Graph
from ..scores import EdgeScores
from .write import read_json, whole_file

KEYS = ("n_layers", "n_heads", "d_model")


def read_circuit(path: Path) -> Circuit:
    """The circuit in a file: the edges that are `in_graph`. Edges that the file leaves out are outside."""
    graph, edges = _read(path)
    mask = np.zeros(graph.n_edges, bool)
    for name, info in edges.items():
        if not isinstance(info, dict) or not isinstance(info.get("in_graph"), bool):
            raise InputError(f"{path}: edge {name} must say whether it is in_graph, true or false")
        mask[_index(graph, name, path)] = info["in_graph"]
    return Circuit(graph, mask)


def read_scores(path: Path) -> EdgeScores:
    """The scores in a file, as one row: the mean over examples that are no longer known."""
    graph, edges = _read(path)
    if len(edges) != graph.n_edges:
        raise InputError(f"{path} has {len(edges)} edges, but a graph of {graph} has {graph.n_edges}")
    values = np.full((1, graph.n_edges), np.nan)
    for name, info in edges.items():
        try:
            values[0, _index(graph, name, path)] = info["score"]
        except (TypeError, KeyError, ValueError):
            raise InputError(f"{path}: edge {name} has no score") from None
    return EdgeScores(graph, values, {"file": path.name})


def write_circuit(path: Path, circuit: Circuit, score: NDArray[np.floating], about: Mapping[str, Any]) -> None:
    """Write a circuit with the signed scores [edge] that it was chosen by; `about` says how."""
    graph = circuit.graph
    nodes = zip(graph.node_names, circuit.nodes.tolist(), strict=True)
    edges = zip(graph.edge_names, score.tolist(), circuit.mask.tolist(), strict=True)
    data = {
        "cfg": {
            "n_layers": graph.n_layers,
            "n_heads": graph.n_heads,
            "parallel_attn_mlp": graph.parallel,
            "d_model": graph.d_model,
        },
        "nodes": {name: {"in_graph": inside} for name, inside in nodes},
        "edges": {name: {"score": value, "in_graph": inside} for name, value, inside in edges},
        "edgewise": dict(about),
    }
    with whole_file(path) as draft:
        draft.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")


def _read(path: Path) -> tuple[Graph, dict[str, Any]]:
    data = read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("edges"), dict) or not isinstance(data.get("cfg"), dict):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys cfg, nodes and edges")
    shape = data["cfg"]
    missing = [key for key in KEYS if not isinstance(shape.get(key), int)]
    if missing:
        raise InputError(f"{path}: cfg lacks {', '.join(missing)}")
    graph = Graph(**{key: shape[key] for key in KEYS}, parallel=bool(shape.get("parallel_attn_mlp", False)))
    return graph, data["edges"]


def _index(graph: Graph, name: str, path: Path) -> int:
    try:
        return graph.edge_index(name)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
