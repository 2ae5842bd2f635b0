"""Greedy, MIB's baseline: from the logits backwards, always the best edge into a node already reached.

It is Prim's algorithm. Popping one edge at a time from a heap is a Python loop over edges, so this works on whole
stretches instead: a node joins when the best edge from an unreached node is popped, and until then every edge into
reached nodes that beats that edge is popped, in order. So there is one step per node, and the rest is sorting.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph
from .base import Solution, Solver
from .problem import SelectionProblem
from .selection import Status

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Greedy(Solver):
    """From the logits backwards, the best edge into what is reached; then pruned."""

    name: ClassVar[str] = "greedy"
    title: ClassVar[str] = "Greedy"

    def solve(self, problem: SelectionProblem) -> Solution:
        """`budget` pops, what is required counted as popped; with PNR, the first of them among the positive edges.

        If the positive edges that can be reached run out before that, the others have their turn early.
        """
        graph = problem.graph
        rank = np.empty(graph.n_edges, np.int64)
        rank[problem.order] = np.arange(graph.n_edges)
        mask = problem.required.copy()
        reached = np.zeros(graph.n_nodes, bool)
        reached[-1] = True
        reached[graph.edge_source[mask]] = True
        missing = problem.least_positive - int(problem.is_positive[mask].sum())
        if missing > 0:
            mask[pop_order(graph, rank, problem.is_positive & ~mask, reached)[:missing]] = True
            reached[graph.edge_source[mask]] = True
        mask[pop_order(graph, rank, ~mask, reached)[: problem.budget - int(mask.sum())]] = True
        return Solution(mask, Status.HEURISTIC, problem.upper_bound)


def pop_order(graph: Graph, rank: Ints, allowed: NDArray[np.bool_], reached: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The `allowed` edges in the order in which greedy pops them, from the nodes `reached` so far.

    rank  [edge] 0 for the best edge; no two are equal
    """
    edges = np.flatnonzero(allowed)
    edges = edges[np.argsort(graph.edge_head[edges], kind="stable")]
    stops = np.searchsorted(graph.edge_head[edges], np.arange(graph.n_nodes + 1))
    into = [edges[a:b] for a, b in itertools.pairwise(stops)]
    since, barriers = _joins(graph, rank, into, reached)
    popped, stretch = [], []
    for node, first in enumerate(since):
        if first >= 0:
            # An edge is popped in the first stretch since its node joined whose closing edge is no better.
            worst_yet = np.maximum.accumulate(barriers[first:])
            popped.append(into[node])
            stretch.append(first + np.searchsorted(worst_yet, rank[into[node]]))
    edges = np.concatenate(popped)
    return edges[np.lexsort((rank[edges], np.concatenate(stretch)))]


def _joins(graph: Graph, rank: Ints, into: list[NDArray[np.intp]], reached: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """When nodes join.

    Stretch t of the pops is closed by the edge whose rank is barriers[t]: its tail joins, and its in-edges count
    from stretch t + 1 on. Returns since [node], the first stretch of a node's in-edges (-1: never), and barriers.
    """
    never = graph.n_edges
    since = np.where(reached, 0, -1)
    best = np.full(graph.n_nodes, never)  # [node] rank of the best edge from an unreached node into reached ones
    for node in np.flatnonzero(reached).tolist():
        np.minimum.at(best, graph.edge_source[into[node]], rank[into[node]])
    best[reached] = never
    barriers: list[int] = []
    while best[node := int(best.argmin())] < never:
        barriers.append(int(best[node]))
        since[node] = len(barriers)
        np.minimum.at(best, graph.edge_source[into[node]], rank[into[node]])
        best[since >= 0] = never
    return since, np.array(barriers, np.int64)
