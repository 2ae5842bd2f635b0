"""Selection: a ranking of all edges to the edges of a circuit. One problem, one file per solver, one verb."""

from .base import Solution, Solver
from .greedy import Greedy
from .ilp import Ilp
from .problem import RANKINGS, Infeasible, SelectionProblem, parse_edges
from .run_solver import solve, solve_path
from .selection import Selection, Status
from .top_n import TopN

SOLVERS: dict[str, type[Solver]] = {one.name: one for one in (TopN, Greedy, Ilp)}
