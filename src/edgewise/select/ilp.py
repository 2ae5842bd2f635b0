"""Integer linear programming: the circuit of the largest total value, proven (the paper's equations 2a-2g)."""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np

from ..errors import InputError
from .model import build_model
from .problem import Infeasible, SelectionProblem
from .selection import Status
from .solution import Solution

TOLERANCE = 1e-9


def solve_ilp(problem: SelectionProblem, time_limit: float | None = None) -> Solution:
    """An optimal circuit, or the best one found within `time_limit` seconds together with its bound."""
    edges = np.arange(problem.graph.n_edges)
    # The k-th best value becomes 1, so that the solver's absolute tolerances mean the same for every model.
    scale = abs(problem.value[problem.order[problem.budget - 1]]) or np.abs(problem.value).max() or 1.0
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", TOLERANCE)
    solver.setOptionValue("mip_feasibility_tolerance", TOLERANCE)
    solver.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    if time_limit is not None:
        solver.setOptionValue("time_limit", time_limit)
    solver.passModel(build_model(problem, edges, scale))
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        raise Infeasible(problem, _most_positive(problem))
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise InputError(f"no circuit was found within {time_limit} s; allow more time with --time-limit")
    chosen = np.asarray(solver.getSolution().col_value)[: len(edges)] > 0.5
    mask = np.zeros(problem.graph.n_edges, bool)
    mask[edges[chosen]] = True
    if status == highspy.HighsModelStatus.kOptimal:
        return Solution(mask, Status.OPTIMAL, problem.objective(mask))
    return Solution(mask, Status.TIME_LIMIT, info.mip_dual_bound * scale)


def _most_positive(problem: SelectionProblem) -> int:
    """The largest number of positive edges in any circuit of the budget."""
    counting = replace(problem, value=problem.is_positive.astype(np.float64), pnr=None)
    return int((solve_ilp(counting).mask & problem.is_positive).sum())
