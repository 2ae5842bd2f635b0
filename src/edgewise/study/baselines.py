"""Random circuits as solvers, so that tables can show what chance achieves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..select import Greedy, SelectionProblem, Solution, Solver, Status
from ..verify.random_circuits import Rng, draw_circuit, draw_matched


@dataclass(frozen=True)
class RandomCircuits(Solver):
    """Choose a random circuit, whatever the values are: the union of random paths."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random circuit"
    seed: int = 0

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return a random circuit of the budget's size."""
        return _solution(problem, self.seed, lambda rng: draw_circuit(problem.graph, problem.budget, rng))


@dataclass(frozen=True)
class MatchedCircuits(Solver):
    """Choose the circuit of greedy selection, with random other heads of the same layers."""

    name: ClassVar[str] = "random-matched"
    title: ClassVar[str] = "Random, matched by kind and layer"
    seed: int = 0

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return greedy's circuit with its heads permuted within each layer."""
        chosen = Circuit(problem.graph, Greedy().solve(problem).mask).prune()
        return _solution(problem, self.seed, lambda rng: draw_matched(chosen, rng))


def _solution(problem: SelectionProblem, seed: int, draw: Callable[[Rng], Circuit]) -> Solution:
    """Return what is drawn, with the required edges and without surplus ones."""
    n_edges = problem.graph.n_edges
    mask: NDArray[np.bool_] = np.ones(n_edges, bool)
    if problem.budget < n_edges:
        rng = np.random.default_rng([seed, problem.budget])
        drawn = draw(rng).mask if problem.budget else ~mask
        surplus = np.flatnonzero(drawn & ~problem.required)[problem.budget - problem.n_required :]
        mask = drawn | problem.required
        mask[surplus] = False
    return Solution(mask, Status.HEURISTIC, problem.upper_bound)


BASELINES = (RandomCircuits, MatchedCircuits)
