"""Selection: every solver against the definition, and against each other."""

import contextlib
import heapq
import itertools
import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plain_ilp import plain_optimum

from edgewise import Circuit, Graph, Greedy, Ilp, InputError, SelectionProblem, TopN, solve
from edgewise.evaluate import SIZES
from edgewise.graph import SpanGraph
from edgewise.select import RANKS, SOLVERS, Infeasible, Status, parse_count, parse_share, solve_path

TINY = Graph(1, 1, 2)
ALL = [SOLVERS[name]() for name in sorted(SOLVERS)]
GRAPHS = [Graph(1, 2, 2), Graph(2, 1, 2), Graph(2, 2, 2), Graph(2, 2, 2, parallel=True), Graph(3, 2, 2)]
GRAPHS += [SpanGraph(GRAPHS[1], ("a", "b", "c")), SpanGraph(GRAPHS[3], ("a", "b"))]


def real_scores(shared):
    edges = json.loads((shared / "data" / "gpt2-ioi-eap-ig.json").read_text())["edges"]
    return np.array([edge["score"] for edge in edges.values()])


def heap_greedy(problem):
    """MIB's greedy with a heap, ties by edge order; with PNR the first pops are among positive edges."""
    graph, value = problem.graph, problem.value
    into = [[] for _ in range(graph.n_nodes)]
    for edge, head in enumerate(graph.edge_target.tolist()):
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
    return SelectionProblem.build(graph, score, draw(st.sampled_from(RANKS)), budget, ratio)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_greedy_is_mibs_greedy(problem):
    expected = Circuit(problem.graph, heap_greedy(problem)).prune()
    assert solve(problem, solver=Greedy()).circuit == expected


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("budget, kept", [(32, {"signed": 0, "absolute": 22}), (324, {"signed": 242, "absolute": 306})])
def test_greedy_on_real_scores(shared, rank, budget, kept):
    problem = SelectionProblem.build(Graph(12, 12, 768), real_scores(shared), rank, budget)
    found = solve(problem, solver=Greedy())
    assert found.n_kept == kept[rank]
    assert found.circuit == Circuit(problem.graph, heap_greedy(problem)).prune()


@settings(max_examples=100, deadline=None)
@given(problems())
def test_top_n_takes_the_best_positive_edges_first(problem):
    order = sorted(range(problem.graph.n_edges), key=lambda e: (-problem.value[e], e))
    first = [e for e in order if problem.is_positive[e]][: problem.least_positive]
    rest = [e for e in order if e not in set(first)][: problem.budget - len(first)]
    mask = np.zeros(problem.graph.n_edges, bool)
    mask[[*first, *rest]] = True
    assert solve(problem, solver=TopN()).circuit == Circuit(problem.graph, mask).prune()


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
            solve(problem, solver=Ilp())
        return
    found = solve(problem, solver=Ilp())
    assert is_feasible(problem, found.circuit.mask)
    assert found.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.status is Status.OPTIMAL and found.gap == 0


@settings(max_examples=40, deadline=None)
@given(problems())
def test_ilp_is_at_least_as_good_as_the_heuristics_under_the_same_constraints(problem):
    try:
        best = solve(problem, solver=Ilp())
    except Infeasible as error:
        assert solve(error.nearest, solver=Ilp()).n_kept <= problem.budget
        return
    assert best.objective <= problem.upper_bound + 1e-9 or problem.budget == problem.graph.n_edges
    for solver in (Greedy(), TopN()):
        other = solve(problem, solver=solver)
        if is_feasible(problem, other.circuit.mask):
            assert best.objective >= other.objective - 1e-9


@settings(max_examples=120, deadline=None)
@given(problems(), st.sampled_from([(1, 1), (5, 1), (60, 2)]))
def test_ilp_is_the_optimum_of_the_papers_program(problem, sizes):
    """Whatever is reduced away at first: with tiny windows, much of it has to be priced back in."""
    if problem.budget in (0, problem.graph.n_edges):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgewise.select.ilp.WINDOW", sizes[0])
        patch.setattr("edgewise.select.ilp.MAX_MOVED", sizes[1])
        expected = plain_optimum(problem)
        if expected is None:
            with pytest.raises(Infeasible):
                solve(problem, solver=Ilp())
            return
        found = solve(problem, solver=Ilp())
    assert is_feasible(problem, found.circuit.mask)
    assert found.objective == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert found.status is Status.OPTIMAL and found.bound == pytest.approx(found.objective)


OPTIMA = {  # METHODS.md's table, from another solver
    "absolute": (1.8664568, 2.3071436, 3.0529523, 3.5143423, 3.9295554, 4.3273071, 4.5360522, 4.6848502, 4.7986993),
    "signed": (0.8018236, 0.9984358, 1.2459566, 1.4042271, 1.5502457, 1.6945030, 1.7701282, 1.8193334, 1.8437875),
}


@pytest.mark.parametrize("rank", RANKS)
def test_ilp_on_real_scores(shared, rank):
    problem = SelectionProblem.build(Graph(12, 12, 768), real_scores(shared), rank, 0)
    budgets = [int(share * 32491) for share in SIZES[:-1]]
    found = solve_path(problem, budgets)
    for selection, optimum, budget in zip(found, OPTIMA[rank], budgets, strict=True):
        assert selection.objective == pytest.approx(optimum, rel=1e-6) and selection.n_kept == budget
        assert selection.status is Status.OPTIMAL
        greedy = solve(problem.with_budget(budget), solver=Greedy(), fill=True)
        assert selection.objective >= greedy.objective


def test_pnr_on_real_scores_is_honoured_by_every_solver(shared):
    for solver in ALL:
        problem = SelectionProblem.build(Graph(12, 12, 768), real_scores(shared), "absolute", 324, 0.9)
        chosen = solve(problem, solver=solver)
        positive = int((chosen.circuit.mask & problem.is_positive).sum())
        assert positive >= 0.85 * chosen.n_kept and (solver != Ilp() or positive >= 292)


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(ALL))
def test_nested_circuits_contain_the_smaller_ones(problem, solver):
    budgets = sorted({1, 3, problem.budget // 2, problem.budget} - {0, problem.graph.n_edges})
    budgets = [budget for budget in budgets if budget <= max(problem.budget, 1)]
    path = solve_path(problem, budgets, solver, nested=True)
    for small, large in itertools.pairwise(path):
        assert (small.circuit.mask <= large.circuit.mask).all()
    if solver == Ilp():
        for selection, before in zip(path[1:], path, strict=False):
            if selection.free_objective is not None:
                assert selection.objective <= selection.free_objective + 1e-9
                pnr = problem.pnr if selection.possible_pnr is None else selection.possible_pnr
                nested = replace(problem, budget=selection.n_requested, pnr=pnr, within=before.circuit)
                assert selection.objective == pytest.approx(plain_optimum(nested), rel=1e-7, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from([Greedy(), TopN()]))
def test_fill_comes_as_close_to_the_budget_as_possible(problem, solver):
    plain, filled = solve(problem, solver=solver), solve(problem, solver=solver, fill=True)
    assert plain.n_kept <= filled.n_kept <= problem.budget
    assert filled.circuit == filled.circuit.prune()
    if problem.pnr is None and filled.n_kept < problem.budget:
        sizes = [
            solve(problem.with_budget(n), solver=solver).n_kept for n in range(problem.budget, problem.graph.n_edges)
        ]
        assert max((size for size in sizes if size <= problem.budget), default=plain.n_kept) == filled.n_kept


@pytest.mark.parametrize("limit", [1e-9, 0.02])
@pytest.mark.parametrize("pnr", [None, 0.8])
def test_a_time_limit_gives_a_circuit_and_a_valid_bound(limit, pnr):
    graph = Graph(8, 8, 2)
    score = np.random.default_rng(0).standard_t(1.5, graph.n_edges)
    problem = SelectionProblem.build(graph, score, "absolute", 40, pnr)
    optimum = solve(problem)
    found = solve(problem, solver=Ilp(limit))
    assert 0 < found.n_kept <= 40 and found.circuit == found.circuit.prune()
    assert found.objective <= optimum.objective + 1e-9 <= found.bound + 2e-9
    if found.status is Status.TIME_LIMIT:
        assert found.gap > 0


def test_edges_of_value_0_are_chosen_last():
    """What fails the filter has value 0: it fills the budget that nothing better wants."""
    graph = GRAPHS[2]
    score = np.zeros(graph.n_edges)
    score[[graph.edge_index("input->a0.h0<v>"), graph.edge_index("a0.h0->logits")]] = 1.0
    score[graph.edge_index("m1->logits")] = -1.0
    for budget in range(2, graph.n_edges):
        found = solve(SelectionProblem.build(graph, score, "signed", budget), solver=Ilp())
        assert found.objective == 2 and found.circuit == found.circuit.prune()
        # m1 writes to nothing but the logits, by an edge that would cost: its in-edges stay out, too.
        able = graph.n_edges - 1 - int((graph.edge_target == graph.mlp_source_index(1)).sum())
        # A node joins by two edges at once, so that one place may stay empty.
        assert found.n_kept >= min(budget, able) - 1


@pytest.mark.parametrize("solver", ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("rank", RANKS)
def test_empty_and_full_budgets_are_allowed(solver, rank):
    score = np.random.default_rng(0).normal(size=TINY.n_edges)
    assert solve(SelectionProblem.build(TINY, score, rank, 0), solver=solver).circuit == Circuit.empty(TINY)
    assert solve(SelectionProblem.build(TINY, score, rank, TINY.n_edges), solver=solver).circuit == Circuit.full(TINY)


@pytest.mark.parametrize("solver", ALL, ids=lambda one: one.name)
def test_all_scores_zero_still_gives_a_circuit(solver):
    found = solve(SelectionProblem.build(GRAPHS[2], np.zeros(GRAPHS[2].n_edges), "absolute", 20), solver=solver)
    assert found.objective == 0 and found.circuit == found.circuit.prune()


def test_an_impossible_share_of_positive_edges_names_the_nearest_possible():
    score = -np.ones(TINY.n_edges)
    score[TINY.edge_index("input->a0.h0<q>")] = 1.0
    problem = SelectionProblem.build(TINY, score, "absolute", 1, 1.0)
    with pytest.raises(Infeasible, match="pnr=0") as caught:
        solve(problem, solver=Ilp())
    assert solve(caught.value.nearest, solver=Ilp()).n_kept == 1


@given(st.integers(0, 8), st.integers(0, 100))
def test_least_positive_is_rounded_up_and_at_most_all_positive_edges(budget, percent):
    problem = SelectionProblem.build(TINY, np.array([1.0, 1, 1, -1, -1, -1, -1, -1]), "signed", budget, percent / 100)
    assert problem.least_positive == min(-(-percent * budget // 100), 3)
    graph = Graph(3, 3, 2)  # 0.55 * 100 is a little more than 55 in floating point
    assert SelectionProblem.build(graph, np.ones(graph.n_edges), "signed", 100, 0.55).least_positive == 55


@pytest.mark.parametrize("text, expected", [("324", 324), ("1", 1), ("0", 0), ("32491", 32491), (" 5 ", 5)])
def test_edges_are_counts(text, expected):
    assert parse_count(text, 32491) == expected


@pytest.mark.parametrize(
    "text, expected",
    [("0.01", 0.01), ("1%", 0.01), ("1", 1), ("100%", 1), ("1.0", 1), ("1e-3", 0.001), (".5", 0.5), ("1/3", 1 / 3),
     ("5 %", 0.05), (" 0.5% ", 0.005), ("7%", 0.07)],
)  # fmt: skip
def test_sizes_are_shares(text, expected):
    assert parse_share(text) == expected


NO_NUMBERS = ("-1", "-0.5", "many", "nan", "inf", "", "%", "1/0", "١", "1_000", "0x10", "1e999999999", "9" * 5000)


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0.05", "5%", "1.0", "1e2", "1/3", "32492", "9" * 20])
def test_invalid_numbers_of_edges_are_errors(text):
    words = "the graph has 32491" if text in ("32492", "9" * 20) else r"--edges takes counts .* give --size"
    with pytest.raises(InputError, match=words) as error:
        parse_count(text, 32491)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0", "0%", "5", "1.5", "101%", "324", "1e400"])
def test_invalid_shares_are_errors(text):
    with pytest.raises(InputError, match=r"--size takes shares .* give --edges") as error:
        parse_share(text)
    assert len(str(error.value)) < 220


@pytest.mark.parametrize(
    "change, words",
    [({"budget": 9}, "the graph's 8"), ({"budget": -1}, "between 0"), ({"pnr": 1.5}, "from 0 to 1"),
     ({"pnr": -0.1}, "from 0 to 1"), ({"rank": "size"}, "signed, absolute"), ({"score": np.full(8, np.nan)}, "finite")],
)  # fmt: skip
def test_invalid_problems_are_errors(change, words):
    given_ = {"graph": TINY, "score": np.ones(8), "rank": "signed", "budget": 3, "pnr": None} | change
    with pytest.raises(InputError, match=words):
        SelectionProblem.build(**given_)


def test_a_time_limit_holds_where_pnr_binds():
    graph = Graph(8, 8, 2)
    rng = np.random.default_rng(0)
    score = np.where(rng.random(graph.n_edges) < 0.02, 1, -1) * np.abs(rng.standard_t(1.5, graph.n_edges))
    problem = SelectionProblem.build(graph, score, "absolute", 30, 1.0)
    started = time.process_time()
    with contextlib.suppress(Infeasible):  # proven in time, which is as good
        found = solve(problem, solver=Ilp(0.5))
        assert 0 < found.n_kept <= 30
    assert time.process_time() - started < 20  # not a speed: forty times the limit is no limit


def test_the_nearest_possible_pnr_is_feasible():
    for budget in range(2, 12):
        score = np.where(np.random.default_rng(budget).random(GRAPHS[4].n_edges) < 0.3, 1.0, -1.0)
        try:
            solve(SelectionProblem.build(GRAPHS[4], score, "absolute", budget, 1.0))
        except Infeasible as error:
            share = float(re.search(r"pnr=([\d.]+\d)", str(error)).group(1))
            assert solve(SelectionProblem.build(GRAPHS[4], score, "absolute", budget, share)).n_kept


def test_values_many_orders_apart_are_ranked_by_the_large_ones():
    graph = Graph(1, 1, 2, parallel=True)
    score = np.array([-6849.87, 0.157, -8.2e-16, -7.7e-18, 7.8e-22, -8.8e-16, 4e-19])
    found = solve(SelectionProblem.build(graph, score, "absolute", 5))
    assert found.objective == pytest.approx(best_of_all(SelectionProblem.build(graph, score, "absolute", 5)), rel=1e-9)
