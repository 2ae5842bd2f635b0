"""Top-n: the best edges by value, positive ones first as far as PNR asks."""

from __future__ import annotations

import numpy as np

from .problem import SelectionProblem
from .selection import Status
from .solution import Solution


def solve_top_n(problem: SelectionProblem, time_limit: float | None = None) -> Solution:
    """The `least_positive` best positive edges, then the best of the others up to the budget."""
    order = problem.order
    first = order[problem.is_positive[order]][: problem.least_positive]
    mask = np.zeros(problem.graph.n_edges, bool)
    mask[first] = True
    rest = order[~mask[order]][: problem.budget - len(first)]
    mask[rest] = True
    return Solution(mask, Status.HEURISTIC, problem.upper_bound)
