"""solve and solve_path: one circuit, or one for every size of a curve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from ..core.circuit import Circuit, connected
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics, summarise
from ..errors import InputError
from ..graph import BaseGraph, size_to_edges
from ..method import check_is
from .base import Infeasible, Selection, SelectionProblem, Solution, Solver, Status
from .ilp import Ilp

EXACT = Ilp()


def solve(
    source: EdgeScores | EdgeStatistics | Ranking | SelectionProblem,
    size: float | None = None,
    *,
    solver: Solver = EXACT,
    fill: bool = False,
    rank: str | None = None,
    pnr: float | None = None,
) -> Selection:
    """Select a circuit.

    Parameters
    ----------
    source
        Scores, statistics or a ranking of all edges; or a problem, which has its own budget and conditions.
    size
        A float is a share of the edges, an int a number of edges. 0 gives the empty circuit, 1.0 the full one. None
        takes the budget of a problem.
    solver
        The method.
    fill
        Give a solver whose circuit shrinks by pruning a larger budget, so that as many edges as possible are left.
    rank
        Whether edges are selected by their 'absolute' values (the default, for CMD) or by 'signed' ones (for CPR).
    pnr
        Least share of positive edges; None for no condition.

    Returns
    -------
    Selection
        The pruned circuit, its objective, a proven bound and how the solver ended.

    Raises
    ------
    Infeasible
        If no circuit has as many positive edges as PNR asks for.

    Examples
    --------
    >>> edgewise.solve(edgewise.score_edges(model, train), 0.05).circuit
    """
    check_is("solver", Solver, solver)
    problem = make_problem(source, size, rank, pnr)
    started = time.perf_counter()
    graph, budget = problem.graph, problem.budget
    if budget in (0, graph.n_edges):
        mask = np.full(graph.n_edges, budget > 0)
        solution = Solution(mask, Status.OPTIMAL, problem.objective(mask))
    else:
        solution = _solve_and_prune(problem, solver)
        if fill and int(solution.mask.sum()) < budget and solution.status is Status.HEURISTIC:
            # A bisection for the largest larger budget whose pruned circuit has at most `budget` edges.
            fits, too_many = budget, graph.n_edges
            while too_many - fits > 1:
                tried = (fits + too_many) // 2
                larger = _solve_and_prune(problem.with_budget(tried, problem.within), solver)
                if int(larger.mask.sum()) <= budget:
                    fits, solution = tried, replace(solution, mask=larger.mask)
                else:
                    too_many = tried
    least_positive = problem.least_positive
    return Selection(
        circuit=Circuit(graph, solution.mask),
        solver=solver.name,
        status=solution.status,
        n_requested=budget,
        objective=problem.objective(solution.mask),
        bound=solution.bound,
        seconds=time.perf_counter() - started,
        rounds=solution.rounds,
        columns=solution.columns,
        possible_pnr=least_positive / budget if problem.asked_positive > least_positive else None,
    )


def make_problem(source: object, size: float | None, rank: str | None, pnr: float | None) -> SelectionProblem:
    """Return a SelectionProblem from scores, statistics, a ranking or a problem."""
    if isinstance(size, bool) or not isinstance(size, Real | None):
        raise InputError(f"a size is a share of the edges (a float) or a number of edges (an int), not {size!r}")
    if isinstance(source, SelectionProblem):
        if rank is not None or pnr is not None:
            raise InputError("a problem has its own values and PNR; give rank and pnr with scores or a ranking")
        return source if size is None else source.with_budget(_n_edges(size, source.graph), source.within)
    if isinstance(source, EdgeScores):
        source = summarise(source)
    ranking = source.ranking if isinstance(source, EdgeStatistics) else source
    if not isinstance(ranking, Ranking):
        raise InputError(f"scores, a ranking or a problem is needed, not {type(source).__name__}")
    if size is None:
        raise InputError("give a size: a share of the edges, such as 0.05, or a number of edges, such as 100")
    return SelectionProblem.of(ranking, rank or "absolute", _n_edges(size, ranking.graph), pnr)


def _n_edges(size: float, graph: BaseGraph) -> int:
    if not isinstance(size, Integral) and not 0 <= size <= 1:
        raise InputError(
            f"a size is a share of the edges from 0 to 1, such as 0.05 for 5 %, or a number of edges as an int, such "
            f"as 100, not {size!r}"
        )
    return int(size) if isinstance(size, Integral) else size_to_edges(size, graph.n_edges)


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
        return solve(problem, solver=solver, fill=fill)
    except Infeasible as error:
        return replace(solve(error.nearest, solver=solver, fill=fill), possible_pnr=error.nearest.pnr)


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
