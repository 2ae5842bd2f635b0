"""Selection: from a ranking of all edges to a circuit. `run_solver` runs the solvers."""

from .base import RANKS, Infeasible, Selection, SelectionProblem, Solution, Solver, Status, parse_count, parse_share
from .heuristics import Greedy, TopN
from .ilp import Ilp
from .run_solver import solve, solve_path

SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (TopN, Greedy, Ilp)}
