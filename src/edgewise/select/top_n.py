"""Top-n: the edges of the largest value; with PNR, positive edges first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Solution, Solver, Status
from .problem import SelectionProblem


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
