"""Branch and bound for programs whose relaxation is nearly integral.

A general solver spends seconds on presolve, cuts and heuristics where a handful of columns are fractional. Branching
on those, each relaxation started from its parent's basis, takes milliseconds. A program that turns out hard goes to
HiGHS after all, with every column held whose reduced cost says that no better solution moves it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from .highs import TOLERANCE, Answer, FloatArray, Program, open_solver, optimise, read_answer

# How far from a whole number a column may be and still count as one.
INTEGRAL = 1e-7
MOST_NODES = 300


@dataclass(frozen=True, eq=False)
class Node:
    """A part of the search: bounds of some columns, what it can be worth at most, and a basis to start from."""

    bounds: dict[int, tuple[float, float]]
    bound: float
    basis: highspy.HighsBasis


@dataclass(frozen=True, eq=False)
class Search:
    """The best integral answer found, if any beat what was known, and whether it is proven that none is better."""

    best: Answer | None
    is_proven: bool


def is_integral(x: FloatArray) -> NDArray[np.bool_]:
    """[column] whether its value is a whole number."""
    return np.abs(x - np.rint(x)) <= INTEGRAL


def search_integers(program: Program, relaxed: Answer, known: float, deadline: float) -> Search:
    """The best integral answer of a program that is worth more than `known`, from the answer to its relaxation."""
    assert relaxed.x is not None and relaxed.basis is not None
    if is_integral(relaxed.x).all():
        return Search(relaxed if relaxed.objective > known else None, True)
    solver = open_solver(program)
    solver.setOptionValue("presolve", "off")  # it would throw the basis away
    nodes = [Node({}, relaxed.objective, relaxed.basis)]
    best: Answer | None = None
    in_force: dict[int, tuple[float, float]] = {}
    rounding = TOLERANCE * max(1.0, abs(relaxed.objective))
    for _ in range(MOST_NODES):
        nodes = [node for node in nodes if node.bound > known + rounding]
        if not nodes:
            return Search(best, True)
        if time.perf_counter() > deadline:
            return Search(best, False)
        # Straight down until there is a solution, then always where most can be gained.
        here = nodes.pop() if best is None else nodes.pop(int(np.argmax([node.bound for node in nodes])))
        _set_bounds(solver, program, in_force, here.bounds)
        in_force = here.bounds
        solver.setBasis(here.basis)
        answer = read_answer(solver)
        if answer.x is None or answer.objective <= known:
            continue
        if is_integral(answer.x).all():
            best, known = answer, answer.objective
            continue
        nodes += _children(program, here, answer)
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
    """Both sides of the most fractional column; the last one, a node rather than an edge, of equals."""
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
    answer = optimise(program.held_at(relaxed.x, settled), integer=True, seconds=left)
    if answer.x is not None and answer.objective > known:
        best = answer
    return Search(best, answer.is_optimal or answer.is_infeasible)
