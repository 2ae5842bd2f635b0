"""The verbs of selection: one circuit, or one for every size of a curve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..core.circuit import Circuit, connected
from ..errors import InputError
from ..method import check_is
from .base import Solution, Solver
from .ilp import Ilp
from .problem import Infeasible, SelectionProblem
from .selection import Selection, Status

EXACT = Ilp()


def solve(problem: SelectionProblem, solver: Solver = EXACT, fill: bool = False) -> Selection:
    """The circuit that `solver` chooses, pruned, with its objective, a proven bound and how it ended.

    A budget of 0 is the empty circuit and a budget of all edges the full one, for every solver. With `fill`, a
    solver whose circuit shrinks when it is pruned is asked for more, until as many edges as possible are left.
    """
    check_is("solver", Solver, solver)
    started = time.perf_counter()
    graph, budget = problem.graph, problem.budget
    if budget in (0, graph.n_edges):
        mask = np.full(graph.n_edges, budget > 0)
        solution = Solution(mask, Status.OPTIMAL, problem.objective(mask))
    else:
        solution = _solved(problem, solver)
        if fill and int(solution.mask.sum()) < budget and solution.status is Status.HEURISTIC:
            solution = replace(solution, mask=_filled(problem, solver, solution.mask))
    return Selection(
        circuit=Circuit(graph, solution.mask),
        solver=solver.name,
        status=solution.status,
        asked=budget,
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
    """A circuit for every budget, in increasing order; what depends on the values alone is worked out once.

    With `nested`, each circuit contains the smaller ones; what that costs is in `free_objective`, that of the circuit
    which needn't. Where no circuit has as many positive edges as PNR asks, the most that can be are asked for, and
    `possible_pnr` says so.
    """
    if list(budgets) != sorted(budgets):
        raise InputError(f"the sizes of a path must increase, but {list(budgets)} were given")
    _ = problem.order  # so that every budget's problem shares it
    selections: list[Selection] = []
    for budget in budgets:
        selection = _nearest(problem.with_budget(budget), solver, fill)
        inner = selections[-1].circuit if selections and nested else None
        if inner is not None and not (inner.mask <= selection.circuit.mask).all():
            free = selection
            selection = _nearest(problem.with_budget(budget, inner), solver, fill)
            selection = replace(selection, seconds=selection.seconds + free.seconds)
            if selection.possible_pnr == free.possible_pnr:  # otherwise the two weren't asked for the same
                selection = replace(selection, free_objective=free.objective)
        selections.append(selection)
    return tuple(selections)


def _nearest(problem: SelectionProblem, solver: Solver, fill: bool) -> Selection:
    """The problem's circuit, or that of the nearest possible problem if too many positive edges are asked for."""
    try:
        return solve(problem, solver, fill)
    except Infeasible as error:
        return replace(solve(error.nearest, solver, fill), possible_pnr=error.nearest.pnr)


def _solved(problem: SelectionProblem, solver: Solver) -> Solution:
    """What a solver chooses, pruned; refuses what one of one's own mustn't choose."""
    found = solver.solve(problem)
    if not isinstance(found, Solution):
        raise InputError(f"solver {solver.name!r} must return a Solution, not {type(found).__name__}")
    mask, shape = found.mask, (problem.graph.n_edges,)
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != shape:
        kind = f"{mask.dtype} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise InputError(f"solver {solver.name!r} must give a mask of bool {shape}, not {kind}")
    if int(mask.sum()) > problem.budget or (problem.required & ~mask).any():
        raise InputError(
            f"solver {solver.name!r} chose {int(mask.sum())} edges, but at most {problem.budget} are asked for, "
            "the required ones among them"
        )
    return replace(found, mask=connected(problem.graph, mask))


def _filled(problem: SelectionProblem, solver: Solver, mask: np.ndarray) -> np.ndarray:
    """The pruned circuit of the largest request whose circuit, pruned, is within the budget; by halving."""
    budget = problem.budget
    fits, too_many = budget, problem.graph.n_edges
    while too_many - fits > 1:
        asked = (fits + too_many) // 2
        larger = _solved(problem.with_budget(asked, problem.within), solver).mask
        if int(larger.sum()) <= budget:
            fits, mask = asked, larger
        else:
            too_many = asked
    return mask
