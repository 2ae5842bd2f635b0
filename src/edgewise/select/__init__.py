"""Selection: from a ranking of all edges to a circuit. One file per solver; `run_solver` runs them."""

from .base import Selection, Solution, Solver, Status
from .greedy import Greedy
from .ilp import Ilp
from .problem import RANKINGS, Infeasible, SelectionProblem, parse_count, parse_share
from .run_solver import solve, solve_path
from .top_n import TopN

SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (TopN, Greedy, Ilp)}
