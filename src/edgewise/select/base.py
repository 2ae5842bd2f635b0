"""The base class of solvers, and what selection returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..method import TitledMethod
from .problem import SelectionProblem


class Status(str, Enum):
    """How a solver ended."""

    OPTIMAL = "optimal"
    HEURISTIC = "heuristic"
    TIME_LIMIT = "time-limit"
    WORK_LIMIT = "work-limit"

    @property
    def is_limit(self) -> bool:
        """Whether the solver reached a limit before it proved its circuit optimal."""
        return self in (Status.TIME_LIMIT, Status.WORK_LIMIT)

    @property
    def advice(self) -> str:
        """What it means for the user."""
        return _ADVICE[self]


_ADVICE = {
    Status.OPTIMAL: "proven: no circuit of this size has a larger total value",
    Status.HEURISTIC: "heuristic: a better circuit may exist; the solver ilp finds the best and proves it",
    Status.TIME_LIMIT: "the best circuit found in time; its gap says how far from optimal it may be",
    Status.WORK_LIMIT: "the best circuit found within a limit of work; its gap says how far from optimal it may be",
}


@dataclass(frozen=True)
class Effort:
    """The work of a solver: rounds of the linear relaxation, and columns of the last program."""

    rounds: int = 0
    columns: int = 0


NO_EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class Selection:
    """A selected circuit and how the solver ended.

    circuit         pruned: every edge lies on a path from input to logits
    n_requested     the budget of edges; `n_kept`, the number of edges of the circuit, may be smaller
    objective       the total value of the circuit's edges; the optimum is at most `bound`
    free_objective  the objective without the condition of nested circuits, if that changed the circuit
    possible_pnr    the largest possible share of positive edges, if PNR asked for more
    """

    circuit: Circuit
    solver: str
    status: Status
    n_requested: int
    objective: float
    bound: float
    seconds: float
    effort: Effort = NO_EFFORT
    free_objective: float | None = None
    possible_pnr: float | None = None

    @property
    def n_kept(self) -> int:
        """The number of edges in the circuit."""
        return self.circuit.n_edges

    @property
    def gap(self) -> float:
        """How far the objective may be from the optimum, relative to the bound."""
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-300)

    def __repr__(self) -> str:
        size = f"{self.n_kept:,} of {self.n_requested:,} {self.circuit.graph.units}"
        return f"Selection({size} by {self.solver}, {self.status.value})"

    def record(self) -> dict[str, Any]:
        """Return the selection, without the circuit, as plain data for JSON."""
        return {
            "solver": self.solver,
            "edges_asked": self.n_requested,
            "edges_kept": self.n_kept,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status.value,
            "seconds": self.seconds,
            "rounds": self.effort.rounds,
            "columns": self.effort.columns,
            "free_objective": self.free_objective,
            "possible_pnr": self.possible_pnr,
        }

    @classmethod
    def from_record(cls, circuit: Circuit, record: Mapping[str, Any]) -> Selection:
        """Return the selection that `record` describes."""
        return cls(
            circuit=circuit,
            solver=record["solver"],
            status=Status(record["status"]),
            n_requested=record["edges_asked"],
            effort=Effort(record["rounds"], record["columns"]),
            **{name: record[name] for name in ("objective", "bound", "seconds", "free_objective", "possible_pnr")},
        )


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver returns.

    mask   [edge] the chosen edges, not yet pruned
    bound  no circuit of this problem has a larger objective
    """

    mask: NDArray[np.bool_]
    status: Status
    bound: float
    effort: Effort = NO_EFFORT

    def __repr__(self) -> str:
        return f"Solution({int(self.mask.sum()):,} of {len(self.mask):,} edges, {self.status.value})"


class Solver(TitledMethod, ABC):
    """A way to choose edges. Derive from it for a custom solver. The function `solve` prunes what it chooses."""

    @abstractmethod
    def solve(self, problem: SelectionProblem) -> Solution:
        """Return at most `budget` edges, the required ones among them."""
