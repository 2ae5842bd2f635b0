"""The paper's integer program as it is written (equations 2a-2g), all edges, one constraint at a time, on HiGHS."""

from __future__ import annotations

import highspy
import numpy as np


def plain_optimum(problem) -> float | None:
    """The largest objective of any circuit, or None if there is no circuit."""
    graph = problem.graph
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
    scale = float(np.abs(problem.value).max()) or 1.0  # the solver's tolerances are absolute
    x = [solver.addBinary(obj=float(value) / scale) for value in problem.value]
    y = [solver.addBinary() for _ in range(graph.n_nodes)]
    tails, heads = graph.edge_source.tolist(), graph.edge_target.tolist()
    solver.addConstr(sum(x) <= problem.budget)  # 2b
    solver.addConstr(y[0] == 1)  # 2c
    solver.addConstr(y[-1] == 1)
    for edge, (u, v) in enumerate(zip(tails, heads, strict=True)):  # 2d
        solver.addConstr(x[edge] <= y[u])
        solver.addConstr(x[edge] <= y[v])
    for node in range(graph.n_nodes):  # 2e, 2f
        out = [x[edge] for edge, u in enumerate(tails) if u == node]
        into = [x[edge] for edge, v in enumerate(heads) if v == node]
        if out:
            solver.addConstr(sum(out) >= y[node])
        if into:
            solver.addConstr(sum(into) >= y[node])
    if problem.least_positive:  # 2g
        solver.addConstr(sum(x[edge] for edge in np.flatnonzero(problem.is_positive)) >= problem.least_positive)
    if problem.within is not None:
        for edge in np.flatnonzero(problem.within.mask):
            solver.addConstr(x[edge] == 1)
    solver.maximize()
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getObjectiveValue() * scale
