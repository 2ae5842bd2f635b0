"""The bootstrap: its weights, its intervals, its filter."""

from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import Bootstrap, EdgeScores, Graph, InputError, summarise
from edgewise.statistics import Shrinkage, resampling_weights

GRAPH = Graph(1, 1, 2)


def scores(n_examples=20, seed=0, mean=0.0, spread=1.0):
    values = np.random.default_rng(seed).normal(mean, spread, (n_examples, GRAPH.n_edges))
    return EdgeScores(GRAPH, values)


def test_without_a_bootstrap_the_score_is_the_mean_and_all_is_kept():
    found = summarise(scores())
    np.testing.assert_allclose(found.score, scores().values.mean(0))
    assert found.kept.all() and found.sign_instability == 0


def test_a_resample_is_a_re_weighting_of_rows():
    given_scores, bootstrap = scores(), Bootstrap(7, seed=3)
    drawn = np.random.default_rng(3).integers(20, size=(7, 20))
    means = np.stack([given_scores.values[rows].mean(0) for rows in drawn])
    found = summarise(given_scores, bootstrap)
    np.testing.assert_allclose(found.mean, means.mean(0), rtol=1e-12)
    half = 1.96 * means.std(0, ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(found.low, means.mean(0) - half, rtol=1e-9)
    np.testing.assert_allclose(found.high, means.mean(0) + half, rtol=1e-9)
    assert (found.sign_unstable == ((means > 0).any(0) & (means < 0).any(0))).all()


@given(st.integers(1, 30), st.integers(2, 20), st.integers(0, 5))
def test_weights_are_shares_of_examples(n_examples, resamples, seed):
    weights = resampling_weights(n_examples, resamples, seed)
    assert weights.shape == (resamples, n_examples)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights * n_examples, np.round(weights * n_examples), atol=1e-9)


def test_the_papers_interval_is_narrower_by_the_root_of_tau():
    widths = {}
    for interval in ("paper", "normal"):
        found = summarise(scores(), Bootstrap(16, interval))
        widths[interval] = found.high - found.low
    np.testing.assert_allclose(widths["normal"], 4 * widths["paper"])


def test_an_edge_is_kept_if_its_interval_lies_on_its_means_side_of_the_threshold():
    found = summarise(scores(mean=0.3), Bootstrap(10, "normal", threshold=0.1))
    expected = np.where(found.mean > 0, found.low > 0.1, found.high < -0.1)
    assert (found.kept == expected).all() and 0 < found.kept.sum() < GRAPH.n_edges
    assert (found.score[~found.kept] == 0).all()
    np.testing.assert_array_equal(found.score[found.kept], found.mean[found.kept])


def test_identical_examples_have_no_spread_and_all_edges_of_any_score_are_kept():
    values = np.tile(np.linspace(-1, 1, GRAPH.n_edges), (5, 1))
    found = summarise(EdgeScores(GRAPH, values), Bootstrap(5))
    np.testing.assert_allclose(found.low, found.high, atol=1e-12)
    assert (found.kept == (np.abs(values[0]) > 1e-9)).all()


@pytest.mark.parametrize("interval", ["normal", "percentile"])
def test_intervals_cover_the_true_mean_at_about_their_level(interval):
    """300 data sets of 100 examples: the share of intervals with the true mean inside, 8 edges each."""
    covered = []
    for seed in range(300):
        found = summarise(scores(100, seed, mean=0.5), Bootstrap(200, interval, 0.9, seed=seed))
        covered.append((found.low <= 0.5) & (found.high >= 0.5))
    # 2400 draws at 0.9: a standard error of 0.006; resampling 100 examples costs about 0.01 of coverage.
    assert 0.87 <= np.mean(covered) <= 0.92


@pytest.mark.parametrize("tau", [5, 10, 15, 200])
def test_the_papers_interval_covers_far_less_than_its_level(tau):
    """At 95 %: the half-width is 1.96 s / sqrt(tau), while the centre is off by s sqrt(1 + 1 / tau)."""
    covered = []
    for seed in range(300):
        found = summarise(scores(100, seed, mean=0.5), Bootstrap(tau, "paper", seed=seed))
        covered.append((found.low <= 0.5) & (found.high >= 0.5))
    expected = 2 * NormalDist().cdf(1.96 / sqrt(tau + 1)) - 1
    # 2400 draws; that s is itself estimated from tau means costs up to 0.03.
    assert np.mean(covered) == pytest.approx(expected, abs=0.045)


@given(st.floats(0, 4))
def test_shrinkage_takes_standard_errors_off_and_keeps_signs(kappa):
    given_scores = scores(mean=0.2)
    mean = given_scores.values.mean(0)
    error = given_scores.values.std(0, ddof=1) / np.sqrt(20)
    found = summarise(given_scores, Shrinkage(kappa))
    np.testing.assert_allclose(found.score, np.sign(mean) * np.maximum(0, np.abs(mean) - kappa * error), atol=1e-12)
    assert (found.kept == (found.score != 0)).all()


def test_shrinkage_by_nothing_is_the_mean():
    np.testing.assert_array_equal(summarise(scores(), Shrinkage(0.0)).score, summarise(scores()).score)
    with pytest.raises(InputError, match="at least 0"):
        Shrinkage(-1.0)


def test_large_scores_are_summarised_in_chunks(monkeypatch):
    whole = summarise(scores(), Bootstrap(5))
    monkeypatch.setattr("edgewise.scores.CHUNK_BYTES", 8 * 50)
    pieces = summarise(scores(), Bootstrap(5))
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    error = scores().values.std(0, ddof=1) / np.sqrt(20)
    np.testing.assert_allclose(summarise(scores(), Shrinkage(2)).low, scores().values.mean(0) - 2 * error, rtol=1e-9)
    np.testing.assert_allclose(summarise(scores()).mean, scores().values.mean(0), rtol=1e-12)


@settings(max_examples=30)
@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 19), st.integers(0, GRAPH.n_edges - 1))
def test_scores_that_are_not_finite_are_refused_by_edge(bad, example, edge):
    values = np.zeros((20, GRAPH.n_edges))
    values[example, edge] = bad
    with pytest.raises(InputError, match=f"edge {GRAPH.edge_names[edge]}, example {example}"):
        EdgeScores(GRAPH, values)


@pytest.mark.parametrize(
    "wrong, words",
    [({"resamples": 1}, "at least 2"), ({"interval": "exact"}, "paper, normal, percentile"),
     ({"confidence": 1.0}, "between 0 and 1"), ({"threshold": -1}, "at least 0")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        Bootstrap(**wrong)


def test_a_single_row_has_nothing_to_resample():
    with pytest.raises(InputError, match="single row"):
        summarise(scores(1), Bootstrap())
