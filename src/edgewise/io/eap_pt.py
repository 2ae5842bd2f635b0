"""EAP-IG / MIB pt: the same as their json, as tensors padded to [source, destination], saved by torch.

The padded matrix lives here alone: what leaves this file is [edge]. Reading needs no torch and runs nothing.
Scores are written as float32, as EAP-IG does, where that loses nothing, and else as float64; so a round trip is an
identity.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from .atomic import write_bytes
from .edge_file import EdgeFile, check_score, make_cfg, read_about, read_cfg
from .torch_file import Tensor, read_torch

NEEDED = ("cfg", "src_nodes", "dst_nodes", "edges_in_graph", "nodes_in_graph")
BEYOND = ("nodes_scores", "neurons_in_graph", "neurons_scores")


def read(path: Path) -> EdgeFile:
    """Everything that a file says about edges. What it has at pairs that are no edge doesn't matter."""
    data = read_torch(path)
    if not isinstance(data, dict) or any(key not in data for key in NEEDED):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys {', '.join(NEEDED)} and edges_scores")
    graph = read_cfg(data["cfg"], path)
    shape = (graph.n_sources, graph.n_destinations)
    inside = _tensor(data, "edges_in_graph", shape, path)
    _tensor(data, "nodes_in_graph", shape[:1], path)
    score = _tensor(data, "edges_scores", shape, path) if "edges_scores" in data else None
    if score is not None and "float" not in score.kind:
        raise InputError(f"{path}: edges_scores holds {score.kind}, but scores are floating-point numbers")
    _check_names(data, "src_nodes", graph.source_names, path)
    _check_names(data, "dst_nodes", graph.destination_names, path)
    return EdgeFile(
        path,
        graph,
        None if score is None else score.array()[graph.edge_source, graph.edge_destination],
        _mask(inside.array(), graph, path),
        read_about(data, path),
        tuple(key for key in BEYOND if data.get(key) is not None),
    )


def write(
    path: Path, graph: Graph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit's mask with the signed scores that it was chosen by, both [edge]; `about` says how."""
    import torch

    check_score(path, graph, score)
    with np.errstate(over="ignore"):
        short = score.astype(np.float32)
    data = {
        "cfg": make_cfg(graph),
        "src_nodes": list(graph.source_names),
        "dst_nodes": list(graph.destination_names),
        "edges_scores": torch.from_numpy(_padded(graph, short if (short == score).all() else score)),
        "edges_in_graph": torch.from_numpy(_padded(graph, mask)),
        "nodes_in_graph": torch.from_numpy(graph.used_nodes(mask)[: graph.n_sources]),
        # Through JSON, so that nothing but plain values gets in: others can't be loaded again.
        "edgewise": json.loads(json.dumps(dict(about), allow_nan=False)),
    }
    # Into memory first: torch would put a file's name into it, and ends a full disk in words of its own.
    held = io.BytesIO()
    torch.save(data, held)
    write_bytes(path, held.getvalue())


def _check_names(data: dict[str, Any], key: str, expected: tuple[str, ...], path: Path) -> None:
    """Refuse names that aren't the graph's, in its order: the tensors are read by that order."""
    names = list(data[key]) if isinstance(data[key], Sequence | Mapping) else []
    if len(names) != len(expected):
        raise InputError(f"{path} has {len(names)} names in {key}, but {len(expected)} are expected by its cfg")
    for place, (name, other) in enumerate(zip(names, expected, strict=True)):
        if name != other:
            raise InputError(f"{path}: {key}[{place}] is {name!r}, but {other!r} is expected by its cfg")


def _tensor(data: dict[str, Any], key: str, shape: tuple[int, ...], path: Path) -> Tensor:
    """A tensor of the file, of the shape that it must have."""
    found = data[key]
    if not isinstance(found, Tensor):
        raise InputError(f"{path}: {key} must be a dense tensor of numbers")
    if found.shape != shape:
        raise InputError(f"{path}: {key} has shape {list(found.shape)}, but {list(shape)} is expected by its cfg")
    return found


def _mask(matrix: NDArray, graph: Graph, path: Path) -> NDArray[np.bool_]:
    """[edge] from [source, destination] of zeros and ones."""
    if not np.isin(matrix, (0, 1)).all():
        raise InputError(f"{path}: edges_in_graph must be true or false everywhere")
    mask = matrix[graph.edge_source, graph.edge_destination].astype(bool)
    if np.count_nonzero(matrix) != np.count_nonzero(mask):
        source, destination = (int(at[0]) for at in np.nonzero((matrix != 0) & ~_padded(graph, np.ones_like(mask))))
        raise InputError(
            f"{path}: edges_in_graph marks {graph.source_names[source]}->{graph.destination_names[destination]}, "
            f"which is no edge in a graph of {graph}"
        )
    return mask


def _padded(graph: Graph, values: NDArray) -> NDArray:
    """[source, destination] from [edge], zero where there is no edge."""
    matrix = np.zeros((graph.n_sources, graph.n_destinations), values.dtype)
    matrix[graph.edge_source, graph.edge_destination] = values
    return matrix
