"""The statistics of the tests of circuits, without a model: exact values, uniform p-values, random circuits."""

from __future__ import annotations

import math
import re
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from edgewise import Circuit, Graph, InputError, Session
from edgewise.graph import NeuronGraph, SpanGraph
from edgewise.report.verification import condition_tables
from edgewise.verify import VerifySettings, add_path, draw_circuit, draw_matched, hsic, plan_verification
from edgewise.verify.circuit_tests import (
    Condition,
    binomial_at_least,
    binomial_at_most,
    completeness,
    distance,
    draws_needed,
    equivalence,
    equivalence_p,
    examples_needed,
    holm,
    independence,
    minimality,
    necessity,
    permutation_p,
    robustness,
    sufficiency,
)
from edgewise.verify.random_circuits import draw_node_sets, draw_paths
from edgewise.verify.verify_circuit import run_until_farther

GRAPH = Graph(3, 4, 16)
SETTINGS = VerifySettings()
TESTS = 500


def brute_force(counts, draws: int, chance: Fraction) -> float:
    """Return a binomial probability in exact arithmetic."""
    return float(sum(math.comb(draws, k) * chance**k * (1 - chance) ** (draws - k) for k in counts))


def ks_distance(p_values) -> float:
    """Return the largest distance between the distribution of p-values and the uniform one."""
    p = np.sort(p_values)
    steps = np.arange(len(p) + 1) / len(p)
    return float(max(np.abs(p - steps[1:]).max(), np.abs(p - steps[:-1]).max()))


def assert_uniform(p_values) -> None:
    """Kolmogorov and Smirnov's test at a level of 0.1 %."""
    assert ks_distance(p_values) < 1.95 / math.sqrt(len(p_values))


@pytest.mark.parametrize("draws", [1, 7, 100])
@pytest.mark.parametrize("chance", [Fraction(9, 10), Fraction(2, 5)])
def test_binomial_tails_are_exact(draws, chance):
    for count in range(draws + 1):
        upper = brute_force(range(count, draws + 1), draws, chance)
        lower = brute_force(range(count + 1), draws, chance)
        np.testing.assert_allclose(binomial_at_least(count, draws, float(chance)), upper, rtol=1e-10)
        np.testing.assert_allclose(binomial_at_most(count, draws, float(chance)), lower, rtol=1e-10)


def test_many_draws_do_not_underflow():
    assert 0.4 < binomial_at_least(9000, 10_000, 0.9) < 0.6
    assert binomial_at_least(10_000, 10_000, 0.9) < 1e-300


def test_holm_is_its_definition():
    p = np.random.default_rng(0).random(12) ** 3
    order, largest = np.argsort(p), 0.0
    expected = np.empty(12)
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p[place] * (12 - rank)))
        expected[place] = largest
    np.testing.assert_allclose(holm(p), expected)
    assert holm([0.03]).tolist() == [0.03]


def test_how_many_draws_and_examples_are_needed():
    for chance, alpha in ((0.9, 0.05), (0.5, 0.01), (0.1, 0.002)):
        n = draws_needed(chance, alpha)
        assert chance**n <= alpha < chance ** (n - 1)
    n = examples_needed(0.1, 0.05)
    assert equivalence_p(n // 2, 0, n, 0.1) <= 0.05 < equivalence_p(n // 2 - 1, 0, n - 2, 0.1)
    assert examples_needed(0.4, 0.05) < n < examples_needed(0.02, 0.05)


def test_p_values_of_shares_are_uniform_if_the_share_is_the_quantile():
    """A discrete p-value is uniform if the probability of the observed count is split at random."""
    rng = np.random.default_rng(1)
    wins, split = rng.binomial(100, 0.9, TESTS), rng.random(TESTS)
    for tail, beyond in ((binomial_at_least, 1), (binomial_at_most, -1)):
        p = np.array([tail(k, 100, 0.9) for k in wins.tolist()])
        next_p = np.array([tail(k + beyond, 100, 0.9) for k in wins.tolist()])
        assert_uniform(next_p + split * (p - next_p))
        assert (p <= 0.05).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TESTS)
    wins = rng.binomial(200, 0.6, TESTS)
    p, next_p = (np.array([equivalence_p(k, 0, 200, 0.1) for k in (wins - shift).tolist()]) for shift in (0, 1))
    assert_uniform(next_p + split * (p - next_p))


@pytest.mark.parametrize("test", [sufficiency, necessity])
def test_ranks_are_uniform_if_the_circuit_is_a_random_one(test):
    rng = np.random.default_rng(2)
    draws = rng.exponential(size=(TESTS, 101))
    assert_uniform([test(row[0], row[1:], SETTINGS).details["rank_p"] for row in draws])


def test_p_values_of_independence_are_uniform_if_numbers_are_independent():
    rng = np.random.default_rng(3)
    pairs = rng.normal(size=(TESTS, 2, 20)) ** 3
    p = np.array([permutation_p(x, y, 99, seed)[1] for seed, (x, y) in enumerate(pairs)])
    assert_uniform(p - rng.random(TESTS) / 100)  # they are multiples of 1 / 100


def test_the_chance_that_any_edge_that_matters_is_called_superfluous_is_at_most_alpha():
    """Edges exceed 0 to 100 % of random ones. Those that exceed 90 % or more matter, however many there are."""
    rng = np.random.default_rng(4)
    n_edges, alarms, p_values = 20, 0, []
    changes = np.concatenate([np.linspace(0, 0.89, n_edges // 2), np.linspace(0.9, 1, n_edges // 2)])
    for _ in range(TESTS):
        rows = minimality(changes, rng.random(100), list(map(str, range(n_edges))), SETTINGS).details["edges"]
        alarms += any(row["superfluous"] for row in rows[n_edges // 2 :])
        p_values.append(rows[n_edges // 2]["p"])
    assert 0 < alarms / TESTS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TESTS)
    # The p-value of an edge at the quantile is uniform but for steps: at most as often below a level as the level says.
    for level in (0.01, 0.05, 0.2, 0.5):
        assert np.mean(np.array(p_values) <= level) <= level + 3 * math.sqrt(level * (1 - level) / TESTS)


def test_other_edges_do_not_hide_a_superfluous_one():
    """84 of 100 is significantly less than 90 % (p = 0.04), with 49 other edges, too."""
    random = np.arange(100) / 100
    test = minimality(np.array([0.835, *[2.0] * 49]), random, list(map(str, range(50))), SETTINGS)
    assert test.details["superfluous"] == ["0"] and test.details["edges"][0]["share"] == 0.84
    np.testing.assert_allclose(test.p, brute_force(range(85), 100, Fraction(9, 10)))


def test_sufficiency_counts_the_circuits_that_are_farther_from_the_model():
    test = sufficiency(0.5, np.array([0.4, 0.5, 0.6, *[0.9] * 97]), SETTINGS)
    assert test.statistic == 0.98 and test.passes  # a tie is not a win
    np.testing.assert_allclose(test.p, brute_force(range(98, 101), 100, Fraction(9, 10)))
    assert sufficiency(0.5, np.full(100, 0.5), SETTINGS).verdict == "fails"
    assert necessity(0.5, np.full(100, 0.5), SETTINGS).verdict == "fails"
    assert necessity(0.6, np.full(100, 0.5), SETTINGS).passes


def run_until_farther_on(own, full, empty, random):
    """Run circuits whose values are the rows of `random` [circuit, example]. Return the result, and the parts."""
    parts = []

    def evaluate(circuits, *, rows, session):
        parts.append(rows)
        return SimpleNamespace(values=random[np.ix_(circuits, rows)])

    return run_until_farther(evaluate, own, full, empty, range(len(random)), Session()), parts


@pytest.mark.parametrize("seed", range(20))
def test_circuits_that_stop_early_are_farther_and_the_others_are_exact(seed):
    rng = np.random.default_rng(seed)
    full, empty = rng.normal(3, 1, 50), rng.normal(0, 1, 50)
    own = full + rng.choice([0, 0.3, 2]) * rng.normal(size=50)
    random = full + np.linspace(0, 2, 40)[:, None] * rng.normal(size=(40, 50))
    random[7] = own  # a tie is not farther
    runs, parts = run_until_farther_on(own, full, empty, random)
    span = full.mean() - empty.mean()
    own_distance, distances = distance(own, full, span), distance(random, full, span)
    assert ((own_distance < runs.distances) == (own_distance < distances)).all()
    on_all = runs.n_examples == 50
    assert (own_distance < distances)[~on_all].all()
    np.testing.assert_allclose(runs.distances[on_all], distances[on_all], atol=1e-6)
    np.testing.assert_allclose(runs.faithfulness[on_all], (random - empty).mean(1)[on_all] / span)
    ran_on = [row for part in parts for row in part]
    assert len({*ran_on}) == len(ran_on) == runs.n_examples.max()


def test_circuits_like_the_empty_one_run_on_the_fewest_examples_that_decide():
    rng = np.random.default_rng(0)
    full, empty = rng.uniform(1, 9, 80), np.zeros(80)
    own = 0.6 * full  # its sum of distances is 0.4 of that of the empty circuit
    fewest = 1 + int(np.searchsorted(np.cumsum(np.sort(full)[::-1]), np.abs(own - full).sum(), side="right"))
    runs, parts = run_until_farther_on(own, full, empty, np.stack([empty, empty, full]))
    assert runs.n_examples.tolist() == [fewest, fewest, 80] and fewest < 0.3 * 80
    assert len(parts[0]) == fewest and min(full[parts[0]]) >= max(np.delete(full, parts[0]))
    np.testing.assert_allclose(runs.distances, [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(runs.faithfulness, [0, 0, 1], atol=1e-12)


def test_too_few_draws_say_how_many_are_needed():
    test = sufficiency(0.0, np.ones(28), SETTINGS)
    assert test.verdict == "too few" and "29" in test.advice and not test.passes
    assert sufficiency(0.0, np.ones(29), SETTINGS).passes
    few = equivalence(np.zeros(20), np.zeros(20), 1.0, SETTINGS)
    assert few.verdict == "too few" and str(examples_needed(0.1, 0.05)) in few.advice
    assert "examples" in independence(np.zeros(3), np.arange(3.0), np.zeros(3), SETTINGS).advice
    assert "at least 2 added paths" in minimality(np.ones(9), np.ones(1), list("abcdefghi"), SETTINGS).advice
    assert "54" in robustness([Condition(str(n), 1.0, 30, 30) for n in range(14)], SETTINGS).advice
    assert completeness(np.ones(10), np.ones(10), 1.0, SETTINGS).verdict == "too few"


def test_an_odd_number_of_examples_that_can_not_pass_is_too_few():
    """The smallest p-value of 77 to 83 examples, if their number is odd, is above 0.05; that of 76 is below."""
    for n in range(76, 90):
        smallest = min(equivalence_p(wins, 0, n, 0.1) for wins in range(n + 1))
        test = equivalence(np.where(np.arange(n) < n // 2, 1.0, -1.0), np.zeros(n), 1.0, SETTINGS)
        assert test.verdict == ("passes" if smallest <= 0.05 else "too few")
        assert test.advice == ("" if test.passes else f"needs at least {n + 1} examples, not {n}")


@pytest.mark.parametrize(
    ("values", "message"),
    [([3.0], "needs at least 5 examples"), ([0.0] * 30, "the model's metric differs; it is the same on all")],
    ids=["one example", "kl of the model"],
)
def test_independence_of_one_number_is_not_tested(values, message):
    other = np.random.default_rng(0).normal(size=len(values)) - 9
    test = independence(other, np.array(values), other, SETTINGS)
    assert test.verdict == "too few" and abs(test.statistic) < 1e-12 and test.p == 1 and message in test.advice


def test_nothing_depends_on_a_constant():
    """Its criterion is 0 but for rounding, of either sign."""
    for seed in range(20):
        numbers = np.random.default_rng(seed).normal(size=30)
        for x, y in ((numbers, np.zeros(30)), (np.zeros(30), numbers)):
            assert permutation_p(x, y, 50, seed)[1] == 1


def test_the_model_is_equivalent_to_itself_and_not_to_a_better_one():
    model = np.random.default_rng(5).normal(size=100)
    same = equivalence(model, model, 1.0, SETTINGS)
    assert same.statistic == 0.5 and same.passes
    assert not equivalence(model + 1e-3, model, 1.0, SETTINGS).passes
    assert equivalence(model + 1e-3, model, 1.0, VerifySettings(tolerance=0.01)).passes
    # The span's sign decides what is better.
    assert equivalence(model + 1, model, -1.0, SETTINGS).statistic == 0


def test_completeness_reports_the_mean_and_the_largest_difference():
    test = completeness(np.array([1.0, 2.0, *[3.0] * 98]), np.array([1.5, 2.1, *[3.0] * 98]), 2.0, SETTINGS)
    np.testing.assert_allclose(test.details["mean_difference"], 0.3 / 100)
    np.testing.assert_allclose(test.details["largest_difference"], 0.25)
    assert test.statistic == 0.99 and test.passes


def test_minimality_names_the_edges_that_matter_no_more_than_random_ones():
    random = np.linspace(0, 0.1, 100)
    test = minimality(np.array([1.0, 0.0, 0.05, 0.5]), random, ["a", "b", "c", "d"], SETTINGS)
    assert test.details["superfluous"] == ["b", "c"] and test.verdict == "fails" and test.statistic == 0.5
    assert minimality(np.array([1.0, 0.5]), random, ["a", "d"], SETTINGS).passes


def test_hsic_is_its_definition():
    x, y = np.random.default_rng(6).normal(size=(2, 15))
    centre = np.eye(15) - 1 / 15
    kernels = [np.exp(-((z[:, None] - z) ** 2) / (2 * 0.7**2)) for z in (x, y)]
    expected = np.trace(kernels[0] @ centre @ kernels[1] @ centre) / 14**2
    np.testing.assert_allclose(hsic(x, y, 0.7, 0.7), expected)
    assert hsic(x, np.ones(15)) == pytest.approx(0, abs=1e-12)
    assert permutation_p(x, x**2, 200, 0)[1] < 0.01 < 0.2 < permutation_p(x, np.ones(15), 50, 0)[1]


def test_robustness_needs_every_condition():
    good, bad = Condition("good", 1.0, 100, 100), Condition("bad", 0.3, 80, 100)
    assert robustness([good] * 5, SETTINGS).passes
    test = robustness([good, bad, Condition("same metric", float("nan"), 0, 100)], SETTINGS)
    assert test.verdict == "fails" and test.statistic == 0.5 and test.details["skipped"] == ["same metric"]


def test_conditions_of_robustness_have_no_verdict_with_too_few_random_circuits():
    test = robustness([Condition("good", 1.0, 10, 10)] * 5, SETTINGS)
    record = {"tests": [{"name": test.name, "verdict": test.verdict, "details": test.details}]}
    assert test.verdict == "too few"
    assert {str(cell) for cell in condition_tables(record, 80)[-1].columns[-1].cells} == {"too few"}


def test_random_paths_choose_incoming_edges_with_equal_probability():
    paths = draw_paths(GRAPH, 40_000, np.random.default_rng(7))
    names = GRAPH.edge_names
    last = Counter(names[edge] for edge in paths[:, 0])
    assert len(last) == GRAPH.n_sources  # every edge into the logits
    for count in last.values():
        assert abs(count - 40_000 / GRAPH.n_sources) < 5 * math.sqrt(40_000 / GRAPH.n_sources)
    into = Counter(names[path[1]] for path in paths if names[path[0]] == "a1.h2->logits")
    assert len(into) == 3 * GRAPH.n_attention_sources(1) and all(name.split("->")[1][:5] == "a1.h2" for name in into)
    expected = sum(into.values()) / len(into)
    assert sum((count - expected) ** 2 / expected for count in into.values()) < 45  # chi-square, 17 degrees of freedom
    for path in paths[:200]:
        edges = path[path >= 0]
        assert names[edges[-1]].startswith("input->") and names[edges[0]].endswith("->logits")
        sources = [names[edge].split("->")[0] for edge in edges[:-1]]
        assert sources == [names[edge].split("->")[1].split("<")[0] for edge in edges[1:]]


def test_random_paths_of_pairs_are_paths_and_choose_incoming_pairs_with_equal_probability():
    graph = SpanGraph(GRAPH, ("S1", "end"))
    paths = draw_paths(graph, 20_000, np.random.default_rng(7))
    for path in paths[:500]:
        edges = path[path >= 0]
        nodes = graph.edge_source[edges[:-1]]
        assert (nodes == graph.edge_target[edges[1:]]).all()  # MLPs are nodes of one span
        assert graph.edge_target[edges[0]] == graph.n_nodes - 1 and graph.edge_source[edges[-1]] == 0
    for node in ("a1.h2", "m1@end", "logits"):
        target = graph.node_names.index(node)
        incoming = np.flatnonzero(graph.edge_target == target)
        read = paths[(paths >= 0) & (graph.edge_target[paths] == target)]
        counts = np.bincount(read, minlength=graph.n_edges)[incoming]
        expected = counts.sum() / len(incoming)
        limit = len(incoming) + 5 * math.sqrt(2 * len(incoming))  # chi-square: mean plus 5 standard deviations
        assert counts.sum() > 500 and ((counts - expected) ** 2 / expected).sum() < limit


@pytest.mark.parametrize("n_edges", [1, 2, 13, 100, 261, 262])
def test_random_circuits_have_their_size_and_are_connected(n_edges):
    rng = np.random.default_rng(8)
    circuits = [draw_circuit(GRAPH, n_edges, rng) for _ in range(20)]
    longest = 2 * GRAPH.n_layers + 1
    assert all(circuit == circuit.prune() and n_edges - longest < circuit.n_edges <= n_edges for circuit in circuits)
    assert draw_circuit(GRAPH, n_edges, np.random.default_rng(9)) == draw_circuit(
        GRAPH, n_edges, np.random.default_rng(9)
    )


def test_random_circuits_can_avoid_a_circuit():
    rng = np.random.default_rng(10)
    circuit = draw_circuit(GRAPH, 40, rng)
    for _ in range(10):
        other = draw_circuit(GRAPH, 40, rng, circuit)
        assert not (other.mask & circuit.mask).any() and other.n_edges > 30
    with pytest.raises(InputError, match="too few paths"):
        draw_circuit(GRAPH, 30, rng, Circuit.full(GRAPH))
    with pytest.raises(InputError, match="1 to 262 edges"):
        draw_circuit(GRAPH, 263, rng)


def kinds(circuit: Circuit) -> Counter:
    """Count edges by kind and layer of both ends: heads lose their number."""
    return Counter(
        tuple(part.split(".")[0] + part[part.find("<") :] * ("<" in part) for part in name.split("->"))
        for name in circuit.edges
    )


def test_matched_circuits_have_as_many_edges_of_each_kind_and_layer():
    rng = np.random.default_rng(11)
    circuit = draw_circuit(GRAPH, 25, rng)
    copies = [draw_matched(circuit, rng) for _ in range(30)]
    for copy in copies:
        assert kinds(copy) == kinds(circuit) and copy == copy.prune() and copy != circuit
    assert len(set(copies)) > 20
    of_pairs = draw_circuit(SpanGraph(GRAPH, ("S1", "end")), 50, rng)
    copy = draw_matched(of_pairs, rng)
    assert kinds(copy) == kinds(of_pairs) and copy == copy.prune() and copy != of_pairs
    neurons = draw_circuit(NeuronGraph(GRAPH), 200, rng)
    copy = draw_matched(neurons, rng)
    by_layer = [Counter(re.sub(r"\.h\d+", "", name) for name in circuit.edges) for circuit in (copy, neurons)]
    assert by_layer[0] == by_layer[1] and copy != neurons
    headless = Circuit.from_edges(GRAPH, ["input->m0", "m0->logits"])
    assert draw_matched(headless, rng) == headless


def test_an_added_path_adds_what_it_says():
    rng = np.random.default_rng(12)
    circuit = draw_circuit(GRAPH, 60, rng)
    for _ in range(20):
        larger, added = add_path(circuit, rng)
        assert len(added) and not circuit.mask[added].any()
        assert larger.n_edges == circuit.n_edges + len(added) and larger == larger.prune()
    with pytest.raises(InputError, match="no random path"):
        add_path(Circuit.full(GRAPH), rng)


def test_node_sets_have_up_to_half_of_the_nodes():
    circuit = draw_circuit(GRAPH, 30, np.random.default_rng(13))
    sets = draw_node_sets(circuit, 200, np.random.default_rng(14))
    n_inner = len(circuit.nodes) - 2
    assert {len(names) for names in sets} == set(range(1, n_inner // 2 + 1))
    assert all(len(set(names)) == len(names) and set(names) <= set(circuit.nodes) for names in sets)


def test_what_one_test_draws_does_not_depend_on_the_others():
    circuit = draw_circuit(GRAPH, 20, np.random.default_rng(15))
    settings = VerifySettings(n_circuits=5)
    everything = plan_verification(circuit, settings).groups
    for name in ("sufficiency", "necessity", "minimality", "completeness"):
        alone = plan_verification(circuit, settings, [name]).groups
        assert all(everything[group] == circuits for group, circuits in alone.items() if circuits)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_circuits": 0}, "n_circuits must be a whole number"),
        ({"quantile": 1.0}, "quantile must lie between 0 and 1"),
        ({"epsilon": 0.5}, "epsilon must lie between 0 and 0.5"),
        ({"alpha": 0}, "alpha must lie"),
        ({"tolerance": -0.1}, "tolerance must be a share"),
    ],
)
def test_impossible_settings(values, message):
    with pytest.raises(InputError, match=message):
        VerifySettings(**values)


def test_circuits_that_can_not_be_tested():
    with pytest.raises(InputError, match="the circuit is empty: there is nothing to test"):
        plan_verification(Circuit.empty(GRAPH))
    with pytest.raises(InputError, match="none of its 1 edges is on a path"):
        plan_verification(Circuit.from_edges(GRAPH, ["input->m0"]))
    with pytest.raises(InputError, match="the whole model"):
        plan_verification(Circuit.full(GRAPH))
    with pytest.raises(InputError, match="there is no test 'power'"):
        plan_verification(draw_circuit(GRAPH, 9, np.random.default_rng(0)), tests=["power"])
    with pytest.raises(InputError, match="completeness cuts heads and MLPs"):
        plan_verification(Circuit.from_edges(GRAPH, ["input->logits"]), tests=["completeness"])
