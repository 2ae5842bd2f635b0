"""A circuit in few bytes: a .npz with a bit per edge, and scores of the edges inside alone.

about    its graph and how it came about, as JSON in bytes
inside   [byte] whether each edge is in the circuit, as packed bits
score    [edge inside] the signed scores that the circuit was chosen by, float32

A json of the field has some 75 bytes per edge, whether inside or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from .atomic import whole_file
from .edge_file import ALWAYS_EDGES, EdgeFile, about_of, cfg_of, check_score, graph_of
from .reading import LARGEST_RECORD, array_headers, file_size, parse_json, read_arrays

FORMAT, VERSION = "edgewise-circuit", 1


def read(path: Path) -> EdgeFile:
    """Everything that a file says about edges; edges outside have no score."""
    sizes = {name: header.shape for name, header in array_headers(path).items()}
    if sorted(sizes) != ["about", "inside", "score"] or any(len(shape) != 1 for shape in sizes.values()):
        raise InputError(f"{path} isn't a circuit that edgewise wrote: it needs the arrays about, inside and score")
    if sizes["about"][0] > LARGEST_RECORD:
        raise InputError(f"{path}: about has {sizes['about'][0]:,} bytes, but may have {LARGEST_RECORD:,}")
    kinds: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "about": ("u1", (None,)), "inside": ("u1", (None,)), "score": ("f", (None,)),
    }  # fmt: skip
    held = read_arrays(path, kinds)
    about = _record(held["about"].tobytes(), path)
    graph = graph_of(about.get("cfg"), path)
    if graph.n_edges > max(ALWAYS_EDGES, 8 * file_size(path)):
        raise InputError(f"{path} is too small a file for a graph of {graph}, which has {graph.n_edges:,} edges")
    if len(held["inside"]) != (graph.n_edges + 7) // 8:
        raise InputError(f"{path}: inside has {len(held['inside']):,} bytes, but {graph} has {graph.n_edges:,} edges")
    mask = np.unpackbits(held["inside"], count=graph.n_edges).astype(bool)
    if len(held["score"]) != np.count_nonzero(mask):
        raise InputError(f"{path} has {len(held['score']):,} scores for {np.count_nonzero(mask):,} edges inside")
    if not np.isfinite(held["score"]).all():
        raise InputError(f"{path} has scores that are NaN or infinite")
    score = np.full(graph.n_edges, np.nan)
    score[mask] = held["score"]
    return EdgeFile(path, graph, score, mask, about_of(about, path))


def write(
    path: Path, graph: Graph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write a circuit's mask with the signed scores that it was chosen by, both [edge]; `about` says how."""
    check_score(path, graph, score)
    with np.errstate(over="ignore"):
        short = score[mask].astype(np.float32)
    if not np.isfinite(short).all():
        raise InputError(f"{path} isn't written: some scores are too large for it; write a json")
    record = {"format": FORMAT, "version": VERSION, "cfg": cfg_of(graph), "edgewise": dict(about)}
    text = np.frombuffer(json.dumps(record, allow_nan=False).encode(), np.uint8)
    with whole_file(path) as draft:
        # Not compressed: so the file is at least as large as its graph has it.
        np.savez(draft, about=text, inside=np.packbits(mask), score=short)


def _record(data: bytes, path: Path) -> dict[str, Any]:
    try:
        found = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    found = found if isinstance(found, dict) else {}
    if [found.get("format"), found.get("version")] != [FORMAT, VERSION]:
        raise InputError(f"{path} isn't of format {FORMAT} version {VERSION}, which this edgewise reads")
    return found
