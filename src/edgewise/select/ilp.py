"""Integer linear programming: the circuit of the largest total value, proven (the paper's equations 2a-2g).

1. If the best edges are connected already, they are optimal.
2. Otherwise solve the linear relaxation of a reduced program (`reduced.py`), price all edges with its duals, move
   those that were put into the wrong state, repeat: a few rounds reach the optimum of the full relaxation.
3. It is nearly always integral, and then the proven optimum. Else solve the integer program over the same columns: its
   circuit is worth LB, the relaxation UB. An edge that is out can only be in a better circuit if its price is
   at least -(UB - LB), one that is sure can only be missing if its price is at most UB - LB. If there are such
   edges, offer them and solve again; if not, the circuit is optimal.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..core.circuit import connected
from ..errors import InputError
from .base import Solution, Solver
from .branch import search_integers
from .fill import fill_with_worthless, join_best
from .highs import Answer, FloatArray, optimise
from .problem import Infeasible, SelectionProblem
from .reduced import Bools, Reduction, reduce
from .selection import Effort, Status

# Edges offered at first on either side of the border between in and out.
WINDOW = 60
# Edges moved at most in one round, per node of the graph: those whose prices are most wrong.
MOVED = 1
# In units of the border's value: a price below this is rounding; one below that is close enough to move as well.
NEGLIGIBLE = 1e-7
NEARLY = 0.1
# What a positive edge too few costs, in units of the largest value, until it is too dear.
PENALTIES = (1e1, 1e4, 1e7)


@dataclass(frozen=True)
class Ilp(Solver):
    """The circuit of the largest total value, proven; with a time limit in seconds, the best one found by then."""

    name: ClassVar[str] = "ilp"
    title: ClassVar[str] = "ILP"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, not {self.time_limit}")

    def solve(self, problem: SelectionProblem) -> Solution:
        """An optimal circuit, or the best one found in time together with its bound.

        Of equally good circuits, one with as many edges as the budget allows.
        """
        return _solve(problem, time.perf_counter() + (np.inf if self.time_limit is None else self.time_limit))


def _solve(problem: SelectionProblem, deadline: float) -> Solution:
    mask = _best_edges(problem)
    if mask is not None:
        return Solution(fill_with_worthless(problem, mask), Status.OPTIMAL, problem.objective(mask))
    relaxed = _relax_strictly(problem, deadline)
    if relaxed is None:
        return Solution(join_best(problem), Status.TIME_LIMIT, problem.upper_bound)
    solution = _solve_integers(relaxed, deadline)
    return replace(solution, mask=fill_with_worthless(problem, solution.mask))


def _best_edges(problem: SelectionProblem) -> Bools | None:
    """The required and the best positive-valued edges, if they are a circuit that has enough positive edges."""
    mask = problem.required.copy()
    best = problem.optional_order[: problem.budget - problem.n_required]
    mask[best[problem.value[best] > 0]] = True
    if not mask.any() or int(problem.is_positive[mask].sum()) < problem.least_positive:
        return None
    return mask if np.array_equal(connected(problem.graph, mask), mask) else None


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The full relaxation, solved: its reduced program, its answer, the prices of all edges, the rounds it took."""

    sure: Bools
    offered: Bools
    reduction: Reduction
    answer: Answer
    prices: FloatArray
    rounds: int


def _relax_strictly(problem: SelectionProblem, deadline: float) -> Relaxation | None:
    """The optimum of the full relaxation, without a positive edge missing; None if time runs out before."""
    if not problem.least_positive:
        return _relax(problem, deadline, 0.0)
    for penalty in PENALTIES:
        relaxed = _relax(problem, deadline, penalty)
        if relaxed is None or relaxed.reduction.shortfall(relaxed.answer) <= NEGLIGIBLE:
            return relaxed
        if penalty == PENALTIES[0] and _most_positive(problem, deadline) is None:
            return None
    raise AssertionError("a circuit with enough positive edges exists, but the relaxation finds it too dear")


def _relax(problem: SelectionProblem, deadline: float, penalty: float) -> Relaxation | None:
    """The optimum of the relaxation over all edges, by moving edges whose price contradicts their state."""
    sure, offered = _first_states(problem)
    scale = _scale(problem)
    rounds = 0
    while time.perf_counter() < deadline:
        rounds += 1
        reduction = reduce(problem, sure, offered, scale, penalty)
        answer = optimise(reduction.program, seconds=_left(deadline))
        if answer.row_dual is None:
            return None
        prices = reduction.prices(answer)
        wrong = np.where(sure, -prices, np.where(offered, -np.inf, prices))
        wrong[problem.required] = -np.inf
        if wrong.max() <= NEGLIGIBLE:
            return Relaxation(sure, offered, reduction, answer, prices, rounds)
        # Those that are nearly wrong come along: the next round's duals will be a little different.
        moved = np.flatnonzero(wrong > -NEARLY)
        most = MOVED * problem.graph.n_nodes
        if len(moved) > most:
            moved = moved[np.argpartition(-wrong[moved], most)[:most]]
        sure, offered = sure.copy(), offered.copy()
        sure[moved], offered[moved] = False, True
    return None


def _first_states(problem: SelectionProblem) -> tuple[Bools, Bools]:
    """Which edges are sure and which offered at first: by rank, apart for positive and other edges where PNR binds."""
    order, room = problem.optional_order, problem.budget - problem.n_required
    # No more than there is room for: if that is too few, the problem is infeasible, which is for others to find.
    least = min(room, problem.least_positive - int(problem.is_positive[problem.required].sum()))
    if int(problem.is_positive[order[:room]].sum()) >= least:
        classes = [(order, room)]
    else:
        is_positive = problem.is_positive[order]
        classes = [(order[is_positive], least), (order[~is_positive], max(0, room - least))]
    sure, offered = problem.required.copy(), np.zeros(problem.graph.n_edges, bool)
    for order, count in classes:
        border = min(count, int(np.searchsorted(-problem.value[order], 0.0)))
        sure[order[: max(0, border - WINDOW)]] = True
        offered[order[max(0, border - WINDOW) : border + WINDOW]] = True
    return sure, offered & ~sure


def _scale(problem: SelectionProblem) -> float:
    """The border's value, so that tolerances mean the same for every model."""
    largest = float(np.abs(problem.value).max())
    border = float(np.abs(problem.value[problem.order[problem.budget - 1]]))
    # Nine orders below the largest value, a border is beyond any solver's precision, and what lies there hardly counts.
    return border if border > 1e-9 * largest else largest or 1.0


def _solve_integers(relaxed: Relaxation, deadline: float) -> Solution:
    """The optimal circuit: the relaxation's if it is one, else the best over the edges in doubt."""
    reduction, answer, sure, offered = relaxed.reduction, relaxed.answer, relaxed.sure, relaxed.offered
    problem = reduction.problem
    upper, best = reduction.objective(answer), None
    while True:
        effort = Effort(relaxed.rounds, len(reduction.program.cost))
        known = -np.inf if best is None else reduction.worth(best)
        search = search_integers(reduction.strict, answer, known, deadline)
        if search.best is not None:
            best = reduction.mask(search.best)
        if not search.is_proven:
            return Solution(join_best(problem) if best is None else best, Status.TIME_LIMIT, upper, effort)
        if best is None:  # the relaxation has enough positive edges, but no circuit of these columns has
            best = _most_positive(problem, deadline)
            if best is None:
                return Solution(join_best(problem), Status.TIME_LIMIT, upper, effort)
        gap = (upper - problem.objective(best)) / reduction.scale + NEGLIGIBLE
        doubtful = np.where(sure, relaxed.prices <= gap, ~offered & (relaxed.prices >= -gap)) & ~problem.required
        if search.best is answer or not doubtful.any():
            return Solution(best, Status.OPTIMAL, problem.objective(best), effort)
        sure, offered = sure & ~doubtful, offered | doubtful
        reduction = reduce(problem, sure, offered, reduction.scale)
        answer = optimise(reduction.strict)


def _most_positive(problem: SelectionProblem, deadline: float) -> Bools | None:
    """[edge] the circuit with the most positive edges, if it has enough; else the problem has no solution.

    None if time ran out before that was known.
    """
    counting = _solve(problem.with_value(problem.is_positive.astype(np.float64)), deadline)
    count = int((counting.mask & problem.is_positive).sum())
    if count >= problem.least_positive:
        return counting.mask
    if counting.status is not Status.OPTIMAL:
        return None
    raise Infeasible(problem, count)


def _left(deadline: float) -> float | None:
    """Seconds until the deadline, or None if there is none."""
    return None if deadline == np.inf else max(0.0, deadline - time.perf_counter())
