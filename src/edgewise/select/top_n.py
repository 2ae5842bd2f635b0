"""Top-n: the best edges by value, positive ones first as far as PNR asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Solution, Solver
from .problem import SelectionProblem
from .selection import Status


@dataclass(frozen=True)
class TopN(Solver):
    """The best edges, then pruned to those that connect."""

    name: ClassVar[str] = "top-n"
    title: ClassVar[str] = "Top-n"

    def solve(self, problem: SelectionProblem) -> Solution:
        """What is required, the best positive edges as far as PNR asks, then the best of the others."""
        order, mask = problem.optional_order, problem.required.copy()
        missing = max(0, problem.least_positive - int(problem.is_positive[mask].sum()))
        mask[order[problem.is_positive[order]][:missing]] = True
        mask[order[~mask[order]][: problem.budget - int(mask.sum())]] = True
        return Solution(mask, Status.HEURISTIC, problem.upper_bound)
