"""One place that knows which format a path is of: what it says about edges is read and written here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph
from . import circuit_npz as packed
from . import eap_json, eap_pt
from .edge_file import EdgeFile
from .reading import file_size, wrap_read_errors

# Each has `read` and `write`. None loads torch before it is needed.
PACKED = ".npz"
FORMATS: dict[str, ModuleType] = {".json": eap_json, ".pt": eap_pt, PACKED: packed}
# Those that others read, too.
OF_THE_FIELD = (".json", ".pt")


def read_file(path: Path) -> EdgeFile:
    """Everything that an EAP-IG json or pt, or a circuit of ours, says about edges."""
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; a circuit is a file that ends in {suffixes()}")
    file_size(path)  # refuses what is no file, before its suffix
    kind = _format(path)
    with wrap_read_errors(path):
        found: EdgeFile = kind.read(path)
    return found


def write_file(
    path: Path, graph: Graph, mask: NDArray[np.bool_], score: NDArray[np.floating], about: Mapping[str, Any]
) -> None:
    """Write which edges are inside and their signed scores, both [edge], as the suffix says; `about` says how."""
    _format(path).write(path, graph, mask, score, about)


def check_suffix(path: Path) -> None:
    """Refuse a file whose suffix names no format: before the work whose outcome it is to hold."""
    _format(path)


def _format(path: Path) -> ModuleType:
    if path.suffix not in FORMATS:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a circuit is a file that ends in {suffixes()}")
    return FORMATS[path.suffix]


def suffixes() -> str:
    """What circuits end in, in words."""
    *most, last = FORMATS
    return f"{', '.join(most)} or {last}"
