"""What a file of the field says about a graph's edges, whether it is json or pt, or one of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph, frozen
from .reading import wrap_read_errors

# Of a graph with more edges a file must be larger the more it has: memory goes by the graph, and a few bytes could
# name any.
ALWAYS_EDGES = 2_000_000
KEYS = ("n_layers", "n_heads", "d_model")
NEURONS = ("neurons", "neurons_in_graph")


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """An EAP-IG / MIB file, read. It is asked for what one needs: `scored()`, `members()`, or both.

    score   [edge], NaN where the file has none; None if it has none at all
    mask    [edge] the edges that are in_graph; None if the file doesn't say
    about   how the circuit came about, if edgewise wrote the file
    beyond  what else the file holds and edgewise doesn't read: scores of nodes, neurons
    """

    path: Path
    graph: Graph
    score: NDArray[np.floating] | None
    mask: NDArray[np.bool_] | None
    about: Mapping[str, Any]
    beyond: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("score", "mask"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name)))

    def scored(self) -> NDArray[np.floating]:
        """[edge] the scores; refuses a file in which an edge has none."""
        if self.score is None:
            raise InputError(f"{self.path} has no scores, only membership; give a file in which every edge has a score")
        wrong = np.flatnonzero(~np.isfinite(self.score))
        if wrong.size:
            raise InputError(
                f"{self.path}: {wrong.size} of {self.graph.n_edges} edges have no score that is a finite number "
                f"(none, NaN or infinite), the first is edge {edge_name(self.graph, int(wrong[0]))}; score every edge"
            )
        return self.score

    def members(self) -> NDArray[np.bool_]:
        """[edge] the edges that are in_graph; refuses a file that doesn't say, or that is about neurons."""
        if self.mask is None:
            raise InputError(
                f"{self.path} has scores only: no edge says whether it is in_graph; select a circuit first"
            )
        if any(name in NEURONS for name in self.beyond):
            raise InputError(
                f"{self.path} is a circuit of neurons; edgewise runs circuits of edges between whole nodes"
            )
        return self.mask


def graph_of(cfg: object, path: Path) -> Graph:
    """The graph that a file's `cfg` describes."""
    if not isinstance(cfg, Mapping):
        raise InputError(f"{path}: cfg must map {', '.join(KEYS)} to numbers, but is {type(cfg).__name__}")
    missing = [key for key in KEYS if key not in cfg]
    if missing:
        raise InputError(f"{path}: cfg lacks {', '.join(missing)}")
    try:
        return Graph(**{key: cfg[key] for key in KEYS}, parallel=cfg.get("parallel_attn_mlp", False))
    except InputError as error:
        raise InputError(f"{path}: cfg is wrong: {error}") from None


def about_of(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """How the circuit came about, if edgewise wrote the file: plain data that can be written again."""
    found = data.get("edgewise", {})
    if not isinstance(found, dict):
        raise InputError(f"{path}: edgewise must be an object, but is {type(found).__name__}")
    with wrap_read_errors(f"edgewise in {path}"):
        text = json.dumps(found, allow_nan=False, ensure_ascii=False)
        text.encode("utf-8")  # fails for half a character
        return dict(json.loads(text))


def cfg_of(graph: Graph) -> dict[str, int | bool]:
    """`cfg` as EAP-IG writes it."""
    return {
        "n_layers": graph.n_layers,
        "n_heads": graph.n_heads,
        "parallel_attn_mlp": graph.parallel,
        "d_model": graph.d_model,
    }


def edge_name(graph: Graph, edge: int) -> str:
    """The name of one edge, without making those of all."""
    return f"{graph.source_names[graph.edge_source[edge]]}->{graph.destination_names[graph.edge_destination[edge]]}"


def check_score(path: Path, graph: Graph, score: NDArray[np.floating]) -> None:
    """Refuse to write scores that aren't one finite number per edge."""
    if score.shape != (graph.n_edges,):
        raise InputError(f"{path}: scores have shape {score.shape}, but the graph has {graph.n_edges} edges")
    if not np.isfinite(score).all():
        raise InputError(f"{path} isn't written: some scores are NaN or infinite; scores must be finite")
