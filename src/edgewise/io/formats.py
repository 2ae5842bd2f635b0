"""Read and write files about edges in the format of their suffix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph, Graph, NodeGraph
from . import circuit_npz, eap_json, eap_pt
from .edge_file import EdgeFile
from .reading import file_size, wrap_read_errors

NPZ = ".npz"
# Suffix -> module with `read` and `write`. None imports torch before it needs it.
FORMATS: dict[str, ModuleType] = {".json": eap_json, ".pt": eap_pt, NPZ: circuit_npz}
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
        content: EdgeFile = FORMATS[path.suffix].read(path, level)
    return content


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
    FORMATS[path.suffix].write(path, graph, mask, score, about)


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
