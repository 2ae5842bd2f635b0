"""Selection: scores of all edges to the edges of a circuit. One problem, one file per solver, one verb."""

from .problem import RANKINGS, Infeasible, SelectionProblem, parse_edges
from .selection import Selection, Status
from .verb import SOLVERS, solve, solve_path

__all__ = [
    "RANKINGS",
    "SOLVERS",
    "Infeasible",
    "Selection",
    "SelectionProblem",
    "Status",
    "parse_edges",
    "solve",
    "solve_path",
]
