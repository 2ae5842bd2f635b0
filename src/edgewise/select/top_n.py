"""Top-n: the best edges by value, positive ones first as far as PNR asks."""

from __future__ import annotations

from .problem import SelectionProblem
from .selection import Status
from .solution import Solution


def solve_top_n(problem: SelectionProblem, time_limit: float | None = None) -> Solution:
    """What is required, the best positive edges as far as PNR asks, then the best of the others up to the budget."""
    order, mask = problem.optional_order, problem.required.copy()
    missing = max(0, problem.least_positive - int(problem.is_positive[mask].sum()))
    mask[order[problem.is_positive[order]][:missing]] = True
    mask[order[~mask[order]][: problem.budget - int(mask.sum())]] = True
    return Solution(mask, Status.HEURISTIC, problem.upper_bound)
