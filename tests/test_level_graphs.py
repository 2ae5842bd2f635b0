"""Graphs of nodes and of neurons: names, edges, pruning, exact selection, weighted edge counts, files."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import Circuit, Graph, Greedy, Ilp, InputError, Ranking, SelectionProblem, TopN, solve
from edgewise.graph import NeuronGraph, NodeGraph, graph_of_level
from edgewise.select import RANKS, Infeasible, solve_path

PLAIN = [Graph(1, 1, 2), Graph(2, 2, 3), Graph(2, 3, 2, parallel=True)]
KINDS = [NodeGraph, NeuronGraph]


def has_input(graph, members):
    """Whether `members`, names, contain a part of `input`."""
    return any(name.split(":")[0] == "input" for name in members)


@pytest.mark.parametrize("plain", PLAIN)
@pytest.mark.parametrize("kind", KINDS)
def test_members_are_named_and_counted(plain, kind):
    graph = kind(plain)
    width = plain.d_model if kind is NeuronGraph else 1
    names = plain.source_names
    if kind is NeuronGraph:
        names = tuple(f"{name}:{dimension}" for name in names for dimension in range(width))
    assert graph.edge_names == names and graph.n_edges == len(names) == plain.n_sources * width
    assert [graph.edge_index(name) for name in names] == list(range(len(names)))
    assert graph_of_level(plain, graph.level) == graph
    for wrong in ("logits", "m9", "input:7", "a0.h0:-1", "m0:x", "", "input->logits", "m0:99999999999"):
        with pytest.raises(InputError, match=f"no {graph.unit}"):
            graph.edge_index(wrong)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PLAIN), st.sampled_from(KINDS), st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_a_circuit_has_all_edges_among_its_nodes(plain, kind, seed, density):
    graph = kind(plain)
    circuit = Circuit(graph, np.random.default_rng(seed).random(graph.n_edges) < density)
    nodes = {name.split(":")[0] for name in circuit.edges} | {"logits"}
    ends = [name.split("->") for name in plain.edge_names]
    expected = [source in nodes and destination.split("<")[0] in nodes for source, destination in ends]
    np.testing.assert_array_equal(circuit.plain().mask, expected)
    # Pruning the members and pruning the edges is the same.
    assert circuit.prune().plain() == circuit.plain().prune()
    assert circuit.prune() == (circuit if has_input(graph, circuit.edges) else Circuit.empty(graph))


def best_of_all(problem):
    """The best objective among all subsets with a part of `input`, or None."""
    graph = problem.graph
    n = graph.n_edges
    masks = ((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1).astype(bool)
    needs_input = not any(start < graph.width for start, _ in graph.unscored)
    of_input = np.array([name.split(":")[0] == "input" for name in graph.edge_names])
    allowed = masks[:, of_input].any(1) | (not needs_input)
    allowed &= (masks.sum(1) <= problem.budget) & (masks[:, problem.is_positive].sum(1) >= problem.least_positive)
    return (masks[allowed] @ problem.value).max() if allowed.any() else None


SMALL = [NodeGraph(Graph(2, 3, 2)), NodeGraph(Graph(2, 4, 2, parallel=True)), NeuronGraph(Graph(1, 2, 3))]
SMALL += [NodeGraph(Graph(2, 3, 2), ((0, 1), (4, 6))), NeuronGraph(Graph(1, 2, 3), ((3, 5),))]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(SMALL), st.integers(0, 10_000), st.sampled_from(RANKS), st.floats(0.05, 0.95),
    st.sampled_from([None, 0.4, 0.8, 1.0]),
)  # fmt: skip
def test_the_exact_solver_is_the_best_of_all_subsets(graph, seed, rank, share, pnr):
    rng, n = np.random.default_rng(seed), graph.n_edges
    score = rng.integers(-3, 4, n).astype(float) if seed % 2 else rng.standard_t(1.5, n)
    budget = min(n - 1, max(1, int(share * n)))
    problem = SelectionProblem.build(graph, score, rank, budget, pnr)
    expected = best_of_all(problem)
    if expected is None:
        with pytest.raises(Infeasible):
            solve(problem)
        return
    found = solve(problem)
    assert found.circuit.prune() == found.circuit and found.n_kept <= budget
    assert found.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for solver in (Greedy(), TopN()):
        other = solve(problem, solver=solver)
        if pnr is None:
            assert other.objective <= found.objective + 1e-9 or not other.n_kept
        assert other.circuit.prune() == other.circuit


@pytest.mark.parametrize("graph", SMALL[:3])
@pytest.mark.parametrize("solver", [Ilp(), Greedy(), TopN()], ids=lambda solver: solver.name)
def test_paths_are_nested_if_asked(graph, solver):
    score = np.random.default_rng(3).normal(size=graph.n_edges)
    problem = SelectionProblem.build(graph, score, "absolute", 0)
    chosen = solve_path(problem, [0, 2, 4, 6, graph.n_edges], solver, nested=True)
    for smaller, larger in itertools.pairwise(chosen):
        assert (smaller.circuit.mask <= larger.circuit.mask).all()


def test_the_exact_solver_takes_input_where_top_n_loses_everything():
    graph = NodeGraph(Graph(2, 2, 2))
    score = np.array([0.1, 5, 4, 3, 2, 1, 0.5])
    assert solve(Ranking(graph, score), 3, solver=TopN()).n_kept == 0
    assert solve(Ranking(graph, score), 3).circuit.edges == ("input", "a0.h0", "a0.h1")


@pytest.mark.parametrize("kind", KINDS)
def test_unscored_members_are_in_every_circuit(kind):
    plain = Graph(2, 2, 2)
    width = 2 if kind is NeuronGraph else 1
    is_scored = np.ones((plain.n_sources, width), bool)
    is_scored[[2, 3]] = is_scored[0, 0] = False
    graph = kind.of_scored(plain, is_scored)
    assert graph.n_edges == is_scored.sum()
    empty = Circuit.empty(graph)
    assert empty.plain().nodes == ("input", "a0.h1", "m0", "logits")
    np.testing.assert_array_equal(graph.member_mask(empty.mask), ~is_scored)
    assert Circuit.full(graph).plain() == Circuit.full(plain)
    # A part of `input` is in, so that every other choice is a circuit.
    only = Circuit.from_edges(graph, [graph.edge_names[-1]])
    assert only.prune() == only
    with pytest.raises(InputError, match="with a score"):
        graph.edge_index("m0" if kind is NodeGraph else "m0:1")


@pytest.mark.parametrize("kind", KINDS)
def test_the_nodes_of_a_circuit_are_its_own(kind):
    graph = kind(Graph(2, 2, 3))
    names = ("input", "a0.h1", "m1") if kind is NodeGraph else ("input:2", "a0.h1:0", "a0.h1:1", "m1:2")
    assert Circuit.from_edges(graph, names).nodes == ("input", "a0.h1", "m1", "logits")
    assert Circuit.empty(graph).nodes == ()


def test_weighted_edge_counts_by_hand():
    plain = Graph(2, 2, 4)
    nodes = NodeGraph(plain)
    # Three nodes, one of them a head: q, k, v of the head, an MLP and the logits are read.
    mask = Circuit.from_edges(nodes, ["input", "a0.h1", "m1"]).mask
    assert nodes.weighted_edge_count(mask) == 3 * (3 + 1 + 1)
    neurons = NeuronGraph(plain)
    mask = Circuit.from_edges(neurons, ["input:0", "input:1", "m1:3"]).mask
    assert neurons.weighted_edge_count(mask) == (2 / 4 + 1 / 4) * (1 + 1)
    assert nodes.weighted_edge_count(np.zeros(nodes.n_edges, bool)) == 0


@pytest.mark.parametrize("unscored", [((2, 1),), ((0, 9),), ((-1, 1),), ((0, 2), (2, 3)), ((3, 4), (0, 1))])
def test_wrong_ranges_are_errors(unscored):
    with pytest.raises(InputError, match="unscored must be ascending ranges of the 7 nodes"):
        NodeGraph(Graph(2, 2, 2), unscored)
    with pytest.raises(InputError, match="plain graph"):
        NodeGraph(NodeGraph(Graph(1, 1, 2)))
