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
from ..graph import BaseGraph, Graph, NeuronGraph, NodeGraph, frozen
from .reading import wrap_read_errors
from .records import parse_json

# Up to this many edges, any file is accepted. Beyond, the file's size must be in proportion: a few bytes could
# otherwise claim a graph that fills the memory.
MAX_EDGES_UNCHECKED = 2_000_000
CFG_KEYS = ("n_layers", "n_heads", "d_model")
# Names of content that is not of the level that is read.
NODES_SCORES, NEURONS, EDGES = "nodes_scores", "neurons", "edges_in_graph"


@dataclass(frozen=True, eq=False)
class EdgeFile:
    """The content of an EAP-IG or MIB file, or of an edgewise circuit.

    score   [edge] NaN for edges without a score; None if no edge has one
    mask    [edge] whether an edge is in the circuit (`in_graph`); None if the file does not say
    about   how the circuit was made, if edgewise wrote the file
    unread  names of content of other levels than that of `graph`: scores of nodes, neurons, edges
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
        """Return the mask [edge]. Raise InputError if the file has none, or is a circuit of two levels at once."""
        if self.mask is None:
            raise InputError(
                f"{self.path} has scores only: no edge says whether it is in_graph; select a circuit first"
            )
        if self.graph.level == "edge" and NEURONS in self.unread:
            raise InputError(
                f"{self.path} is a circuit of neurons, and edgewise runs circuits of edges between whole nodes; read "
                "it at level 'neuron'"
            )
        if EDGES in self.unread:
            raise InputError(
                f"{self.path} is a circuit of {self.graph.unit}s without some edges among them; edgewise runs circuits "
                "of edges, or of nodes or neurons with all edges among them"
            )
        return self.mask


@dataclass(frozen=True, eq=False)
class LevelContent:
    """The content of an EAP-IG or MIB file at all levels. NaN is no score; None is no such content.

    score, mask                    [edge]
    node_score, node_mask          [source]
    neuron_score, neuron_mask      [source, d_model]
    """

    score: NDArray[np.floating] | None
    mask: NDArray[np.bool_] | None
    node_score: NDArray[np.floating] | None = None
    node_mask: NDArray[np.bool_] | None = None
    neuron_score: NDArray[np.floating] | None = None
    neuron_mask: NDArray[np.bool_] | None = None

    def at_level(self, level: str | None, path: Path, plain: Graph, about: Mapping[str, Any]) -> EdgeFile:
        """Return the content at one level; None takes the one that the file is about."""
        has_neurons = _has_numbers(self.neuron_score) or (self.neuron_mask is not None and bool(self.neuron_mask.any()))
        finer = ("neuron",) * has_neurons + ("node",) * _has_numbers(self.node_score)
        # EAP-IG's files of nodes and neurons have edges, too, with scores of 0.
        is_about_edges = not finer or (self.score is not None and bool(np.nan_to_num(self.score).any()))
        levels = ("edge", *finer) if is_about_edges else (*finer, "edge")
        chosen = levels[0] if level is None else level
        if chosen not in levels:
            raise InputError(f"{path} has no {chosen}s, only {' and '.join(f'{name}s' for name in sorted(levels))}")
        others = {"node": NODES_SCORES, "neuron": NEURONS}
        unread = tuple(others[name] for name in levels if name in others and name != chosen)
        if chosen == "edge":
            return EdgeFile(path, plain, self.score, self.mask, about, unread)
        is_node = chosen == "node"
        values = self.node_score if is_node else self.neuron_score
        inside = self.node_mask if is_node else self.neuron_mask
        kind = NodeGraph if is_node else NeuronGraph
        graph = kind(plain)
        if values is not None:
            is_scored = ~np.isnan(values)
            # What has no score is in every circuit, unless this file is of a circuit without it.
            if is_scored.any() and (inside is None or not inside.any() or inside[~is_scored].all()):
                graph = kind.of_scored(plain, is_scored)
        mask = None if inside is None else inside.ravel()[graph.members]
        if mask is not None and mask.any() and self.mask is not None and self.mask.any():
            unread += () if np.array_equal(graph.plain_mask(mask), self.mask) else (EDGES,)
        score = None if values is None else values.ravel()[graph.members]
        return EdgeFile(path, graph, score, mask, about, unread)


def _has_numbers(values: NDArray[np.floating] | None) -> bool:
    return values is not None and not bool(np.isnan(values).all())


def check_level(path: Path, graph: BaseGraph, level: str | None) -> None:
    """Raise InputError if what is at a path is of another level than asked for; None is any."""
    if level is not None and level != graph.level:
        raise InputError(f"{path} has no {level}s, only {graph.level}s")


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
