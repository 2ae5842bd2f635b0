"""Solvers without a proof: top-n, and greedy, MIB's baseline.

Greedy starts at the logits and takes the best edge into any node reached so far. This is Prim's algorithm. A heap would
need a Python loop over edges. Instead, edges are handled in stretches: a node is reached when the best edge from an
unreached node is taken. Before that, all better edges into reached nodes are taken, best first. So there is one step
per node, and the rest is sorting.

An example: the edges are a->logits (rank 2), b->logits (rank 1), input->a (rank 0), input->b (rank 3). Only logits is
reached. Stretch 0 ends with b->logits, which reaches b. Stretch 1 ends with a->logits, which reaches a. Stretch 2 ends
with input->a, which reaches input. No node is left to reach: stretch 3 takes the other edges, here input->b.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..graph import BaseGraph
from .base import SelectionProblem, Solution, Solver, Status

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TopN(Solver):
    """The edges of the largest value, then pruned."""

    name: ClassVar[str] = "top-n"
    title: ClassVar[str] = "Top-n"

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return the required edges, the best positive edges that PNR asks for, then the best of the others."""
        order, mask = problem.optional_order, problem.required.copy()
        missing = max(0, problem.least_positive - int(problem.is_positive[mask].sum()))
        mask[order[problem.is_positive[order]][:missing]] = True
        mask[order[~mask[order]][: problem.budget - int(mask.sum())]] = True
        return Solution(mask, Status.HEURISTIC, problem.upper_bound)


@dataclass(frozen=True)
class Greedy(Solver):
    """Starting at the logits, the best edges into reached nodes; then pruned."""

    name: ClassVar[str] = "greedy"
    title: ClassVar[str] = "Greedy"

    def solve(self, problem: SelectionProblem) -> Solution:
        """Take `budget` edges, starting from the required ones.

        With PNR, positive edges are taken first, until there are enough or none can be reached.
        """
        graph, rank = problem.graph, problem.edge_rank
        mask = problem.required.copy()
        reached = np.zeros(graph.n_nodes, bool)
        reached[-1] = True
        reached[graph.edge_source[mask]] = True
        missing = problem.least_positive - int(problem.is_positive[mask].sum())
        if missing > 0:
            mask[greedy_order(graph, rank, problem.is_positive & ~mask, reached)[:missing]] = True
            reached[graph.edge_source[mask]] = True
        mask[greedy_order(graph, rank, ~mask, reached)[: problem.budget - int(mask.sum())]] = True
        return Solution(mask, Status.HEURISTIC, problem.upper_bound)


def greedy_order(
    graph: BaseGraph, rank: Ints, allowed: NDArray[np.bool_], reached: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return the `allowed` edges in the order in which greedy takes them, from the nodes `reached` so far.

    rank  [edge] 0 for the best edge; no two are equal
    """
    edges = np.flatnonzero(allowed)
    edges = edges[np.argsort(graph.edge_target[edges], kind="stable")]
    stops = np.searchsorted(graph.edge_target[edges], np.arange(graph.n_nodes + 1))
    in_edges = [edges[start:stop] for start, stop in itertools.pairwise(stops)]  # [node]
    never = graph.n_edges
    first_stretch = np.where(reached, 0, -1)  # [node] the first stretch in which its in-edges can be taken; -1: never
    best_rank = np.full(graph.n_nodes, never)  # [node] of the best edge from an unreached node into reached ones
    for node in np.flatnonzero(reached).tolist():
        np.minimum.at(best_rank, graph.edge_source[in_edges[node]], rank[in_edges[node]])
    best_rank[reached] = never
    last_ranks: list[int] = []  # [stretch] the rank of its last edge, whose source is reached for the next stretch
    while best_rank[node := int(best_rank.argmin())] < never:
        last_ranks.append(int(best_rank[node]))
        first_stretch[node] = len(last_ranks)
        np.minimum.at(best_rank, graph.edge_source[in_edges[node]], rank[in_edges[node]])
        best_rank[first_stretch >= 0] = never
    stretch_ends, edges_by_node, stretch_by_node = np.array(last_ranks, np.int64), [], []
    for node, first in enumerate(first_stretch):
        if first >= 0:
            # An edge is taken in the first stretch, since its node was reached, whose last edge is no better.
            worst_yet = np.maximum.accumulate(stretch_ends[first:])
            edges_by_node.append(in_edges[node])
            stretch_by_node.append(first + np.searchsorted(worst_yet, rank[in_edges[node]]))
    edges = np.concatenate(edges_by_node)
    return edges[np.lexsort((rank[edges], np.concatenate(stretch_by_node)))]
