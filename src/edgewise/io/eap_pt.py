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
from ..graph import Graph, NodeGraph
from .atomic import write_bytes
from .edge_file import EdgeFile, LevelContent, make_cfg, read_about, read_cfg
from .torch_file import load_torch_file

REQUIRED_KEYS = ("cfg", "src_nodes", "dst_nodes", "edges_in_graph", "nodes_in_graph")
LEVEL_KEYS = ("nodes_scores", "neurons_in_graph", "neurons_scores")


def read(path: Path, level: str | None = None) -> EdgeFile:
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


def write(
    path: Path, graph: Graph | NodeGraph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit; the parameters are those of `write_edge_file`."""
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
