"""Circuits up to their budget: with edges that are worth nothing, or in any way at all."""

from __future__ import annotations

import numpy as np

from .problem import SelectionProblem
from .reduced import Bools


def fill_with_worthless(problem: SelectionProblem, mask: Bools) -> Bools:
    """[edge] the circuit with edges of value exactly 0 added, by edge order, as far as there is room.

    Edges that failed the bootstrap's filter have value 0: chosen last, but not lost; the program doesn't care for them.
    When those between used nodes run out, another node joins, by one edge in and one out.
    """
    graph = problem.graph
    left = np.flatnonzero((problem.value == 0) & ~mask)
    room = problem.budget - int(mask.sum())
    if not room or not len(left):
        return mask
    mask = mask.copy()
    used = np.zeros(graph.n_nodes, bool)
    used[[0, -1]] = True
    used[graph.edge_source[mask]] = used[graph.edge_head[mask]] = True
    while room and len(left):
        tail, head = graph.edge_source[left], graph.edge_head[left]
        chosen = np.flatnonzero(used[tail] & used[head])[:room]
        if not len(chosen):
            into, out_of = used[tail] & ~used[head], ~used[tail] & used[head]
            joining = np.intersect1d(head[into], tail[out_of])
            if not len(joining) or room < 2:
                break
            node = joining[0]
            chosen = np.array([np.argmax(into & (head == node)), np.argmax(out_of & (tail == node))])
            used[node] = True
        mask[left[chosen]] = True
        room -= len(chosen)
        left = np.delete(left, chosen)
    return mask


def join_best(problem: SelectionProblem) -> Bools:
    """[edge] some circuit within the budget, at once: the best edges, positive ones first as far as PNR asks.

    Each node that they touch is joined to input and to logits directly. The most edges that fit are found by halving.
    """
    order = problem.optional_order
    positive = order[problem.is_positive[order]][: problem.least_positive]
    wanted = np.concatenate([positive, order[~np.isin(order, positive)]]) if len(positive) else order
    fits, too_many = 0, problem.budget + 1
    while too_many - fits > 1:
        tried = (fits + too_many) // 2
        joined = int(_joined(problem, wanted[:tried]).sum())
        fits, too_many = (tried, too_many) if joined <= problem.budget else (fits, tried)
    return _joined(problem, wanted[:fits])


def _joined(problem: SelectionProblem, edges: np.ndarray) -> Bools:
    """[edge] the required and these edges, and direct edges to and from every node that lacks one."""
    graph = problem.graph
    mask = _with(problem.required, edges)
    has_in, has_out = np.zeros((2, graph.n_nodes), bool)
    has_in[0] = has_out[-1] = True
    has_in[graph.edge_head[mask]] = has_out[graph.edge_source[mask]] = True
    touched = has_in | has_out
    lacks_in, lacks_out = np.flatnonzero(touched & ~has_in), np.flatnonzero(touched & ~has_out)
    from_input = problem.connectors[graph.edge_source[problem.connectors] == 0]
    mask[from_input[np.isin(graph.edge_head[from_input], lacks_in)]] = True
    mask[graph.blocks[-1].start + lacks_out] = True
    return mask


def _with(mask: Bools, edges: np.ndarray) -> Bools:
    more = mask.copy()
    more[edges] = True
    return more
