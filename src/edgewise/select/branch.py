"""Branch and bound for programs whose relaxation is nearly integral.

A general solver spends seconds on presolve, cuts and heuristics even if only a few columns are fractional. Branching on
those takes milliseconds, if each relaxation starts from its parent's basis. A hard program is left to HiGHS, with all
columns fixed whose reduced cost shows that no better solution changes them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from .highs import TOLERANCE, Answer, FloatArray, Program, open_solver, optimise, read_answer

# A column this close to a whole number counts as integral.
INTEGRAL = 1e-7
MAX_NODES = 300


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the search tree: bounds of some columns, a bound on its objective, and a basis to start from."""

    bounds: dict[int, tuple[float, float]]
    bound: float
    basis: highspy.HighsBasis


@dataclass(frozen=True, eq=False)
class Search:
    """The best integral answer above the known objective, if any, and whether it is proven that none is better."""

    best: Answer | None
    is_proven: bool


def is_integral(x: FloatArray) -> NDArray[np.bool_]:
    """Return whether the value of each column is a whole number."""
    return np.abs(x - np.rint(x)) <= INTEGRAL


def search_integers(program: Program, relaxed: Answer, known: float, deadline: float) -> Search:
    """Return the best integral answer with an objective above `known`, given the answer to the relaxation."""
    assert relaxed.x is not None and relaxed.basis is not None
    if is_integral(relaxed.x).all():
        return Search(relaxed if relaxed.objective > known else None, True)
    solver = open_solver(program)
    solver.setOptionValue("presolve", "off")  # it would discard the basis
    nodes = [Node({}, relaxed.objective, relaxed.basis)]
    best: Answer | None = None
    current_bounds: dict[int, tuple[float, float]] = {}
    rounding = TOLERANCE * max(1.0, abs(relaxed.objective))
    for _ in range(MAX_NODES):
        nodes = [node for node in nodes if node.bound > known + rounding]
        if not nodes:
            return Search(best, True)
        if time.perf_counter() > deadline:
            return Search(best, False)
        # Depth first until there is a solution, then the node of the largest bound first.
        node = nodes.pop() if best is None else nodes.pop(int(np.argmax([open_node.bound for open_node in nodes])))
        _set_bounds(solver, program, current_bounds, node.bounds)
        current_bounds = node.bounds
        solver.setBasis(node.basis)
        answer = read_answer(solver)
        if answer.x is None or answer.objective <= known:
            continue
        if is_integral(answer.x).all():
            best, known = answer, answer.objective
            continue
        nodes += _children(program, node, answer)
    return _leave_to_highs(program, relaxed, best, known, deadline)


def _set_bounds(
    solver: highspy.Highs, program: Program, old: dict[int, tuple[float, float]], new: dict[int, tuple[float, float]]
) -> None:
    for column in old.keys() - new.keys():
        solver.changeColBounds(column, float(program.lower[column]), float(program.upper[column]))
    for column, bounds in new.items():
        if old.get(column) != bounds:
            solver.changeColBounds(column, *bounds)


def _children(program: Program, parent: Node, answer: Answer) -> list[Node]:
    """Branch on the most fractional column; ties go to the last, which is a node of the graph rather than an edge."""
    assert answer.x is not None and answer.basis is not None
    distance = np.abs(answer.x - np.rint(answer.x))
    column = int(np.flatnonzero(distance >= distance.max() - INTEGRAL)[-1])
    value = float(answer.x[column])
    low, high = parent.bounds.get(column, (float(program.lower[column]), float(program.upper[column])))
    sides = [(low, float(np.floor(value))), (float(np.ceil(value)), high)]
    return [Node(parent.bounds | {column: side}, answer.objective, answer.basis) for side in sides]


def _leave_to_highs(program: Program, relaxed: Answer, best: Answer | None, known: float, deadline: float) -> Search:
    assert relaxed.x is not None and relaxed.column_dual is not None
    gap = relaxed.objective - known + INTEGRAL
    settled = is_integral(relaxed.x) & (np.abs(relaxed.column_dual) > gap)
    left = None if deadline == np.inf else deadline - time.perf_counter()
    answer = optimise(program.fix_columns(relaxed.x, settled), integer=True, seconds=left)
    if answer.x is not None and answer.objective > known:
        best = answer
    return Search(best, answer.is_optimal or answer.is_infeasible)
