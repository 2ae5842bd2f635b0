"""EAP-IG / MIB pt: the content of their json as tensors, padded to [source, destination] and saved by torch.

Only this module knows the padded matrix; everything else uses [edge]. Scores are written as float32, as EAP-IG does,
if that keeps every bit, and as float64 if not.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from .atomic import write_bytes
from .edge_file import EdgeFile, make_cfg, read_about, read_cfg
from .torch_file import load_torch_file

REQUIRED_KEYS = ("cfg", "src_nodes", "dst_nodes", "edges_in_graph", "nodes_in_graph")
UNREAD_KEYS = ("nodes_scores", "neurons_in_graph", "neurons_scores")


def read(path: Path) -> EdgeFile:
    """Return the content of a file. Scores of pairs that are no edge are ignored."""
    data = load_torch_file(path)
    if not isinstance(data, dict) or any(key not in data for key in REQUIRED_KEYS):
        raise InputError(f"{path} isn't an EAP-IG file: it needs the keys {', '.join(REQUIRED_KEYS)} and edges_scores")
    graph = read_cfg(data["cfg"], path)
    shape = (graph.n_sources, graph.n_destinations)
    inside = _read_tensor(data, "edges_in_graph", shape, path)
    _read_tensor(data, "nodes_in_graph", shape[:1], path)
    score = _read_tensor(data, "edges_scores", shape, path) if "edges_scores" in data else None
    if score is not None and score.dtype.kind != "f":
        raise InputError(f"{path}: edges_scores holds {score.dtype}, but scores are floating-point numbers")
    for key, names in (("src_nodes", graph.source_names), ("dst_nodes", graph.destination_names)):
        if tuple(data[key]) != names:  # the order of the tensors
            raise InputError(f"{path}: {key} must list the nodes of {graph} in order, from {names[0]} to {names[-1]}")
    mask = inside[graph.edge_source, graph.edge_destination]
    if not np.isin(inside, (0, 1)).all() or np.count_nonzero(inside) != np.count_nonzero(mask):
        raise InputError(f"{path}: edges_in_graph must be true or false, and false where {graph} has no edge")
    score = None if score is None else score[graph.edge_source, graph.edge_destination]
    unread = tuple(key for key in UNREAD_KEYS if data.get(key) is not None)
    return EdgeFile(path, graph, score, mask.astype(bool), read_about(data, path), unread)


def write(
    path: Path, graph: Graph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
    import torch

    with np.errstate(over="ignore"):
        single = score.astype(np.float32)
    data = {
        "cfg": make_cfg(graph),
        "src_nodes": list(graph.source_names),
        "dst_nodes": list(graph.destination_names),
        "edges_scores": torch.from_numpy(_pad(graph, single if (single == score).all() else score)),
        "edges_in_graph": torch.from_numpy(_pad(graph, mask)),
        "nodes_in_graph": torch.from_numpy(graph.used_nodes(mask)[: graph.n_sources]),
        # Through JSON, so that only plain values are written: others can't be loaded again.
        "edgewise": json.loads(json.dumps(dict(about), allow_nan=False)),
    }
    # Into memory first: torch writes a file's name into the file, and has errors of its own for a full disk.
    buffer = io.BytesIO()
    torch.save(data, buffer)
    write_bytes(path, buffer.getvalue())


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
