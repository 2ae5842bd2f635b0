"""Fill a circuit with edges of value 0, or build some circuit without a solver."""

from __future__ import annotations

import numpy as np

from .problem import SelectionProblem
from .reduced import Bools


def fill_with_zero_edges(problem: SelectionProblem, mask: Bools) -> Bools:
    """Return the circuit [edge] with edges of value 0 added, in edge order, up to the budget.

    Edges that failed the bootstrap filter have value 0. They are chosen last; the integer program ignores them. When
    there are none left between used nodes, another node is added, with one edge in and one out.
    """
    graph = problem.graph
    left = np.flatnonzero((problem.value == 0) & ~mask)
    room = problem.budget - int(mask.sum())
    if not room or not len(left):
        return mask
    mask = mask.copy()
    used = graph.used_nodes(mask)
    used[[0, -1]] = True
    while room and len(left):
        source, target = graph.edge_source[left], graph.edge_target[left]
        chosen = np.flatnonzero(used[source] & used[target])[:room]
        if not len(chosen):
            into, out_of = used[source] & ~used[target], ~used[source] & used[target]
            joining = np.intersect1d(target[into], source[out_of])
            if not len(joining) or room < 2:
                break
            node = joining[0]
            chosen = np.array([np.argmax(into & (target == node)), np.argmax(out_of & (source == node))])
            used[node] = True
        mask[left[chosen]] = True
        room -= len(chosen)
        left = np.delete(left, chosen)
    return mask


def connect_best_edges(problem: SelectionProblem) -> Bools:
    """Return some circuit [edge] within the budget: the best edges, the positive edges that PNR asks for first.

    Their nodes are connected directly to input and logits. A bisection finds how many edges fit.
    """
    order = problem.optional_order
    positive = order[problem.is_positive[order]][: problem.least_positive]
    by_priority = np.concatenate([positive, order[~np.isin(order, positive)]]) if len(positive) else order
    fits, too_many = 0, problem.budget + 1
    while too_many - fits > 1:
        tried = (fits + too_many) // 2
        size = int(_connect(problem, by_priority[:tried]).sum())
        fits, too_many = (tried, too_many) if size <= problem.budget else (fits, tried)
    return _connect(problem, by_priority[:fits])


def _connect(problem: SelectionProblem, edges: np.ndarray) -> Bools:
    """Return the required and these edges [edge], and direct edges to and from every node that has none."""
    graph = problem.graph
    mask = problem.required.copy()
    mask[edges] = True
    has_in, has_out = np.zeros((2, graph.n_nodes), bool)
    has_in[0] = has_out[-1] = True
    has_in[graph.edge_target[mask]] = has_out[graph.edge_source[mask]] = True
    touched = has_in | has_out
    needs_in, needs_out = np.flatnonzero(touched & ~has_in), np.flatnonzero(touched & ~has_out)
    # The connectors have one edge from input to every node, and one from every node to logits.
    source, target = graph.edge_source[problem.connectors], graph.edge_target[problem.connectors]
    joins_in = (source == 0) & np.isin(target, needs_in)
    joins_out = np.isin(source, needs_out) & (target == graph.n_nodes - 1)
    mask[problem.connectors[joins_in | joins_out]] = True
    return mask
