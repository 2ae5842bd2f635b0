"""The small format of a circuit: a .npz with one bit per edge, and scores of the circuit's edges only.

about    the graph and how the circuit was made, as JSON in bytes
inside   [byte] whether each edge is in the circuit, as packed bits
score    [edge of the circuit] the signed scores that the circuit was selected by, float32

EAP-IG's json takes about 75 bytes per edge of the graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph
from .arrays import Shape, read_arrays
from .atomic import atomic_file
from .edge_file import MAX_EDGES_UNCHECKED, EdgeFile, check_level, make_cfg, read_about, read_cfg
from .reading import file_size, wrap_read_errors
from .records import MAX_JSON_BYTES, convert_graph, parse_json

CIRCUIT_FORMAT, CIRCUIT_VERSION = "edgewise-circuit", 1
ARRAYS: Mapping[str, tuple[str, Shape]] = {"about": ("u1", (None,)), "inside": ("u1", (None,)), "score": ("f", (None,))}


def read(path: Path, level: str | None = None) -> EdgeFile:
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


def write(
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
        # Not compressed, so that the file's size grows with the graph, as `read` expects.
        np.savez(draft, about=text, inside=np.packbits(mask), score=stored_score)
