"""What solvers take and return: SelectionProblem, Solution and Selection; and the base class of solvers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking, check_finite
from ..errors import InputError, unknown_name
from ..graph import BaseGraph, frozen
from ..method import TitledMethod

RANKS = ("signed", "absolute")
COUNT = re.compile("[0-9]{1,20}")
# A whole number, a decimal or a fraction. Their length is limited: an exponent of nine digits would take very long.
NUMBER = re.compile(r"\+?([0-9]{1,20}/[0-9]{1,20}|([0-9]{1,20}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?)")


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """Choose at most `budget` edges that form a circuit, of the largest total value.

    If the budget allows an edge, the best circuit has at least one, even if all values are negative.

    value        [edge] the signed score (for CPR) or the absolute score (for CMD)
    is_positive  [edge] the sign of the signed score, before any absolute value
    pnr          the least share of positive edges in the budget; None for no condition
    within       a smaller circuit that the circuit must contain; None for no condition
    """

    graph: BaseGraph
    value: NDArray[np.float64]
    is_positive: NDArray[np.bool_]
    budget: int
    pnr: float | None = None
    within: Circuit | None = None

    def __post_init__(self) -> None:
        n_edges = self.graph.n_edges
        if not isinstance(self.budget, Integral):
            raise InputError(f"the budget is a whole number of edges, but {self.budget!r} was given")
        values = {"value": frozen(self.value), "is_positive": frozen(self.is_positive), "budget": int(self.budget)}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        for name in ("value", "is_positive"):
            if (shape := getattr(self, name).shape) != (n_edges,):
                raise InputError(f"{name} has shape {shape}, but the graph has {self.graph.count(n_edges)}")
        check_finite(self.graph, "values of a selection problem", self.value)
        if not 0 <= self.budget <= n_edges:
            raise InputError(f"the budget is {self.budget} edges, but must lie between 0 and the graph's {n_edges}")
        if self.pnr is not None and not 0 <= self.pnr <= 1:
            raise InputError(f"PNR is a share of the edges, from 0 to 1, but {self.pnr} was given")
        if self.within is not None and self.within.graph != self.graph:
            raise InputError(f"a circuit of {self.graph} can't contain one of {self.within.graph}; give the same graph")
        if self.within is not None and self.within.n_edges > self.budget:
            raise InputError(f"a circuit of {self.budget} edges can't contain one of {self.within.n_edges} edges")

    @classmethod
    def of(cls, ranking: Ranking, rank: str, budget: int, pnr: float | None = None) -> SelectionProblem:
        """Return the problem of a ranking, by its 'signed' or its 'absolute' values."""
        if not isinstance(ranking, Ranking):
            raise InputError(f"a ranking is needed, not {type(ranking).__name__}; statistics have one: .ranking")
        if rank not in RANKS:
            raise unknown_name("rank", rank, RANKS)
        if pnr is not None and not ranking.signed:
            raise InputError("PNR asks for a share of positive edges, but this ranking has no signs; leave PNR out")
        value = ranking.value.astype(np.float64, copy=False)
        value = np.abs(value) if rank == "absolute" else value
        return cls(ranking.graph, value, ranking.value > 0, budget, pnr)

    @classmethod
    def build(
        cls, graph: BaseGraph, score: NDArray[np.floating], rank: str, budget: int, pnr: float | None = None
    ) -> SelectionProblem:
        """Return the problem of signed scores [edge], ranked 'signed' or 'absolute'."""
        return cls.of(Ranking(graph, score), rank, budget, pnr)

    def __repr__(self) -> str:
        pnr = "" if self.pnr is None else f", PNR {self.pnr:g}"
        return f"SelectionProblem({self.budget:,} of {self.graph.n_edges:,} {self.graph.units}{pnr})"

    def with_budget(self, budget: int, within: Circuit | None = None) -> SelectionProblem:
        """Return the same problem with another budget. It shares what depends on the values alone."""
        other = replace(self, budget=budget, within=within)
        for name in ("order", "edge_rank", "connectors", "leaders"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @property
    def least_positive(self) -> int:
        """The least number of positive edges: ceil(PNR * budget), or all positive edges if there are fewer."""
        return min(self.asked_positive, int(np.count_nonzero(self.is_positive)))

    @property
    def asked_positive(self) -> int:
        """The number of positive edges that PNR asks for, which the graph may lack."""
        # Minus a rounding error: 0.55 * 100 is a little more than 55 in floating point.
        return 0 if self.pnr is None else ceil(self.pnr * self.budget - 1e-9)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """All edges, largest value first; ties go to the first."""
        return np.argsort(-self.value, kind="stable")

    @cached_property
    def edge_rank(self) -> NDArray[np.int64]:
        """[edge] The place of each edge in `order`: 0 for the best one."""
        edge_rank = np.empty(self.graph.n_edges, np.int64)
        edge_rank[self.order] = np.arange(self.graph.n_edges)
        return edge_rank

    @cached_property
    def required(self) -> NDArray[np.bool_]:
        """[edge] whether an edge must be selected."""
        return np.zeros(self.graph.n_edges, bool) if self.within is None else self.within.mask

    @cached_property
    def n_required(self) -> int:
        """The number of required edges."""
        return 0 if self.within is None else self.within.n_edges

    @cached_property
    def optional_order(self) -> NDArray[np.intp]:
        """The edges that aren't required, largest value first; ties go to the first."""
        return self.order if self.within is None else self.order[~self.required[self.order]]

    @cached_property
    def connectors(self) -> NDArray[np.intp]:
        """Edges that connect any node to a circuit: its best ones in and out, from input, and to logits."""
        graph, rank = self.graph, self.edge_rank
        best_in, best_out, from_input, to_logits = np.full((4, graph.n_nodes), graph.n_edges)
        np.minimum.at(best_in, graph.edge_target, rank)
        np.minimum.at(best_out, graph.edge_source, rank)
        direct = np.flatnonzero(graph.edge_source == 0)
        np.minimum.at(from_input, graph.edge_target[direct], rank[direct])
        direct = np.flatnonzero(graph.edge_target == graph.n_nodes - 1)
        np.minimum.at(to_logits, graph.edge_source[direct], rank[direct])
        best = np.concatenate([best_in[1:], best_out[:-1], from_input[1:], to_logits[:-1]])
        return np.unique(self.order[best])

    @cached_property
    def leaders(self) -> NDArray[np.bool_]:
        """[edge] Whether an edge is the best from its source node to its target node; with PNR, the best of its sign.

        A circuit that has any edge between two nodes may as well have the leader: only leaders need to connect nodes.
        """
        graph = self.graph
        pair = graph.edge_source.astype(np.int64) * graph.n_nodes + graph.edge_target
        pair = 2 * pair + (self.is_positive if self.pnr is not None else 0)
        by_pair = np.argsort(pair, kind="stable")
        starts = np.flatnonzero(np.diff(pair[by_pair], prepend=-1))
        leaders = np.zeros(graph.n_edges, bool)
        leaders[self.order[np.minimum.reduceat(self.edge_rank[by_pair], starts)]] = True
        return leaders

    @property
    def upper_bound(self) -> float:
        """A bound on the objective that needs no solver: the value of the best edges, connected or not."""
        best = self.value[self.optional_order[: self.budget - self.n_required]]
        return float(best[best > 0].sum()) + self.objective(self.required)

    def objective(self, mask: NDArray[np.bool_]) -> float:
        """Return the total value of a circuit."""
        return float(self.value[mask].sum())


class Infeasible(InputError):  # noqa: N818 - a state of the problem, named as solvers do
    """No circuit of this budget has as many positive edges as PNR asks for; `nearest` has the largest possible PNR."""

    def __init__(self, problem: SelectionProblem, most_positive: int) -> None:
        self.nearest = replace(problem, pnr=most_positive / problem.budget)
        super().__init__(
            f"no circuit of {problem.graph.count(problem.budget)} has {problem.least_positive} positive ones, the "
            f"share of {problem.pnr} that PNR asks for: at most {most_positive} can be connected; "
            f"the nearest possible request is pnr={floor(1e4 * most_positive / problem.budget) / 1e4:g}, "
            f"or ask for more {problem.graph.units}"
        )


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


@dataclass(frozen=True, eq=False)
class Selection:
    """A selected circuit and how the solver ended.

    circuit         pruned: every edge lies on a path from input to logits
    n_requested     the budget of edges; `n_kept`, the number of edges of the circuit, may be smaller
    objective       the total value of the circuit's edges; the optimum is at most `bound`
    free_objective  the objective without the condition of nested circuits, if that changed the circuit
    rounds          how often the ILP's linear relaxation was solved
    columns         the columns of its last program
    possible_pnr    the largest possible share of positive edges, if PNR asked for more
    """

    circuit: Circuit
    solver: str
    status: Status
    n_requested: int
    objective: float
    bound: float
    seconds: float
    rounds: int = 0
    columns: int = 0
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
        edges = {"edges_asked": self.n_requested, "edges_kept": self.n_kept}
        fields = {name: value for name, value in vars(self).items() if name not in ("circuit", "n_requested")}
        return edges | fields | {"status": self.status.value, "gap": self.gap}

    @classmethod
    def from_record(cls, circuit: Circuit, record: Mapping[str, Any]) -> Selection:
        """Return the selection that `record` describes."""
        same = ("solver", "objective", "bound", "seconds", "rounds", "columns", "free_objective", "possible_pnr")
        fields = {name: record[name] for name in same}
        return cls(circuit, status=Status(record["status"]), n_requested=record["edges_asked"], **fields)


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver returns.

    mask             [edge] the chosen edges, not yet pruned
    bound            no circuit of this problem has a larger objective
    rounds, columns  see `Selection`
    """

    mask: NDArray[np.bool_]
    status: Status
    bound: float
    rounds: int = 0
    columns: int = 0

    def __repr__(self) -> str:
        return f"Solution({int(self.mask.sum()):,} of {len(self.mask):,} edges, {self.status.value})"


class Solver(TitledMethod, ABC):
    """A way to choose edges. Derive from it for a custom solver. The function `solve` prunes what it chooses."""

    @abstractmethod
    def solve(self, problem: SelectionProblem) -> Solution:
        """Return at most `budget` edges, the required ones among them."""


def parse_count(text: str, n_edges: int, units: str = "edges") -> int:
    """Return a number of edges, or of other `units` of a graph, from text such as '324'."""
    if not COUNT.fullmatch(text.strip()):
        raise InputError(
            f"--edges takes counts of {units}, such as 324, not {text[:40]!r}; for a share of all {units} give "
            "--size, such as --size 0.05 or --size 5%"
        )
    count = int(text)
    if count > n_edges:
        raise InputError(f"{text} {units} were asked for, but the graph has {n_edges}; ask for at most that many")
    return count


def parse_share(text: str) -> float:
    """Return a share of the edges, above 0 and at most 1, from text such as '0.05', '5%' or '1/20'."""
    number = text.strip().removesuffix("%").rstrip()
    share = Fraction(0)
    if NUMBER.fullmatch(number):
        with suppress(ZeroDivisionError):
            share = Fraction(number) / (100 if text.strip().endswith("%") else 1)
    if not 0 < share <= 1:
        raise InputError(
            f"--size takes shares of the edges above 0 and up to 1, such as 0.05 or 5%, not {text[:40]!r}; for a "
            "count of edges give --edges of `edgewise select`"
        )
    return float(share)
