"""The one verb of selection."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..circuit import Circuit, connected
from ..errors import unknown_name
from .greedy import solve_greedy
from .ilp import solve_ilp
from .problem import SelectionProblem
from .selection import Selection, Status
from .solution import Solution
from .top_n import solve_top_n

SOLVERS: dict[str, Callable[[SelectionProblem, float | None], Solution]] = {
    "top-n": solve_top_n,
    "greedy": solve_greedy,
    "ilp": solve_ilp,
}


def solve(problem: SelectionProblem, solver: str = "ilp", time_limit: float | None = None) -> Selection:
    """The circuit that `solver` chooses, pruned, with its objective, a proven bound and how it ended.

    A budget of 0 is the empty circuit and a budget of all edges the full one, for every solver.
    """
    if solver not in SOLVERS:
        raise unknown_name("solver", solver, list(SOLVERS))
    started = time.perf_counter()
    graph, budget = problem.graph, problem.budget
    if budget in (0, graph.n_edges):
        mask = np.full(graph.n_edges, budget > 0)
        solution = Solution(mask, Status.OPTIMAL, problem.objective(mask))
    else:
        solution = SOLVERS[solver](problem, time_limit)
    mask = connected(graph, solution.mask)
    return Selection(
        circuit=Circuit(graph, mask),
        solver=solver,
        status=solution.status,
        asked=budget,
        objective=problem.objective(mask),
        bound=solution.bound,
        seconds=time.perf_counter() - started,
    )
