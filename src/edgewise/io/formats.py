"""Read and write files about edges in the format of their suffix: EAP-IG's json and pt, and our npz.

The npz is the small format of a circuit, with one bit per edge, and scores of the circuit's edges only. EAP-IG's json
takes about 75 bytes per edge of the graph. The arrays of an npz are:

about    the graph and how the circuit was made, as JSON in bytes
inside   [byte] whether each edge is in the circuit, as packed bits
score    [edge of the circuit] the signed scores that the circuit was selected by, float32
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph, Graph, NodeGraph
from .arrays import Shape, read_arrays
from .atomic import atomic_file
from .eap_files import read_eap_json, read_eap_pt, write_eap_json, write_eap_pt
from .edge_file import MAX_EDGES_UNCHECKED, EdgeFile, check_level, make_cfg, read_about, read_cfg
from .reading import file_size, wrap_read_errors
from .records import MAX_JSON_BYTES, convert_graph, parse_json

CIRCUIT_FORMAT, CIRCUIT_VERSION = "edgewise-circuit", 1
ARRAYS: Mapping[str, tuple[str, Shape]] = {"about": ("u1", (None,)), "inside": ("u1", (None,)), "score": ("f", (None,))}
NPZ = ".npz"
# The formats that EAP-IG and MIB read, too.
EAP_SUFFIXES = (".json", ".pt")
SUFFIX_WORDS = ".json, .pt or .npz"


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
