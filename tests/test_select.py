"""Selection: every solver against the definition, and against each other."""

import heapq
import json
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import Circuit, Graph, InputError, SelectionProblem, solve
from edgewise.select import RANKINGS, SOLVERS, Infeasible, Status, parse_edges

TINY = Graph(1, 1, 2)
GRAPHS = [Graph(1, 2, 2), Graph(2, 1, 2), Graph(2, 2, 2), Graph(2, 2, 2, parallel=True), Graph(3, 2, 2)]


def heap_greedy(problem):
    """MIB's greedy with a heap, ties by edge order; with PNR the first pops are among positive edges."""
    graph, value = problem.graph, problem.value
    into = [[] for _ in range(graph.n_nodes)]
    for edge, head in enumerate(graph.edge_head.tolist()):
        into[head].append(edge)
    taken, reached = [], {graph.n_nodes - 1}

    def grow(limit, allowed):
        heap = [(-value[e], e) for node in reached for e in into[node] if allowed[e] and e not in taken]
        heapq.heapify(heap)
        while len(taken) < limit and heap:
            _, edge = heapq.heappop(heap)
            taken.append(edge)
            parent = int(graph.edge_source[edge])
            if parent not in reached:
                reached.add(parent)
                for e in into[parent]:
                    if allowed[e]:
                        heapq.heappush(heap, (-value[e], e))

    if problem.least_positive:
        grow(problem.least_positive, problem.is_positive)
    grow(problem.budget, np.ones(graph.n_edges, bool))
    mask = np.zeros(graph.n_edges, bool)
    mask[taken] = True
    return mask


@st.composite
def problems(draw, graphs=GRAPHS, pnr=True):
    """Scores with ties, zeros and both signs; any budget; PNR on and off."""
    graph = draw(st.sampled_from(graphs))
    kind = draw(st.sampled_from(["ties", "heavy", "positive", "negative"]))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    score = rng.integers(-3, 4, graph.n_edges).astype(float) if kind == "ties" else rng.standard_t(1.5, graph.n_edges)
    score = {"positive": np.abs(score), "negative": -np.abs(score)}.get(kind, score)
    budget = draw(st.integers(0, graph.n_edges))
    ratio = draw(st.sampled_from([None, 0.0, 0.3, 0.5, 0.9, 1.0])) if pnr else None
    return SelectionProblem.build(graph, score, draw(st.sampled_from(RANKINGS)), budget, ratio)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_greedy_is_mibs_greedy(problem):
    expected = Circuit(problem.graph, heap_greedy(problem)).prune()
    assert solve(problem, "greedy").circuit == expected


@pytest.mark.parametrize("rank", RANKINGS)
@pytest.mark.parametrize("budget, kept", [(32, {"signed": 0, "absolute": 22}), (324, {"signed": 242, "absolute": 306})])
def test_greedy_on_real_scores(shared, rank, budget, kept):
    edges = json.loads((shared / "data" / "gpt2-ioi-eap-ig.json").read_text())["edges"]
    score = np.array([edge["score"] for edge in edges.values()])
    problem = SelectionProblem.build(Graph(12, 12, 768), score, rank, budget)
    found = solve(problem, "greedy")
    assert found.kept == kept[rank]
    assert found.circuit == Circuit(problem.graph, heap_greedy(problem)).prune()


@settings(max_examples=100, deadline=None)
@given(problems())
def test_top_n_takes_the_best_positive_edges_first(problem):
    order = sorted(range(problem.graph.n_edges), key=lambda e: (-problem.value[e], e))
    first = [e for e in order if problem.is_positive[e]][: problem.least_positive]
    rest = [e for e in order if e not in set(first)][: problem.budget - len(first)]
    mask = np.zeros(problem.graph.n_edges, bool)
    mask[[*first, *rest]] = True
    assert solve(problem, "top-n").circuit == Circuit(problem.graph, mask).prune()


def is_feasible(problem, mask):
    circuit = Circuit(problem.graph, mask)
    connected = circuit.n_edges > 0 and circuit.prune() == circuit
    return (
        connected and circuit.n_edges <= problem.budget and (mask & problem.is_positive).sum() >= problem.least_positive
    )


def best_of_all(problem):
    """The best objective among all subsets of a tiny graph, or None."""
    n = problem.graph.n_edges
    masks = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(bool)
    feasible = [problem.objective(mask) for mask in masks if is_feasible(problem, mask)]
    return max(feasible, default=None)


@settings(max_examples=60, deadline=None)
@given(problems(graphs=[TINY, Graph(1, 1, 2, parallel=True)]))
def test_ilp_is_the_best_of_all_subsets(problem):
    if problem.budget in (0, problem.graph.n_edges):
        return  # the empty and the full circuit, whatever they are worth
    expected = best_of_all(problem)
    if expected is None:
        with pytest.raises(Infeasible):
            solve(problem, "ilp")
        return
    found = solve(problem, "ilp")
    assert is_feasible(problem, found.circuit.mask)
    assert found.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.status is Status.OPTIMAL and found.gap == 0


@settings(max_examples=40, deadline=None)
@given(problems())
def test_ilp_is_at_least_as_good_as_the_heuristics_under_the_same_constraints(problem):
    try:
        best = solve(problem, "ilp")
    except Infeasible as error:
        assert solve(error.nearest, "ilp").kept <= problem.budget
        return
    assert best.objective <= problem.upper_bound + 1e-9 or problem.budget == problem.graph.n_edges
    for solver in ("greedy", "top-n"):
        other = solve(problem, solver)
        if is_feasible(problem, other.circuit.mask):
            assert best.objective >= other.objective - 1e-9


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("rank", RANKINGS)
def test_nothing_and_everything_are_no_errors(solver, rank):
    score = np.random.default_rng(0).normal(size=TINY.n_edges)
    assert solve(SelectionProblem.build(TINY, score, rank, 0), solver).circuit == Circuit.empty(TINY)
    assert solve(SelectionProblem.build(TINY, score, rank, TINY.n_edges), solver).circuit == Circuit.full(TINY)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_all_scores_zero_still_gives_a_circuit(solver):
    found = solve(SelectionProblem.build(GRAPHS[2], np.zeros(GRAPHS[2].n_edges), "absolute", 20), solver)
    assert found.objective == 0 and found.circuit == found.circuit.prune()


def test_an_impossible_share_of_positive_edges_names_the_nearest_possible():
    score = -np.ones(TINY.n_edges)
    score[TINY.edge_index("input->a0.h0<q>")] = 1.0
    problem = SelectionProblem.build(TINY, score, "absolute", 1, 1.0)
    with pytest.raises(Infeasible, match="--pnr 0") as caught:
        solve(problem, "ilp")
    assert solve(caught.value.nearest, "ilp").kept == 1


def test_positive_means_positive_before_absolute_values():
    problem = SelectionProblem.build(TINY, np.array([-5.0, 1, -1, 1, -1, 1, -1, 0]), "absolute", 4, 0.5)
    assert problem.is_positive.tolist() == [False, True, False, True, False, True, False, False]
    assert problem.least_positive == 2


@given(st.integers(0, 8), st.floats(0, 1))
def test_least_positive_is_the_rounded_up_share_but_no_more_than_there_are(budget, pnr):
    problem = SelectionProblem.build(TINY, np.array([1.0, 1, 1, -1, -1, -1, -1, -1]), "signed", budget, pnr)
    assert problem.least_positive == min(ceil(round(pnr * budget, 8)), 3)


def test_a_rounding_error_is_not_an_edge():
    graph = Graph(3, 3, 2)
    assert SelectionProblem.build(graph, np.ones(graph.n_edges), "signed", 100, 0.55).least_positive == 55


@pytest.mark.parametrize(
    "text, expected", [("324", 324), ("0.01", 324), ("1", 1), ("1.0", 32491), ("0", 0), ("1e-3", 32), ("32491", 32491)]
)
def test_edges_are_a_count_or_a_share(text, expected):
    assert parse_edges(text, 32491) == expected


@pytest.mark.parametrize("text", ["-1", "-0.5", "1.5", "many", "32492", "nan"])
def test_edges_that_make_no_sense_are_refused(text):
    with pytest.raises(InputError):
        parse_edges(text, 32491)


@pytest.mark.parametrize(
    "change, words",
    [({"budget": 9}, "the graph's 8"), ({"budget": -1}, "between 0"), ({"pnr": 1.5}, "from 0 to 1"),
     ({"pnr": -0.1}, "from 0 to 1"), ({"rank": "size"}, "signed, absolute"), ({"score": np.full(8, np.nan)}, "finite")],
)  # fmt: skip
def test_problems_that_make_no_sense_are_refused(change, words):
    given_ = {"graph": TINY, "score": np.ones(8), "rank": "signed", "budget": 3, "pnr": None} | change
    with pytest.raises(InputError, match=words):
        SelectionProblem.build(**given_)


def test_an_unknown_solver_lists_the_known():
    with pytest.raises(InputError, match="top-n, greedy, ilp"):
        solve(SelectionProblem.build(TINY, np.ones(8), "signed", 3), "magic")
