"""What a solver returns: a circuit, and how it got there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.circuit import Circuit


class Status(str, Enum):
    """How a solver ended; `advice` says what it means."""

    OPTIMAL = "optimal"
    HEURISTIC = "heuristic"
    TIME_LIMIT = "time-limit"

    @property
    def advice(self) -> str:
        """What the user should know or do."""
        return _ADVICE[self]


_ADVICE = {
    Status.OPTIMAL: "proven: no circuit of this size has a larger total value",
    Status.HEURISTIC: "a rule was followed; nothing is proven about better circuits (try --solver ilp)",
    Status.TIME_LIMIT: "the best circuit found in time; its gap says how far from optimal it may be",
}


@dataclass(frozen=True)
class Effort:
    """What a solver spent: rounds of the linear relaxation, and columns of the last program."""

    rounds: int = 0
    columns: int = 0


NO_EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class Selection:
    """A circuit and how the solver ended.

    circuit    pruned: every edge lies on a path from input to logits
    asked      the budget of edges; `kept` may be smaller
    objective  the total value of the circuit's edges; `bound` is proven to be at least the optimum's
    free_objective  of the circuit that needn't contain the smaller ones, where this one had to and differs
    possible_pnr    the share of positive edges that was possible, where the one asked for wasn't
    """

    circuit: Circuit
    solver: str
    status: Status
    asked: int
    objective: float
    bound: float
    seconds: float
    effort: Effort = NO_EFFORT
    free_objective: float | None = None
    possible_pnr: float | None = None

    @property
    def kept(self) -> int:
        """The number of edges in the circuit."""
        return self.circuit.n_edges

    @property
    def gap(self) -> float:
        """How far the objective may be from the optimum, relative to the bound."""
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-300)

    def __repr__(self) -> str:
        return f"Selection({self.kept:,} of {self.asked:,} edges by {self.solver}, {self.status.value})"

    def record(self) -> dict[str, Any]:
        """The outcome as plain data, for JSON."""
        return {
            "solver": self.solver,
            "edges_asked": self.asked,
            "edges_kept": self.kept,
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
        """The selection of a circuit that `record` came from."""
        return cls(
            circuit=circuit,
            solver=record["solver"],
            status=Status(record["status"]),
            asked=record["edges_asked"],
            effort=Effort(record["rounds"], record["columns"]),
            **{name: record[name] for name in ("objective", "bound", "seconds", "free_objective", "possible_pnr")},
        )
