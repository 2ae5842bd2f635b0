"""Rankings: what selection reads, from statistics or from anywhere else."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import Graph, Greedy, Ilp, InputError, Ranking, SelectionProblem, TopN, solve
from edgewise.graph import NeuronGraph, NodeGraph, SpanGraph

GRAPH = Graph(2, 2, 2)
N = GRAPH.n_edges


@pytest.mark.parametrize("shape", [(N - 1,), (N + 1,), (1, N), (N, 1), ()])
def test_a_ranking_of_the_wrong_shape_raises(shape):
    with pytest.raises(InputError, match=f"the graph has {N} edges"):
        Ranking(GRAPH, np.ones(shape))
    with pytest.raises(InputError, match=f"kept has shape.*the graph has {N} edges"):
        Ranking(GRAPH, np.ones(N), kept=np.ones(shape, bool))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("signed", [True, False])
def test_values_that_are_not_finite_raise(bad, signed):
    value = np.ones(N)
    value[3] = bad
    with pytest.raises(InputError, match="must be finite"):
        Ranking(GRAPH, value, signed)


def test_a_ranking_without_signs_has_no_negative_values():
    value = np.ones(N)
    value[-1] = -1e-300
    assert (Ranking(GRAPH, value).value == value).all()
    with pytest.raises(InputError, match=r"without signs.*at least 0"):
        Ranking(GRAPH, value, signed=False)
    assert not Ranking(GRAPH, np.zeros(N), signed=False).signed


@pytest.mark.parametrize("graph", [GRAPH, NodeGraph(GRAPH), NeuronGraph(GRAPH), SpanGraph(GRAPH, ("S 1", "é@x", "終"))])
@pytest.mark.parametrize("is_filtered", [False, True])
def test_saving_then_loading_changes_nothing(graph, is_filtered, tmp_path):
    """A recipe that never selects edges that failed the filter must find them in the folder."""
    rng = np.random.default_rng(0)
    value, kept = rng.normal(size=graph.n_edges), rng.random(graph.n_edges) < 0.5
    ranking = Ranking(graph, value, True, kept if is_filtered else None, {"method": "é"}, rng.random((2, len(value))))
    ranking.save(tmp_path / "é x")
    again = Ranking.load(tmp_path / "é x")
    assert again.digest == ranking.digest and (again.kept is None) == (not is_filtered)
    assert again.origin == ranking.origin and (again.resampled == ranking.resampled).all()
    Ranking(graph, value).save(tmp_path / "é x", overwrite=True)
    assert Ranking.load(tmp_path / "é x").kept is None


@pytest.mark.parametrize("rank", ["signed", "absolute"])
def test_a_share_of_positive_edges_needs_signs(rank):
    unsigned = Ranking(GRAPH, np.arange(N), signed=False)
    for pnr in (0.0, 0.5, 1.0):
        with pytest.raises(InputError, match="has no signs; leave PNR out"):
            SelectionProblem.of(unsigned, rank, 5, pnr)
    assert SelectionProblem.of(unsigned, rank, 5).least_positive == 0
    assert SelectionProblem.of(Ranking(GRAPH, np.arange(N)), rank, 5, 0.5).least_positive == 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, N), st.sampled_from([Greedy(), TopN(), Ilp()]), st.booleans())
def test_without_signs_both_kinds_of_values_select_the_same(seed, budget, solver, ties):
    rng = np.random.default_rng(seed)
    value = rng.integers(0, 4, N).astype(float) if ties else rng.exponential(size=N)
    ranking = Ranking(GRAPH, value, signed=False)
    by_sign, by_size = (
        solve(SelectionProblem.of(ranking, rank, budget), solver=solver) for rank in ("signed", "absolute")
    )
    assert by_sign.circuit == by_size.circuit and by_sign.objective == by_size.objective


def test_absolute_values_forget_the_sign_but_not_which_edges_help():
    value = np.where(np.arange(N) % 2, -1.0, 1.0) * np.arange(N)
    signed, absolute = (SelectionProblem.of(Ranking(GRAPH, value), rank, 4) for rank in ("signed", "absolute"))
    np.testing.assert_array_equal(signed.value, value)
    np.testing.assert_array_equal(absolute.value, np.arange(N))
    for problem in (signed, absolute):
        np.testing.assert_array_equal(problem.is_positive, [edge > 0 and edge % 2 == 0 for edge in range(N)])
    built = SelectionProblem.build(GRAPH, value, "absolute", 4, 0.5)
    np.testing.assert_array_equal(built.value, absolute.value)


def test_the_digest_changes_with_everything_a_selection_depends_on():
    value, kept = np.arange(N, dtype=float), np.arange(N) > 3
    same_edges = Graph(2, 2, 4)
    assert same_edges.n_edges == N
    rankings = [
        Ranking(GRAPH, value),
        Ranking(GRAPH, value, signed=False),
        Ranking(GRAPH, value[::-1]),
        Ranking(GRAPH, value, kept=kept),
        Ranking(GRAPH, value, kept=~kept),
        Ranking(same_edges, value),
    ]
    assert len({ranking.digest for ranking in rankings}) == len(rankings)
    assert Ranking(GRAPH, value.copy(), origin={"from": "elsewhere"}).digest == rankings[0].digest
