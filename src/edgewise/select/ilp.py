"""Integer linear programming: the circuit of the largest total value, proven (the paper's equations 2a-2g).

1. If the best edges form a circuit, they are optimal.
2. Otherwise solve the linear relaxation of a reduced program (`reduced.py`). Compute the reduced cost ("price") of all
   edges from its duals, move edges that are in the wrong state, and repeat. A few rounds reach the optimum of the full
   relaxation.
3. It is nearly always integral, and then the proven optimum. Otherwise search the integer program over the same
   columns (`programs.py`) for a good circuit. It has the value LB, the relaxation UB. An edge that is out can only be
   in a better circuit if its price is at least -(UB - LB), an edge that is sure can only be missing if its price is at
   most UB - LB, and an unused node can only be used if its slack is at most UB - LB.
4. Search the program of all these edges for the best circuit. The search ends after a fixed amount of work, the same on
   every machine, with the best circuit so far and a bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import connected
from ..errors import InputError, check_number
from .base import Infeasible, SelectionProblem, Solution, Solver, Status
from .programs import Answer, optimise, search_integers
from .reduced import Bools, Prices, Reduction, reduce_problem

# Edges offered at first on each side of the border between selected and other edges.
WINDOW = 60
# The largest number of edges moved in one round, out of each node and into each node.
MAX_MOVED = 2
# In units of the border's value (`_relax`): a price may contradict its edge's state by NEGLIGIBLE, which is rounding.
# Edges within NEARLY of a contradiction are offered, too.
NEGLIGIBLE = 1e-7
NEARLY = 0.1
# A number of missing positive edges up to this is 0 with rounding.
MAX_SHORTFALL = 1e-7
# Limits of the searches, as rows of all relaxations solved: one to find a good circuit, one to prove the best. A second
# solves some 500,000 rows.
FIRST_WORK, WORK = 1e7, 5e7
# Penalty per missing positive edge, in units of the largest value; raised until the solution is feasible.
PENALTIES = (1e1, 1e4, 1e7)


@dataclass(frozen=True)
class Ilp(Solver):
    """The circuit of the largest total value, proven; for a few hard rankings, the best one within a limit of work.

    With a time limit in seconds, the best circuit so far.
    """

    name: ClassVar[str] = "ilp"
    title: ClassVar[str] = "ILP"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit)
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, not {self.time_limit}")

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return an optimal circuit, or the best one within the limits, and a bound.

        Edges of value 0 are added to it, up to the budget.
        """
        return _solve(problem, time.perf_counter() + (np.inf if self.time_limit is None else self.time_limit))


def _solve(problem: SelectionProblem, deadline: float) -> Solution:
    mask = problem.required.copy()
    best = problem.optional_order[: problem.budget - problem.n_required]
    mask[best[problem.value[best] > 0]] = True
    has_enough = mask.any() and int(problem.is_positive[mask].sum()) >= problem.least_positive
    if has_enough and np.array_equal(connected(problem.graph, mask), mask):
        return Solution(fill_with_zero_edges(problem, mask), Status.OPTIMAL, problem.objective(mask))
    relaxed = _relax_strictly(problem, deadline)
    if relaxed is None:
        return Solution(connect_best_edges(problem), _reached_limit(deadline), problem.upper_bound)
    solution = _solve_integers(relaxed, deadline)
    return replace(solution, mask=fill_with_zero_edges(problem, solution.mask))


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The solved full relaxation: its reduced program, its answer, the prices of all edges, the number of rounds."""

    sure: Bools
    reduction: Reduction
    answer: Answer
    prices: Prices
    rounds: int


def _relax_strictly(problem: SelectionProblem, deadline: float) -> Relaxation | None:
    """Solve the full relaxation with enough positive edges. Return None if a limit is reached."""
    if not problem.least_positive:
        return _relax(problem, deadline, 0.0)
    for penalty in PENALTIES:
        relaxed = _relax(problem, deadline, penalty)
        # The last column counts missing positive edges.
        if relaxed is None or relaxed.answer.x is None or relaxed.answer.x[-1] <= MAX_SHORTFALL:
            return relaxed
        if penalty == PENALTIES[0] and _most_positive(problem, deadline) is None:
            return None
    raise AssertionError("a circuit with enough positive edges exists, but the relaxation doesn't reach it")


def _relax(problem: SelectionProblem, deadline: float, penalty: float) -> Relaxation | None:
    """Solve the relaxation over all edges: move edges whose price contradicts their state until there are none."""
    sure, offered = _first_states(problem)
    source, target = problem.graph.edge_source, problem.graph.edge_target
    # All tolerances are in units of the value at the border between selected and other edges. A border below 1e-9 of
    # the largest value is beyond the precision of any solver, and hardly counts.
    largest = float(np.abs(problem.value).max())
    border = float(np.abs(problem.value[problem.order[problem.budget - 1]]))
    scale = border if border > 1e-9 * largest else largest or 1.0
    rounds = 0
    while time.perf_counter() < deadline:
        rounds += 1
        reduction = reduce_problem(problem, sure, offered, scale, penalty)
        answer = optimise(reduction.program, seconds=_left(deadline))
        if answer.row_dual is None:
            return None
        prices = reduction.prices(answer)
        wrong = np.where(sure, -prices.edge, np.where(reduction.is_column, -np.inf, prices.edge))
        wrong[problem.required | ~prices.used[source] | ~prices.used[target]] = -np.inf
        if wrong.max() <= NEGLIGIBLE:
            return Relaxation(sure, reduction, answer, prices, rounds)
        # Move the nearly wrong ones, too: the duals of the next round will be a little different.
        moved = np.flatnonzero(wrong > -NEARLY)
        moved = moved[np.argsort(-wrong[moved], kind="stable")]
        moved = moved[(_place(source[moved]) < MAX_MOVED) | (_place(target[moved]) < MAX_MOVED)]
        sure, offered = sure.copy(), offered.copy()
        sure[moved], offered[moved] = False, True
    return None


def _place(keys: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return for each key how many equal keys are before it."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    place = np.empty(len(keys), np.intp)
    place[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return place


def _first_states(problem: SelectionProblem) -> tuple[Bools, Bools]:
    """Return which edges are sure and offered at first: by rank, separately for positive edges if PNR binds."""
    order, room = problem.optional_order, problem.budget - problem.n_required
    # At most as many as there is room for. If that is too few, `_most_positive` finds that the problem is infeasible.
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


def _solve_integers(relaxed: Relaxation, deadline: float) -> Solution:
    """Return the optimal circuit: the relaxation's if it is integral, else the best over the edges in doubt."""
    reduction, problem = relaxed.reduction, relaxed.reduction.problem
    upper, effort = reduction.objective(relaxed.answer), (relaxed.rounds, len(reduction.program.cost))
    search = search_integers(reduction.strict, relaxed.answer, -np.inf, deadline, FIRST_WORK)
    if search.best is relaxed.answer:
        mask = reduction.mask(search.best)
        return Solution(mask, Status.OPTIMAL, problem.objective(mask), *effort)
    best: Bools | None
    if search.best is not None:
        best = reduction.mask(search.best)
    else:
        best = connect_best_edges(problem)
        if int(problem.is_positive[best].sum()) < problem.least_positive:
            best = _most_positive(problem, deadline)
    if best is None:
        return Solution(connect_best_edges(problem), _reached_limit(deadline), upper, *effort)
    old_columns = reduction.is_column
    reduction = _reopen(relaxed, (upper - problem.objective(best)) / reduction.scale + NEGLIGIBLE)
    if search.best is not None and search.status is Status.OPTIMAL and (reduction.is_column <= old_columns).all():
        return Solution(best, Status.OPTIMAL, problem.objective(best), *effort)
    effort = relaxed.rounds, len(reduction.program.cost)
    answer = optimise(reduction.strict, seconds=_left(deadline))
    if answer.row_dual is None or time.perf_counter() > deadline:
        return Solution(best, Status.TIME_LIMIT, upper, *effort)
    search = search_integers(reduction.strict, answer, reduction.worth(best), deadline, WORK)
    if search.best is not None:
        best = reduction.mask(search.best)
    if search.status is Status.OPTIMAL:
        return Solution(best, Status.OPTIMAL, problem.objective(best), *effort)
    bound = search.bound * reduction.scale + problem.objective(reduction.parts.fixed)
    return Solution(best, search.status, min(upper, bound), *effort)


def _reopen(relaxed: Relaxation, gap: float) -> Reduction:
    """Return the program of all edges that a circuit within `gap` of the relaxation may have or lack."""
    problem, sure, price = relaxed.reduction.problem, relaxed.sure, relaxed.prices.edge
    # How far the bound of a circuit that uses both ends of an edge is above the best circuit.
    left = gap - relaxed.prices.slack[problem.graph.edge_source] - relaxed.prices.slack[problem.graph.edge_target]
    is_sure = (sure & (left >= 0) & (price > left)) | problem.required
    is_out = ((left < 0) | (~sure & (price < -left))) & ~problem.required
    return reduce_problem(problem, is_sure, ~is_out & ~is_sure, relaxed.reduction.scale, excluded=is_out)


def _most_positive(problem: SelectionProblem, deadline: float) -> Bools | None:
    """Return the circuit [edge] with the most positive edges, or None if a limit is reached.

    Raise Infeasible if it has too few.
    """
    counting = _solve(replace(problem, value=problem.is_positive.astype(np.float64), pnr=None), deadline)
    count = int((counting.mask & problem.is_positive).sum())
    if count >= problem.least_positive:
        return counting.mask
    if counting.status is not Status.OPTIMAL:
        return None
    raise Infeasible(problem, count)


def _reached_limit(deadline: float) -> Status:
    return Status.TIME_LIMIT if time.perf_counter() > deadline else Status.WORK_LIMIT


def _left(deadline: float) -> float | None:
    """Return the seconds until the deadline, or None if there is none."""
    return None if deadline == np.inf else max(0.0, deadline - time.perf_counter())


def fill_with_zero_edges(problem: SelectionProblem, mask: Bools) -> Bools:
    """Return the circuit [edge] with edges of value 0 added, in edge order, up to the budget.

    Edges that failed the bootstrap filter have value 0. They are chosen last; the integer program ignores them. When
    there are none left between used nodes, another node is added, with one edge in and one out.
    """
    graph = problem.graph
    left = np.flatnonzero((problem.value == 0) & ~mask)
    room = problem.budget - int(mask.sum())
    if not room or not len(left):
        return mask
    mask = mask.copy()
    used = graph.used_nodes(mask)
    used[[0, -1]] = True
    while room and len(left):
        source, target = graph.edge_source[left], graph.edge_target[left]
        chosen = np.flatnonzero(used[source] & used[target])[:room]
        if not len(chosen):
            into, out_of = used[source] & ~used[target], ~used[source] & used[target]
            joining = np.intersect1d(target[into], source[out_of])
            if not len(joining) or room < 2:
                break
            node = joining[0]
            chosen = np.array([np.argmax(into & (target == node)), np.argmax(out_of & (source == node))])
            used[node] = True
        mask[left[chosen]] = True
        room -= len(chosen)
        left = np.delete(left, chosen)
    return mask


def connect_best_edges(problem: SelectionProblem) -> Bools:
    """Return some circuit [edge] within the budget: the best edges, the positive edges that PNR asks for first.

    Their nodes are connected directly to input and logits. A bisection finds how many edges fit.
    """
    order = problem.optional_order
    positive = order[problem.is_positive[order]][: problem.least_positive]
    by_priority = np.concatenate([positive, order[~np.isin(order, positive)]]) if len(positive) else order
    fits, too_many = 0, problem.budget + 1
    while too_many - fits > 1:
        tried = (fits + too_many) // 2
        size = int(_connect(problem, by_priority[:tried]).sum())
        fits, too_many = (tried, too_many) if size <= problem.budget else (fits, tried)
    return _connect(problem, by_priority[:fits])


def _connect(problem: SelectionProblem, edges: NDArray[np.intp]) -> Bools:
    """Return the required and these edges [edge], and direct edges to and from every node that has none."""
    graph = problem.graph
    mask = problem.required.copy()
    mask[edges] = True
    has_in, has_out = np.zeros((2, graph.n_nodes), bool)
    has_in[0] = has_out[-1] = True
    has_in[graph.edge_target[mask]] = has_out[graph.edge_source[mask]] = True
    touched = has_in | has_out
    needs_in, needs_out = np.flatnonzero(touched & ~has_in), np.flatnonzero(touched & ~has_out)
    # The connectors have one edge from input to every node, and one from every node to logits.
    source, target = graph.edge_source[problem.connectors], graph.edge_target[problem.connectors]
    joins_in = (source == 0) & np.isin(target, needs_in)
    joins_out = np.isin(source, needs_out) & (target == graph.n_nodes - 1)
    mask[problem.connectors[joins_in | joins_out]] = True
    return mask
