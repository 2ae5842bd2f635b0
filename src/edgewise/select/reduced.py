"""The integer program (the paper's equations 2a-2g), reduced to the edges in doubt.

Every edge has one of three states. `sure` edges are in whenever both their ends are used, `offered` edges are columns
of the program, all others are out. The sure edges that connect input to logits form the core. Its nodes are used and
its edges are in, so they aren't part of the program. A sure edge with one end outside the core is in exactly when that
end is used. So it is no column either: it adds its value and its place in the budget to the column of that node.
Offered edges inside the core don't depend on nodes, so those of equal value and sign are one column with a count.

The duals (`prices`) show afterwards whether an edge had the wrong state, so the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import connected
from .base import SelectionProblem
from .programs import INTEGRAL, Answer, FloatArray, Program

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """The roles of edges and nodes in the program, and their columns.

    core, fixed   [node], [edge] the nodes that are used and the edges that are in
    free          edges with an end outside the core: the first columns
    group_edges   offered edges inside the core, sorted into groups of `group_sizes`: the next columns
    tied          sure edges with one end outside the core; tied_end [tied edge] is the column of that end
    outer         nodes outside the core: the next columns. The last two columns count the used ones among them, and
                  missing positive edges
    column_of     [node] the column of a node; -1 for the core
    largest       the largest absolute value of an edge that isn't out
    """

    core: Bools
    has_core: bool
    fixed: Bools
    free: Ints
    group_edges: Ints
    group_sizes: Ints
    tied: Ints
    tied_end: Ints
    outer: Ints
    column_of: Ints
    largest: float

    @property
    def n_columns(self) -> int:
        """The number of columns: edges, groups, nodes, their number, and the number of missing positive edges."""
        return len(self.free) + len(self.group_sizes) + len(self.outer) + 2


@dataclass(frozen=True, eq=False)
class Prices:
    """Reduced costs in units of `scale`.

    edge   [edge] what an edge adds to the relaxation. An edge that is out with a price <= 0, or sure with a price
           >= 0, can't improve it. Nor can any edge of an unused node with a slack >= 0
    slack  [node] how much the relaxation loses if an unused node is used; 0 for used nodes
    used   [node] the other nodes
    """

    edge: FloatArray
    slack: FloatArray
    used: Bools


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduced program and how to read its answers.

    in_rows, out_rows   [node] the rows that require an edge into, and out of, a used node; -1 for none
    """

    problem: SelectionProblem
    program: Program
    scale: float
    parts: Parts
    in_rows: Ints
    out_rows: Ints

    def prices(self, answer: Answer) -> Prices:
        """Return the reduced costs of all edges and nodes, from the duals of an answer.

        The dual of the budget is >= 0: what a place is worth. The others are <= 0, so they raise the price: those of
        the rows that need an in-edge of its target and an out-edge of its source, if the edge is a leader, and for a
        positive edge that of the row of positive edges.

        The duals of the rows of an unused node are not unique, and those of an answer may be far too large. They are
        replaced by the least ones: a node needs its best edge in and its best edge out, not more.
        """
        assert answer.x is not None and answer.row_dual is not None
        problem, dual, outer = self.problem, answer.row_dual, self.parts.outer
        worth = problem.value / self.scale - dual[0]
        if problem.least_positive:
            worth -= dual[1] * problem.is_positive
        # Row -1: the node needs no such edge.
        need_in = np.where(self.in_rows >= 0, -dual[self.in_rows], 0.0)
        need_out = np.where(self.out_rows >= 0, -dual[self.out_rows], 0.0)
        unused = np.zeros(problem.graph.n_nodes, bool)
        unused[outer] = answer.x[self.parts.column_of[outer]] <= INTEGRAL
        while True:
            prices = _least_prices(problem, worth, need_in, need_out, unused)
            if prices.slack.min() >= 0:
                return prices
            unused &= prices.slack >= 0  # the answer's own duals may be better for these nodes

    @property
    def is_column(self) -> Bools:
        """[edge] Whether an edge is a column, alone or in a group."""
        is_column = np.zeros(self.problem.graph.n_edges, bool)
        is_column[self.parts.free] = is_column[self.parts.group_edges] = True
        return is_column

    def mask(self, answer: Answer) -> Bools:
        """Return the circuit [edge] of an integral answer; ties inside the core go to the first edge."""
        assert answer.x is not None
        parts, n_free = self.parts, len(self.parts.free)
        mask = parts.fixed.copy()
        x = np.rint(answer.x).astype(np.int64)
        mask[parts.free[x[:n_free] > 0]] = True
        starts = np.cumsum(parts.group_sizes) - parts.group_sizes
        within = np.arange(len(parts.group_edges)) - np.repeat(starts, parts.group_sizes)
        counts = x[n_free : n_free + len(parts.group_sizes)]
        mask[parts.group_edges[within < np.repeat(counts, parts.group_sizes)]] = True
        mask[parts.tied[x[parts.tied_end] > 0]] = True
        return mask

    def objective(self, answer: Answer) -> float:
        """Return the objective of an answer in the problem's units."""
        return answer.objective * self.scale + self.problem.objective(self.parts.fixed)

    def worth(self, mask: Bools) -> float:
        """Return the objective of a circuit in the program's units."""
        return (self.problem.objective(mask) - self.problem.objective(self.parts.fixed)) / self.scale

    @property
    def strict(self) -> Program:
        """The program in which no positive edge may be missing."""
        return replace(self.program, upper=np.append(self.program.upper[:-1], 0.0))


def _least_prices(
    problem: SelectionProblem, worth: FloatArray, need_in: FloatArray, need_out: FloatArray, unused: Bools
) -> Prices:
    """Return the prices with the least duals for unused nodes; a slack < 0 shows that these are too small."""
    graph, leads = problem.graph, problem.leaders
    source, target = graph.edge_source, graph.edge_target
    into = np.flatnonzero(unused[target] & ~unused[source])
    out_of = np.flatnonzero(unused[source] & ~unused[target])
    gain_in, least_in = _best_edges(target[into], worth[into] + need_out[source[into]] * leads[into], unused)
    gain_out, least_out = _best_edges(source[out_of], worth[out_of] + need_in[target[out_of]] * leads[out_of], unused)
    need_in, need_out = np.where(unused, least_in, need_in), np.where(unused, least_out, need_out)
    slack = -gain_in - gain_out
    # Edges between two unused nodes: lower the need of an end as far as its slack allows, so that they don't pay.
    between = np.flatnonzero(unused[source] & unused[target])
    leads, worth_between, ends = leads[between], worth[between], (source[between], target[between])
    for need, end in ((need_out, ends[0]), (need_in, ends[1])):
        price = worth_between + (need_out[ends[0]] + need_in[ends[1]]) * leads
        excess = np.zeros(graph.n_nodes)
        np.maximum.at(excess, end, np.where(leads, price, 0.0))
        excess = np.minimum(excess, np.minimum(need, np.maximum(slack, 0.0)))
        need -= excess
        slack -= excess
    price = worth_between + (need_out[ends[0]] + need_in[ends[1]]) * leads
    np.subtract.at(slack, np.where(slack[ends[0]] > slack[ends[1]], *ends), np.maximum(price, 0.0))
    return Prices(worth + (need_in[target] + need_out[source]) * problem.leaders, slack, ~unused)


def _best_edges(ends: NDArray[np.int32], price: FloatArray, unused: Bools) -> tuple[FloatArray, FloatArray]:
    """Return two values per unused node [node], and 0 for used ones.

    They are the gain of its best non-empty set of edges, and the dual price that forces at least one edge.
    """
    best = np.full(len(unused), -np.inf)
    np.maximum.at(best, ends, price)
    gain = np.zeros(len(unused))
    np.add.at(gain, ends, np.maximum(price, 0.0))
    return np.where(unused, np.where(best > 0, gain, best), 0.0), np.where(unused, np.maximum(0.0, -best), 0.0)


def reduce_problem(
    problem: SelectionProblem,
    sure: Bools,
    offered: Bools,
    scale: float,
    penalty: float = 0.0,
    excluded: Bools | None = None,
) -> Reduction:
    """Return the program for the states of the edges (`sure` and `offered` are disjoint).

    The connectors of nodes outside the core are offered, too, so that every node can be used; unless they are
    `excluded`. `penalty` is the cost per missing positive edge, in units of the largest value; with it, there is always
    an answer.
    """
    graph, value, positive = problem.graph, problem.value, problem.is_positive
    parts = _parts(problem, sure, offered, np.zeros(len(sure), bool) if excluded is None else excluded)
    free, tied, outer, core, column_of = parts.free, parts.tied, parts.outer, parts.core, parts.column_of
    n_free, n_edges, n_columns = len(free), len(free) + len(parts.group_sizes), parts.n_columns
    # Per column: value, places in the budget, positive edges, upper bound.
    worth, places, positives = np.zeros((3, n_columns))
    edges = np.concatenate([free, parts.group_edges[np.cumsum(parts.group_sizes) - parts.group_sizes]])
    worth[:n_edges], places[:n_edges], positives[:n_edges] = value[edges], 1, positive[edges]
    np.add.at(worth, parts.tied_end, value[tied])
    np.add.at(places, parts.tied_end, 1)
    np.add.at(positives, parts.tied_end, positive[tied])
    worth /= scale
    worth[-1], positives[-1] = -penalty * max(1.0, parts.largest / scale), 1
    upper = np.ones(n_columns)
    upper[n_free:n_edges] = parts.group_sizes
    upper[-2:] = len(outer), problem.least_positive
    # Rows: budget, positive edges, the number of used nodes, edges into and out of used nodes, and one per end of a
    # free edge that must be used. A node with a sure edge to the core needs no row.
    needs_in, needs_out = column_of >= 0, column_of >= 0
    needs_in[graph.edge_target[tied]] = needs_out[graph.edge_source[tied]] = False
    if not parts.has_core:
        needs_in[-1] = needs_out[0] = True
    in_rows, out_rows = np.full((2, graph.n_nodes), -1)
    n_in, n_out = int(needs_in.sum()), int(needs_out.sum())
    in_rows[needs_in] = 3 + np.arange(n_in)
    out_rows[needs_out] = 3 + n_in + np.arange(n_out)
    first_link = 3 + n_in + n_out
    source, target, x = graph.edge_source[free], graph.edge_target[free], np.arange(n_free)
    leads = problem.leaders[free]
    into, out_of = x[(in_rows[target] >= 0) & leads], x[(out_rows[source] >= 0) & leads]
    node_in, node_out = np.flatnonzero(needs_in & ~core), np.flatnonzero(needs_out & ~core)
    at_source, at_target = x[~core[source]], x[~core[target]]
    links = first_link + np.arange(len(at_source) + len(at_target))
    counted, signed = np.flatnonzero(places), np.flatnonzero(positives)
    nodes = np.arange(n_edges, n_columns - 1)
    blocks = [  # row, column, entry
        (np.zeros(len(counted), int), counted, places[counted]),
        (np.ones(len(signed), int), signed, positives[signed]),
        (np.full(len(nodes), 2), nodes, np.append(np.ones(len(outer)), -1.0)),
        (in_rows[target[into]], into, np.ones(len(into))),
        (out_rows[source[out_of]], out_of, np.ones(len(out_of))),
        (in_rows[node_in], column_of[node_in], -np.ones(len(node_in))),
        (out_rows[node_out], column_of[node_out], -np.ones(len(node_out))),
        (links, np.concatenate([at_source, at_target]), np.ones(len(links))),
        (links, column_of[np.concatenate([source[at_source], target[at_target]])], -np.ones(len(links))),
    ]
    rows, columns, entries = (np.concatenate(block) for block in zip(*blocks, strict=True))
    row_lower, row_upper = np.zeros(first_link + len(links)), np.full(first_link + len(links), np.inf)
    row_lower[0], row_upper[0] = -np.inf, problem.budget - int(parts.fixed.sum())
    row_lower[1] = problem.least_positive - int(positive[parts.fixed].sum())
    row_upper[2] = 0
    if not parts.has_core:
        row_lower[[in_rows[-1], out_rows[0]]] = 1
    row_lower[first_link:], row_upper[first_link:] = -np.inf, 0
    priority = np.repeat([0, 1, 2, 0], [n_edges, len(outer), 1, 1])
    program = Program(worth, np.zeros(n_columns), upper, row_lower, row_upper, rows, columns, entries, priority)
    return Reduction(problem, program, scale, parts, in_rows, out_rows)


def _parts(problem: SelectionProblem, sure: Bools, offered: Bools, excluded: Bools) -> Parts:
    """Return the roles of all edges and nodes."""
    graph = problem.graph
    source, target = graph.edge_source, graph.edge_target
    backbone = connected(graph, sure)  # contains the required edges, which are a circuit
    core = np.zeros(graph.n_nodes, bool)
    core[[0, -1]] = True
    has_core = bool(backbone.any())
    if has_core:
        core[source[backbone]] = core[target[backbone]] = True
    joining = problem.connectors
    settled = core[source[joining]] & core[target[joining]] if has_core else False
    is_candidate = sure | offered
    is_candidate[joining[~(settled | sure[joining] | excluded[joining])]] = True
    candidates = np.flatnonzero(is_candidate)
    inside = core[source[candidates]].astype(np.int8) + core[target[candidates]]
    is_sure = sure[candidates] & has_core
    fixed = np.zeros(graph.n_edges, bool)
    fixed[candidates[is_sure & (inside == 2)]] = True
    tied = candidates[is_sure & (inside == 1)]
    free = candidates[(~is_sure & (inside < 2)) | (is_sure & (inside == 0))]
    grouped = candidates[~is_sure & (inside == 2)]
    if not has_core:  # then input -> logits is the only edge inside, and must be a column of its own
        free, grouped = np.sort(np.concatenate([free, grouped])), grouped[:0]
    # Grouped edges are sorted by value, sign and edge order; a group has one value and sign.
    group_edges = grouped[np.lexsort((grouped, problem.is_positive[grouped], problem.value[grouped]))]
    value, positive = problem.value[group_edges], problem.is_positive[group_edges]
    is_first = np.ones(len(group_edges), bool)
    is_first[1:] = (np.diff(value) != 0) | (positive[1:] != positive[:-1])
    group_sizes = np.diff(np.append(np.flatnonzero(is_first), len(group_edges)))
    outer = np.flatnonzero(graph.used_nodes(is_candidate) & ~core)
    column_of = np.full(graph.n_nodes, -1)
    column_of[outer] = len(free) + len(group_sizes) + np.arange(len(outer))
    tied_end = np.where(core[source[tied]], column_of[target[tied]], column_of[source[tied]])
    largest = float(np.abs(problem.value[candidates]).max(initial=0.0))
    return Parts(core, has_core, fixed, free, group_edges, group_sizes, tied, tied_end, outer, column_of, largest)
