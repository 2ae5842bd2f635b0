"""solve and solve_path: one circuit, or one for every size of a curve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..core.circuit import Circuit, connected
from ..errors import InputError
from ..method import check_is
from .base import Selection, Solution, Solver, Status
from .ilp import Ilp
from .problem import Infeasible, SelectionProblem

EXACT = Ilp()


def solve(problem: SelectionProblem, solver: Solver = EXACT, fill: bool = False) -> Selection:
    """Select a circuit.

    Parameters
    ----------
    problem
        Values, budget and conditions. A budget of 0 gives the empty circuit, one of all edges the full circuit.
    solver
        The method.
    fill
        Give a solver whose circuit shrinks by pruning a larger budget, so that as many edges as possible are left.

    Returns
    -------
    Selection
        The pruned circuit, its objective, a proven bound and how the solver ended.

    Raises
    ------
    Infeasible
        If no circuit has as many positive edges as PNR asks for.
    """
    check_is("solver", Solver, solver)
    started = time.perf_counter()
    graph, budget = problem.graph, problem.budget
    if budget in (0, graph.n_edges):
        mask = np.full(graph.n_edges, budget > 0)
        solution = Solution(mask, Status.OPTIMAL, problem.objective(mask))
    else:
        solution = _solve_and_prune(problem, solver)
        if fill and int(solution.mask.sum()) < budget and solution.status is Status.HEURISTIC:
            solution = replace(solution, mask=_solve_larger(problem, solver, solution.mask))
    return Selection(
        circuit=Circuit(graph, solution.mask),
        solver=solver.name,
        status=solution.status,
        n_requested=budget,
        objective=problem.objective(solution.mask),
        bound=solution.bound,
        seconds=time.perf_counter() - started,
        effort=solution.effort,
        possible_pnr=problem.least_positive / budget if problem.lacks_positive else None,
    )


def solve_path(
    problem: SelectionProblem,
    budgets: Sequence[int],
    solver: Solver = EXACT,
    fill: bool = False,
    nested: bool = False,
) -> tuple[Selection, ...]:
    """Select a circuit for every budget. The budgets must increase.

    With `nested`, each circuit contains the smaller ones; `free_objective` is the objective without this condition.
    Where no circuit has as many positive edges as PNR asks for, the largest possible share is used instead, and
    `possible_pnr` is that share.

    Parameters
    ----------
    problem
        Which edges to choose from. Its own budget is ignored.
    budgets
        Numbers of edges.
    solver, fill
        As in `solve`.
    nested
        Whether each circuit must contain the smaller ones.

    Returns
    -------
    tuple of Selection
        One per budget.
    """
    if list(budgets) != sorted(budgets):
        raise InputError(f"the sizes of a path must increase, but {list(budgets)} were given")
    _ = problem.order  # computed once: the problems of all budgets share it
    selections: list[Selection] = []
    for budget in budgets:
        selection = _solve_possible(problem.with_budget(budget), solver, fill)
        inner = selections[-1].circuit if selections and nested else None
        if inner is not None and not (inner.mask <= selection.circuit.mask).all():
            free = selection
            selection = _solve_possible(problem.with_budget(budget, inner), solver, fill)
            selection = replace(selection, seconds=selection.seconds + free.seconds)
            if selection.possible_pnr == free.possible_pnr:  # otherwise the two have different conditions
                selection = replace(selection, free_objective=free.objective)
        selections.append(selection)
    return tuple(selections)


def _solve_possible(problem: SelectionProblem, solver: Solver, fill: bool) -> Selection:
    """Select a circuit, with the largest possible PNR if the problem's is impossible."""
    try:
        return solve(problem, solver, fill)
    except Infeasible as error:
        return replace(solve(error.nearest, solver, fill), possible_pnr=error.nearest.pnr)


def _solve_and_prune(problem: SelectionProblem, solver: Solver) -> Solution:
    """Return the pruned solution. Raise InputError if a custom solver returns an invalid one."""
    solution = solver.solve(problem)
    if not isinstance(solution, Solution):
        raise InputError(f"solver {solver.name!r} must return a Solution, not {type(solution).__name__}")
    mask, shape = solution.mask, (problem.graph.n_edges,)
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != shape:
        kind = f"{mask.dtype} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise InputError(f"solver {solver.name!r} must give a mask of bool {shape}, not {kind}")
    if int(mask.sum()) > problem.budget or (problem.required & ~mask).any():
        raise InputError(
            f"solver {solver.name!r} chose {int(mask.sum())} edges, but at most {problem.budget} are asked for, "
            "the required ones among them"
        )
    return replace(solution, mask=connected(problem.graph, mask))


def _solve_larger(problem: SelectionProblem, solver: Solver, mask: np.ndarray) -> np.ndarray:
    """Return the pruned circuit of the largest larger budget that has at most `budget` edges, by bisection."""
    budget = problem.budget
    fits, too_many = budget, problem.graph.n_edges
    while too_many - fits > 1:
        larger_budget = (fits + too_many) // 2
        larger_mask = _solve_and_prune(problem.with_budget(larger_budget, problem.within), solver).mask
        if int(larger_mask.sum()) <= budget:
            fits, mask = larger_budget, larger_mask
        else:
            too_many = larger_budget
    return mask
