"""Solve linear and integer programs, given as arrays, with HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TOLERANCE = 1e-9
# A column this close to a whole number counts as integral.
INTEGRAL = 1e-7


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
    """The answer of HiGHS: `x` is None without a feasible point; a linear program has row duals and a basis, too."""

    x: FloatArray | None
    row_dual: FloatArray | None
    basis: highspy.HighsBasis | None
    objective: float
    is_optimal: bool


def optimise(program: Program, integer: bool = False, seconds: float | None = None) -> Answer:
    """Solve a program, over the reals or over the integers, within a time limit."""
    solver = open_solver(program, integer)
    if seconds is not None:
        solver.setOptionValue("time_limit", max(seconds, 0.01))
    return read_answer(solver)


def open_solver(program: Program, integer: bool = False) -> highspy.Highs:
    """Return a solver with a program. It uses one thread, so that answers don't depend on the number of cores."""
    solver = highspy.Highs()
    solver.silent()
    options: dict[str, float] = {
        "threads": 1,
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": TOLERANCE,
        "mip_feasibility_tolerance": TOLERANCE,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": TOLERANCE,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_as_lp(program, integer))
    return solver


def read_answer(solver: highspy.Highs) -> Answer:
    """Run a solver and return its answer."""
    solver.run()
    info, solution = solver.getInfo(), solver.getSolution()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    has_duals = feasible and bool(solution.dual_valid)
    return Answer(
        x=np.asarray(solution.col_value) if feasible else None,
        row_dual=np.asarray(solution.row_dual) if has_duals else None,
        basis=solver.getBasis() if has_duals else None,
        objective=info.objective_function_value,
        is_optimal=solver.getModelStatus() == highspy.HighsModelStatus.kOptimal,
    )


def _as_lp(program: Program, integer: bool) -> highspy.HighsLp:
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
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * n_columns
    return lp
