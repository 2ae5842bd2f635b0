"""One place that knows which format a path is of: read scores and circuits from, and write them to, any of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError
from ..scores import EdgeScores
from . import eap_json, eap_pt, score_folder
from .edge_file import EdgeFile

# Each has `read` and `write_circuit`. None loads torch before it is needed.
FORMATS: dict[str, ModuleType] = {".json": eap_json, ".pt": eap_pt}


def read_scores(path: Path) -> EdgeScores:
    """Scores from a folder made by `edgewise score` or `edgewise run`, or from an EAP-IG json or pt."""
    if path.is_dir() or not path.suffix:
        return score_folder.read_scores(path)
    return read_file(path).scores()


def read_circuit(path: Path) -> Circuit:
    """The circuit in an EAP-IG json or pt. Edges that a json leaves out are outside."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; a circuit is a file that ends in {_suffixes()}")
    return read_file(path).circuit()


def read_file(path: Path) -> EdgeFile:
    """Everything that an EAP-IG json or pt says about edges."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    return _format(path).read(path)


def write_circuit(path: Path, circuit: Circuit, score: NDArray[np.floating], about: Mapping[str, Any]) -> None:
    """Write a circuit with the signed scores [edge] that it was chosen by, as its suffix says; `about` says how."""
    _format(path).write_circuit(path, circuit, score, about)


def check_suffix(path: Path) -> None:
    """Refuse a file whose suffix names no format: before the work whose outcome it is to hold."""
    _format(path)


def _format(path: Path) -> ModuleType:
    if path.suffix not in FORMATS:
        raise InputError(f"{path} has the suffix {path.suffix!r}; an EAP-IG file ends in {_suffixes()}")
    return FORMATS[path.suffix]


def _suffixes() -> str:
    return " or ".join(FORMATS)
