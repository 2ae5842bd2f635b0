"""The bootstrap: its weights, its intervals, its filter."""

import statistics
from dataclasses import replace
from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import Bootstrap, EdgeScores, Graph, InputError, NoFilter, Shrinkage, summarise
from edgewise.core.statistics import resampling_weights

GRAPH = Graph(1, 1, 2)


def scores(n_examples=20, seed=0, mean=0.0, spread=1.0):
    values = np.random.default_rng(seed).normal(mean, spread, (n_examples, GRAPH.n_edges))
    return EdgeScores(GRAPH, values)


@given(st.integers(1, 30), st.integers(2, 20), st.integers(0, 5))
def test_weights_are_shares_of_examples(n_examples, resamples, seed):
    weights = resampling_weights(n_examples, resamples, seed)
    assert weights.shape == (resamples, n_examples)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights * n_examples, np.round(weights * n_examples), atol=1e-9)


def test_identical_examples_have_no_spread():
    values = np.tile(np.linspace(-1, 1, GRAPH.n_edges), (5, 1))
    result = summarise(EdgeScores(GRAPH, values), Bootstrap(5))
    np.testing.assert_allclose(result.low, result.high, atol=1e-12)
    assert (result.kept == (np.abs(values[0]) > 1e-9)).all()


def coverage(bootstrap):
    """The share of intervals with the true mean inside: 300 data sets of 100 examples, 8 edges each."""
    covered = []
    for seed in range(300):
        result = summarise(scores(100, seed, mean=0.5), replace(bootstrap, seed=seed))
        covered.append((result.low <= 0.5) & (result.high >= 0.5))
    return np.mean(covered)


@pytest.mark.parametrize("interval", ["normal", "percentile"])
def test_intervals_cover_the_true_mean_at_about_their_level(interval):
    # 2400 draws at 0.9: a standard error of 0.006; resampling 100 examples costs about 0.01 of coverage.
    assert 0.87 <= coverage(Bootstrap(200, interval, 0.9)) <= 0.92


@pytest.mark.parametrize("tau", [5, 10, 15, 200])
def test_the_papers_interval_covers_far_less_than_its_level(tau):
    """At 95 %: the half-width is 1.96 s / sqrt(tau), while the centre is off by s sqrt(1 + 1 / tau)."""
    expected = 2 * NormalDist().cdf(1.96 / sqrt(tau + 1)) - 1
    # 2400 draws; that s is itself estimated from tau means costs up to 0.03.
    assert coverage(Bootstrap(tau, "paper")) == pytest.approx(expected, abs=0.045)


def test_shrinkage_by_nothing_is_the_mean():
    np.testing.assert_array_equal(summarise(scores(), Shrinkage(0.0)).score, summarise(scores()).score)


def test_large_scores_are_summarised_in_chunks(monkeypatch):
    whole = summarise(scores(), Bootstrap(5))
    monkeypatch.setattr("edgewise.core.scores.CHUNK_BYTES", 8 * 50)
    pieces = summarise(scores(), Bootstrap(5))
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    error = scores().values.std(0, ddof=1) / np.sqrt(20)
    np.testing.assert_allclose(summarise(scores(), Shrinkage(2)).low, scores().values.mean(0) - 2 * error, rtol=1e-9)
    np.testing.assert_allclose(summarise(scores()).mean, scores().values.mean(0), rtol=1e-12)


@settings(max_examples=30)
@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 19), st.integers(0, GRAPH.n_edges - 1))
def test_scores_that_are_not_finite_raise_with_the_edge(bad, example, edge):
    values = np.zeros((20, GRAPH.n_edges))
    values[example, edge] = bad
    with pytest.raises(InputError, match=f"edge {GRAPH.edge_names[edge]}, example {example}"):
        EdgeScores(GRAPH, values)


@pytest.mark.parametrize(
    "kind, wrong, message",
    [(Bootstrap, {"resamples": 1}, "at least 2"), (Bootstrap, {"interval": "exact"}, "paper, normal, percentile"),
     (Bootstrap, {"confidence": 1.0}, "between 0 and 1"), (Bootstrap, {"threshold": -1}, "at least 0"),
     (Shrinkage, {"kappa": -1.0}, "at least 0")],
)  # fmt: skip
def test_impossible_settings_raise(kind, wrong, message):
    with pytest.raises(InputError, match=message):
        kind(**wrong)
    with pytest.raises(InputError, match="single row"):
        summarise(scores(1), kind())


# An independent slow computation of every field: one edge at a time, plain Python.


def mixed_scores():
    """Scores of edges that are significant, not significant, of both signs, zero, and negligible."""
    rng = np.random.default_rng(5)
    spread = np.array([0.1, 0.1, 1.0, 1.0, 1.0, 0.0, 1e-9, 0.5])
    centre = np.array([1.0, -1.0, 0.1, -0.2, 0.4, 0.0, 0.0, -0.3])
    return EdgeScores(GRAPH, centre + spread * rng.normal(size=(12, GRAPH.n_edges)))


def resampled_means(column, resamples, seed):
    """Return the mean of each resample, row by row."""
    drawn = np.random.default_rng(seed).integers(len(column), size=(resamples, len(column)))
    return [statistics.fmean(column[row] for row in rows) for rows in drawn.tolist()]


def quantile(values, share):
    """Interpolate between the two nearest values."""
    ordered, place = sorted(values), share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def slow_none(column, _):
    mean = statistics.fmean(column)
    return {"mean": mean, "low": mean, "high": mean, "kept": True, "sign_unstable": False, "score": mean}


def slow_bootstrap(column, given):
    means = resampled_means(column, given.resamples, given.seed)
    mean = statistics.fmean(means)
    if given.interval == "percentile":
        low, high = (quantile(means, share) for share in ((1 - given.confidence) / 2, (1 + given.confidence) / 2))
    else:
        z = 1.96 if given.confidence == 0.95 else NormalDist().inv_cdf((1 + given.confidence) / 2)
        half = z * statistics.stdev(means) / (sqrt(given.resamples) if given.interval == "paper" else 1)
        low, high = mean - half, mean + half
    kept = low > given.threshold or high < -given.threshold
    unstable = min(means) < 0 < max(means)
    return {"mean": mean, "low": low, "high": high, "kept": kept, "sign_unstable": unstable, "score": mean * kept}


def slow_shrinkage(column, given):
    mean, half = statistics.fmean(column), given.kappa * statistics.stdev(column) / sqrt(len(column))
    score = max(0.0, mean - half) + min(0.0, mean + half)
    sides = {"mean": mean, "low": mean - half, "high": mean + half}
    return sides | {"kept": score != 0, "sign_unstable": False, "score": score}


FILTERED = [
    (NoFilter(), slow_none),
    (Bootstrap(), slow_bootstrap),
    (Bootstrap(7, "normal", 0.9, seed=2), slow_bootstrap),
    (Bootstrap(40, "percentile", 0.8, 0.15, seed=4), slow_bootstrap),
    (Bootstrap(5, "paper", 0.99, 0.25, seed=6), slow_bootstrap),
    (Shrinkage(1.0), slow_shrinkage),
    (Shrinkage(2.5), slow_shrinkage),
]


@pytest.mark.parametrize("given_filter, slow", FILTERED, ids=lambda one: getattr(one, "__name__", repr(one)))
def test_every_field_equals_a_slow_computation(given_filter, slow):
    given_scores = mixed_scores()
    result = summarise(given_scores, given_filter)
    expected = [slow(column, given_filter) for column in given_scores.values.T.tolist()]
    for name in ("mean", "low", "high", "score"):
        values = [edge[name] for edge in expected]
        np.testing.assert_allclose(getattr(result, name), values, rtol=1e-9, atol=1e-15, err_msg=name)
    for name in ("kept", "sign_unstable"):
        assert getattr(result, name).tolist() == [edge[name] for edge in expected], name
    if not isinstance(given_filter, NoFilter):
        assert 0 < result.kept.sum() < GRAPH.n_edges
    np.testing.assert_array_equal(result.ranking.value, result.score)
    np.testing.assert_array_equal(result.ranking.kept, result.kept)
    # The share of edges of both signs among those of non-negligible mean.
    relevant = [edge for edge in expected if abs(edge["mean"]) > 1e-6]
    assert len(relevant) < GRAPH.n_edges
    assert result.sign_instability == pytest.approx(sum(edge["sign_unstable"] for edge in relevant) / len(relevant))


def test_sign_instability_by_hand():
    """A resample of two examples repeats one of them or has both. Repeats show the edges of both signs."""
    values = np.array([[1.0, 1, 3, -1, -1, 1e-9, 0, 2], [2.0, -3, -1, -2, 3, -3e-9, 0, 1]])
    result = summarise(EdgeScores(GRAPH, values), Bootstrap(40))
    assert result.sign_unstable.tolist() == [False, True, True, False, True, True, False, False]
    # Two of eight edges are negligible; three of the others have both signs.
    assert result.sign_instability == pytest.approx(3 / 6)
    steady = summarise(EdgeScores(GRAPH, np.abs(values) + 1), Bootstrap(40))
    assert steady.sign_instability == 0
    nothing = summarise(EdgeScores(GRAPH, values * 1e-9), Bootstrap(40))
    assert nothing.sign_unstable.sum() == 4 and nothing.sign_instability == 0


def test_impossible_statistics_raise():
    result = summarise(scores(), Bootstrap())
    for name in ("mean", "low", "high", "kept", "sign_unstable", "score"):
        with pytest.raises(InputError, match=f"{name} has shape"):
            replace(result, **{name: getattr(result, name)[1:]})
        with pytest.raises(ValueError, match="read-only"):
            getattr(result, name)[0] = 0
    with pytest.raises(InputError, match="low end below"):
        replace(result, low=result.high, high=result.low)
    with pytest.raises(InputError, match="finite"):
        replace(result, mean=np.full(GRAPH.n_edges, np.nan))
