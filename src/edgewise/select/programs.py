"""Linear and integer programs, given as arrays: relaxations with HiGHS, and branch and bound.

A general solver spends seconds on presolve, cuts and heuristics even if only a few columns are fractional. Branching on
those takes milliseconds, if each relaxation starts from its parent's basis. A column whose effect is unknown is tried
first (strong branching): both its sides are solved, and the column that lowers the bound most is taken.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from .base import Status

TOLERANCE = 1e-9
# A column this close to a whole number counts as integral.
INTEGRAL = 1e-7

# Columns tried per node of the tree, and how often a column is tried before its mean loss is relied on.
MAX_TRIED = 8
RELIABLE = 2

FloatArray = NDArray[np.float64]
Bounds = dict[int, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Program:
    """max cost . x  with  row_lower <= A x <= row_upper  and  lower <= x <= upper; A as (rows, columns, entries).

    priority  [column] columns of priority 0 are branched on last; of the others, the largest priority is tried first
    """

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    entries: FloatArray
    priority: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of HiGHS: `x` is None without a feasible point. An optimal one has row duals and a basis, too."""

    x: FloatArray | None
    row_dual: FloatArray | None
    basis: highspy.HighsBasis | None
    objective: float


def optimise(program: Program, seconds: float | None = None) -> Answer:
    """Solve the relaxation of a program within a time limit."""
    solver = open_solver(program)
    if seconds is not None:
        solver.setOptionValue("time_limit", max(seconds, 0.01))
    return read_answer(solver)


def open_solver(program: Program) -> highspy.Highs:
    """Return a solver with a program. It uses one thread, so that answers don't depend on the number of cores."""
    lp = highspy.HighsLp()
    n_columns = len(program.cost)
    lp.num_col_, lp.num_row_ = n_columns, len(program.row_lower)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    by_column = np.lexsort((program.rows, program.columns))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(program.columns[by_column], np.arange(n_columns + 1))
    lp.a_matrix_.index_, lp.a_matrix_.value_ = program.rows[by_column], program.entries[by_column]
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("threads", 1)
    for side in ("primal", "dual"):
        solver.setOptionValue(f"{side}_feasibility_tolerance", TOLERANCE)
    solver.passModel(lp)
    return solver


def read_answer(solver: highspy.Highs) -> Answer:
    """Run a solver and return its answer."""
    solver.run()
    info, solution = solver.getInfo(), solver.getSolution()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    # A solver that is stopped has duals, too, but not those of the optimum.
    is_optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return Answer(
        x=np.asarray(solution.col_value) if feasible else None,
        row_dual=np.asarray(solution.row_dual) if is_optimal else None,
        basis=solver.getBasis() if is_optimal else None,
        objective=info.objective_function_value,
    )


@dataclass(frozen=True, eq=False)
class Node:
    """A solved node of the search tree: bounds of some columns, its objective, its basis and its fractional columns.

    columns, values  [fraction] the fractional columns to branch on and their values
    """

    bounds: Bounds
    objective: float
    basis: highspy.HighsBasis
    columns: list[int]
    values: list[float]


@dataclass(frozen=True, eq=False)
class Search:
    """The best integral answer above the known objective, if any, and how the search ended.

    bound   no integral answer has a larger objective
    status  optimal: no integral answer is better than the best, or than the known objective if there is none
    """

    best: Answer | None
    bound: float
    status: Status


def is_integral(x: FloatArray) -> NDArray[np.bool_]:
    """Return whether the value of each column is a whole number."""
    return np.abs(x - np.rint(x)) <= INTEGRAL


def search_integers(program: Program, relaxed: Answer, known: float, deadline: float, work: float = np.inf) -> Search:
    """Return the best integral answer with an objective above `known`, given the answer to the relaxation.

    The search ends early at the deadline, or when it has solved relaxations of more than `work` rows in total.
    """
    assert relaxed.x is not None
    if is_integral(relaxed.x).all():
        return Search(relaxed if relaxed.objective > known else None, relaxed.objective, Status.OPTIMAL)
    return _Tree(program, relaxed, known, deadline, work).search()


class _Tree:
    """The state of a search: the solver, the open nodes, the best answer, and how much columns lowered the bound."""

    def __init__(self, program: Program, relaxed: Answer, known: float, deadline: float, work: float) -> None:
        self.program, self.known, self.deadline, self.work = program, known, deadline, work
        self.best: Answer | None = None
        self.rounding = TOLERANCE * max(1.0, abs(relaxed.objective))
        self.solver = open_solver(program)
        self.solver.setOptionValue("presolve", "off")  # it would discard the basis
        # Devex: the weights of steepest edge are computed anew for every basis, which takes longer than the iterations.
        self.solver.setOptionValue("simplex_dual_edge_weight_strategy", 1)
        self.solver_bounds: Bounds = {}
        # column: losses of the bound per unit, down and up
        self.losses: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self.nodes = [self._node({}, relaxed)]

    def search(self) -> Search:
        """Branch until no open node may have a better answer, or a limit is reached."""
        while True:
            self.nodes = [node for node in self.nodes if node.objective > self.known + self.rounding]
            if not self.nodes:
                return Search(self.best, self.known, Status.OPTIMAL)
            objectives = [node.objective for node in self.nodes]
            if self.work < 0 or time.perf_counter() > self.deadline:
                status = Status.WORK_LIMIT if self.work < 0 else Status.TIME_LIMIT
                return Search(self.best, max(objectives), status)
            # Depth first until there is a solution, then the node of the largest bound first.
            node = self.nodes.pop(-1 if self.best is None else int(np.argmax(objectives)))
            self.nodes += sorted(self._branch(node), key=lambda child: child.objective)

    def _branch(self, node: Node) -> list[Node]:
        """Return the open children of a node, for the column that lowers the bound most."""
        scores = np.array([self._score(*each) for each in zip(node.columns, node.values, strict=True)])
        untried = np.isnan(scores)
        mean = float(scores[~untried].mean()) if not untried.all() else 1.0
        expected = self.program.priority[node.columns] * (1 + np.abs(node.values - np.rint(node.values)))
        scores[untried] = mean * expected[untried]
        max_tried = 1 if self.known == -np.inf else MAX_TRIED  # a first solution matters more than a good column
        best_score, best, n_tried = -1.0, (-1, 0.0), 0
        best_children: list[Node] | None = None
        for place in np.argsort(-scores, kind="stable").tolist():
            column, value, score = node.columns[place], node.values[place], float(scores[place])
            children = None
            if len(self.losses[column]) < RELIABLE:
                if n_tried == max_tried or (n_tried and time.perf_counter() > self.deadline):
                    continue
                n_tried += 1
                children = self._children(node, column, value)
                if len(children) < 2:
                    return children
                score = self._score(column, value)
            if score > best_score:
                best_score, best, best_children = score, (column, value), children
        return self._children(node, *best) if best_children is None else best_children

    def _score(self, column: int, value: float) -> float:
        """Return how much branching on a column is expected to lower the bound; NaN if it was never tried."""
        if not self.losses[column]:
            return float("nan")
        share = value - np.floor(value)
        down, up = np.mean(self.losses[column], axis=0)
        return float(max(down * share, self.rounding) * max(up * (1 - share), self.rounding))

    def _children(self, node: Node, column: int, value: float) -> list[Node]:
        """Solve both sides of a column, keep the best answer, and return the sides that may have a better one."""
        low, high = node.bounds.get(column, (float(self.program.lower[column]), float(self.program.upper[column])))
        children, losses, floor = [], [], float(np.floor(value))
        # The largest loss that matters; without a known answer, that of a side without solution.
        most = node.objective - self.known if self.known > -np.inf else abs(node.objective) + 1.0
        for side, distance in (((low, floor), value - floor), ((floor + 1, high), floor + 1 - value)):
            bounds = node.bounds | {column: side}
            answer = self._solve(bounds, node.basis)
            is_open = answer.x is not None and answer.objective > self.known + self.rounding
            loss = most if answer.x is None else min(node.objective - answer.objective, most)
            losses.append(loss / distance)
            if answer.x is not None and is_open and is_integral(answer.x).all():
                self.best, self.known = answer, answer.objective
            elif is_open:
                children.append(self._node(bounds, answer))
        self.losses[column].append((losses[0], losses[1]))
        return children

    def _solve(self, bounds: Bounds, basis: highspy.HighsBasis) -> Answer:
        for column in self.solver_bounds.keys() - bounds.keys():
            self.solver.changeColBounds(column, float(self.program.lower[column]), float(self.program.upper[column]))
        for column, interval in bounds.items():
            if self.solver_bounds.get(column) != interval:
                self.solver.changeColBounds(column, *interval)
        self.solver_bounds = bounds
        self.solver.setBasis(basis)
        self.work -= len(self.program.row_lower)
        return read_answer(self.solver)

    def _node(self, bounds: Bounds, answer: Answer) -> Node:
        assert answer.x is not None and answer.basis is not None
        fractional = ~is_integral(answer.x)
        preferred = fractional & (self.program.priority > 0)
        columns = np.flatnonzero(preferred if preferred.any() else fractional)
        return Node(bounds, answer.objective, answer.basis, columns.tolist(), answer.x[columns].tolist())
