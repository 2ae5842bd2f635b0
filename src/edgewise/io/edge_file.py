"""The content of a file about a graph's edges, in any format, and what the formats share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph, Graph, frozen
from .reading import wrap_read_errors
from .records import parse_json

# Up to this many edges, any file is accepted. Beyond, the file's size must be in proportion: a few bytes could
# otherwise claim a graph that fills the memory.
MAX_EDGES_UNCHECKED = 2_000_000
CFG_KEYS = ("n_layers", "n_heads", "d_model")
NEURON_KEYS = ("neurons", "neurons_in_graph")


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """The content of an EAP-IG or MIB file, or of an edgewise circuit.

    Attributes
    ----------
    score
        [edge] NaN for edges without a score; None if no edge has one.
    mask
        [edge] Whether an edge is in the circuit (`in_graph`); None if the file does not say.
    about
        How the circuit was made, if edgewise wrote the file.
    unread
        Names of other content, which edgewise ignores: scores of nodes, neurons.
    """

    path: Path
    graph: BaseGraph
    score: NDArray[np.floating] | None
    mask: NDArray[np.bool_] | None
    about: Mapping[str, Any]
    unread: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("score", "mask"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name)))

    @property
    def has_circuit(self) -> bool:
        """Whether the file is of a circuit. A json or pt without an edge is one if it was selected, else of scores."""
        if self.mask is None:
            return False
        return bool(self.mask.any()) or self.path.suffix == ".npz" or "edges_asked" in self.about

    def require_scores(self) -> NDArray[np.floating]:
        """Return the scores [edge]. Raise InputError if an edge has none."""
        if self.score is None:
            raise InputError(f"{self.path} has no scores, only membership; give a file in which every edge has a score")
        wrong = np.flatnonzero(~np.isfinite(self.score))
        if wrong.size:
            raise InputError(
                f"{self.path}: {wrong.size} of {self.graph.n_edges} edges have no score that is a finite number "
                f"(none, NaN or infinite), the first is edge {self.graph.edge_name(int(wrong[0]))}; score every edge"
            )
        return self.score

    def require_mask(self) -> NDArray[np.bool_]:
        """Return the mask [edge]. Raise InputError if the file has none, or is about neurons."""
        if self.mask is None:
            raise InputError(
                f"{self.path} has scores only: no edge says whether it is in_graph; select a circuit first"
            )
        if any(name in NEURON_KEYS for name in self.unread):
            raise InputError(
                f"{self.path} is a circuit of neurons; edgewise runs circuits of edges between whole nodes"
            )
        return self.mask


def read_cfg(cfg: object, path: Path, max_edges: int | None = None) -> Graph:
    """Return the graph that EAP-IG's `cfg` describes. `max_edges` is the most that a file of this size can describe."""
    if not isinstance(cfg, Mapping) or any(key not in cfg for key in CFG_KEYS):
        raise InputError(f"{path}: cfg must map {', '.join(CFG_KEYS)} to numbers")
    try:
        graph = Graph(**{key: cfg[key] for key in CFG_KEYS}, parallel=cfg.get("parallel_attn_mlp", False))
    except InputError as error:
        raise InputError(f"{path}: cfg is wrong: {error}") from None
    if max_edges is not None and graph.n_edges > max(MAX_EDGES_UNCHECKED, max_edges):
        raise InputError(f"{path} is too small a file for {graph}, which has {graph.n_edges:,} edges")
    return graph


def make_cfg(graph: Graph) -> dict[str, int | bool]:
    """Return `cfg` as EAP-IG writes it."""
    sizes = {"n_layers": graph.n_layers, "n_heads": graph.n_heads}
    return {**sizes, "parallel_attn_mlp": graph.parallel, "d_model": graph.d_model}


def read_about(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return how a circuit was made, the key `edgewise`: plain data that can be written again as JSON."""
    about = data.get("edgewise", {})
    if not isinstance(about, dict):
        raise InputError(f"{path}: edgewise must be an object, but is {type(about).__name__}")
    with wrap_read_errors(f"edgewise in {path}"):
        return dict(parse_json(json.dumps(about, allow_nan=False)))
