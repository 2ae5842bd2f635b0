"""Intervals of areas: what is resampled, how often they cover the truth, and paired comparisons."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise import CMD, CPR, InputError
from edgewise.evaluate import Curve, MibFaithfulness, RatioFaithfulness
from edgewise.evaluate.curve import areas
from edgewise.evaluate.intervals import NOT_SIGNIFICANT, Resampled, compare, faithfulness_intervals, resample

SHARES = (0.1, 0.3, 0.6, 1.0)
HEIGHTS = np.array([0.2, 0.6, 1.1, 1.0])


def draw(n_examples, seed, heights=HEIGHTS, noise=0.5):
    """Examples of a model with mean metric 3 and an empty circuit of mean 1: a curve of known faithfulness."""
    rng = np.random.default_rng(seed)
    full, empty = rng.normal(3, 1, n_examples), rng.normal(1, 0.5, n_examples)
    values = 1 + 2 * heights[:, None] + rng.normal(0, noise, (len(heights), n_examples)) + 0.5 * (full - 3)
    values[-1] = full
    counts = tuple(range(len(heights)))
    return Curve(SHARES, counts, counts, values, full, empty)


@pytest.mark.parametrize("measure", [CPR, CMD])
@pytest.mark.parametrize("definition", [MibFaithfulness(), RatioFaithfulness()])
def test_a_resample_is_the_area_of_the_curve_of_the_drawn_examples(measure, definition):
    whole = replace(draw(15, 0), definition=definition)
    drawn = np.random.default_rng(7).integers(15, size=(20, 15))
    expected = [whole.subset(rows).area(measure) for rows in drawn]
    np.testing.assert_allclose(resample(whole, measure, 20, 7).draws, expected, rtol=1e-9)


NEAR = np.array([0.3, 0.98, 1.0, 1.0])


# By hand: CPR = 0.2 * 0.4 + 0.3 * 0.85 + 0.4 * 1.05, CMD = 0.2 * 0.6 + 0.3 * 0.25 + 0.4 * 0.05; near 1, 0.2 * 0.36 +
# 0.3 * 0.01. There a percentile interval would cover a third, because resampled distances are too large.
@pytest.mark.parametrize(
    "measure, heights, noise, truth",
    [(CPR, HEIGHTS, 0.5, 0.755), (CMD, HEIGHTS, 0.5, 0.215), (CMD, NEAR, 0.5, 0.075), (CMD, NEAR, 2.0, 0.075)],
)
def test_intervals_cover_the_true_area_at_about_their_level(measure, heights, noise, truth):
    """300 evaluations of 100 examples each."""
    result = [resample(draw(100, seed, heights, noise), measure, 400, seed).interval() for seed in range(300)]
    # 300 draws at 0.95: a standard error of 0.013. Absolute values cost CMD up to 0.03 of coverage.
    assert 0.88 <= np.mean([interval.low <= truth <= interval.high for interval in result]) <= 0.98


@pytest.mark.parametrize("heights", [HEIGHTS, NEAR])
def test_paired_intervals_cover_the_true_difference_at_their_level_or_above(heights):
    """300 pairs of recipes, one of which is less faithful by known amounts."""
    less, covered = np.array([0.05, 0.02, 0.02, 0.0]), []
    truth = areas(SHARES, np.abs(1 - heights + less)) - areas(SHARES, np.abs(1 - heights))
    for seed in range(300):
        one, rng = draw(100, seed, heights), np.random.default_rng(10**6 + seed)
        values = one.values - 2 * less[:, None] + rng.normal(0, 0.25, one.values.shape) * (less[:, None] > 0)
        result = compare(replace(one, values=values), one, CMD, 400, seed=seed)
        covered.append(result.low <= truth <= result.high)
    # Where curves are near 1 and absolute values bend, intervals are wide rather than wrong.
    assert 0.9 <= np.mean(covered) <= (0.98 if heights is HEIGHTS else 1.0)


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("heights", [np.ones(4), NEAR, HEIGHTS])
def test_the_noisier_of_two_equal_recipes_is_rarely_called_worse(heights, noise):
    """One true curve, measured with noise of 0.5 and with more. Where it is 1, noise adds distance to one of them: a
    percentile interval would be wrong in 0.22 of the cases with noise of 2."""
    wrong = 0
    for seed in range(200):
        one, rng = draw(100, seed, heights), np.random.default_rng(seed + 10**6)
        values = 1 + 2 * heights[:, None] + rng.normal(0, noise, one.values.shape) + 0.5 * (one.full - 3)
        values[-1] = one.full
        result = compare(replace(one, values=values), one, CMD, 400, seed=seed)
        wrong += result.is_better or result.is_worse
    # 200 draws have a standard error of 0.015 at 0.05; absolute values cost up to 0.02 more.
    assert wrong / 200 <= 0.11


def test_a_paired_interval_is_narrower_than_the_two_it_compares_and_than_one_of_a_higher_level():
    one, other = draw(60, 0), draw(60, 0, HEIGHTS - [0.05, 0.05, 0.05, 0])
    result = compare(one, other, CPR)
    wide = [resample(curve, CPR).interval() for curve in (one, other)]
    assert result.high - result.low < 0.2 * min(i.high - i.low for i in wide)
    assert result.is_better and not result.is_worse and result.p < 0.05
    assert result.difference == pytest.approx(one.cpr - other.cpr)
    back = compare(other, one, CPR)
    assert (back.low, back.high, back.p) == (pytest.approx(-result.high), pytest.approx(-result.low), result.p)
    assert back.is_worse and not back.is_better
    wide, narrow = (compare(one, other, CPR, confidence=level) for level in (0.99, 0.5))
    assert wide.difference == narrow.difference and wide.low < narrow.low < narrow.high < wide.high


def test_lower_is_better_for_cmd():
    near, far = draw(60, 0, np.array([0.8, 0.9, 0.95, 1.0])), draw(60, 0, np.array([0.2, 0.4, 0.6, 1.0]))
    assert compare(near, far, CMD).is_better and compare(far, near, CMD).is_worse


def test_equal_recipes_do_not_differ():
    result = compare(draw(30, 0), draw(30, 0), CMD)
    assert (result.difference, result.low, result.high, result.p) == (0, 0, 0, 1)
    assert not result.is_better and not result.is_worse


@pytest.mark.parametrize("measure", [CPR, CMD])
@pytest.mark.parametrize("copies", [1, 2, 12])
def test_copies_of_one_example_are_never_significant(measure, copies):
    """However different two recipes are: all resamples are equal up to rounding."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        one, other = (draw(1, seed, HEIGHTS * rng.uniform(0.5, 1.5)) for _ in range(2))
        many = [curve.subset(np.zeros(copies, int)) for curve in (one, other)]
        result = compare(*many, measure)
        assert result.difference != 0 and result.low == result.high == result.difference and result.p == 1
        assert result.verdict == "no significant difference" and not result.is_better and not result.is_worse
        alone = resample(many[0], measure).interval()
        assert alone.low == pytest.approx(alone.estimate) == pytest.approx(alone.high)


def test_p_values_of_recipes_without_a_difference_are_about_uniform():
    """300 pairs of recipes that differ by noise only: p is below 0.1 in about a tenth."""
    small = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        one = draw(80, seed)
        values = np.vstack([one.values[:-1] + rng.normal(0, 0.3, (3, 80)), one.full])
        small += compare(one, replace(one, values=values), CPR, 400, seed=seed).p < 0.1
    # A standard error of 0.017.
    assert 0.05 <= small / 300 <= 0.16


@pytest.mark.parametrize("estimate, draws, p", [(2.0, [1.0, 2.0, 3.0], 0.5), (1.0, [-1.0, 1.0, 2.0] * 33, 0.68)])
def test_p_counts_the_smaller_tail_twice_and_is_never_zero(estimate, draws, p):
    zero = Resampled(CPR, 0.0, np.zeros(len(draws)), 100)
    assert Resampled(CPR, estimate, np.array(draws), 100).minus(zero).p == pytest.approx(p)


@pytest.mark.parametrize("n_examples", range(2, 8))
def test_few_examples_are_no_more_significant_than_their_signs(n_examples):
    """Two examples agree by chance in half of all cases, and then so do all their resamples. Oracle: a sign test."""
    one = draw(n_examples, 0)
    better = replace(one, values=one.values + np.arange(1, n_examples + 1))
    result = compare(better, one, CPR, 200)
    assert result.p >= 2.0 ** (1 - n_examples) and result.low <= result.difference <= result.high
    assert result.is_better == (n_examples >= 6) == (result.low > 0)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_a_difference_is_significant_if_and_only_if_p_is_at_most_the_level(confidence):
    verdicts = set()
    for seed in range(300):
        one, other = (np.random.default_rng([seed, part]).normal(size=(8, 1)) for part in range(2))
        equal = draw(8, seed)
        shifted = replace(equal, values=equal.values + 0.3 * one.T), replace(equal, values=equal.values + 0.3 * other.T)
        result = compare(*shifted, CPR, 200, confidence)
        is_significant = result.verdict != NOT_SIGNIFICANT
        assert is_significant == (result.p <= 1 - confidence) == (not result.low <= 0 <= result.high)
        verdicts.add(is_significant)
    assert verdicts == ({False} if confidence == 0.999 else {True, False})  # of 200 draws, p is at least 0.00995


def test_impossible_comparisons_raise():
    with pytest.raises(InputError, match="same examples"):
        compare(draw(10, 0), draw(10, 1), CPR)
    with pytest.raises(InputError, match="same examples"):
        compare(draw(10, 0), draw(12, 0), CPR)
    other_sizes = replace(draw(10, 0), shares=(0.1, 0.3, 0.6, 0.7))
    with pytest.raises(InputError, match="over the same sizes"):
        compare(draw(10, 0), other_sizes, CPR)
    with pytest.raises(InputError, match=r"\(mib\) and .* \(ratio\)"):
        compare(draw(10, 0), replace(draw(10, 0), definition=RatioFaithfulness()), CPR)
    with pytest.raises(InputError, match="at least 2"):
        resample(draw(10, 0), CPR, 1)
    for name, value in (("resamples", "10"), ("resamples", 10.5), ("seed", -1), ("seed", 1.5)):
        with pytest.raises(InputError, match=name):
            compare(draw(10, 0), draw(10, 0), CPR, **{name: value})
    with pytest.raises(InputError, match="between 0 and 1"):
        resample(draw(10, 0), CPR).interval(95)


def test_undefined_resamples_are_left_out():
    """The empty circuit does one of two examples as well as the model: a quarter of all resamples is undefined."""
    full, empty = np.array([3.0, 1.0]), np.array([0.0, 1.0])
    values = np.array([[0.0, 1.0], [1.5, 1.0], [3.0, 1.0]])
    curve = Curve((0.1, 0.5, 1.0), (1, 5, 10), (1, 5, 10), values, full, empty)
    draws = resample(curve, CMD, 2000, 0).draws
    undefined = np.isnan(draws)
    assert 0.2 < undefined.mean() < 0.3
    # In all others the first example alone decides.
    assert np.allclose(draws[~undefined], curve.cmd)
    assert resample(curve, CMD).interval().low == pytest.approx(curve.cmd)
    assert compare(curve, curve, CMD).p == 1.0


def test_intervals_of_faithfulness_cover_at_their_level():
    """Metrics of known means: the full model 2, the empty circuit 0, circuits in between."""
    truth, held = np.array([0.3, 0.9, 1.2]), []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        full, empty = 2 + rng.normal(size=50) * 0.5, rng.normal(size=50) * 0.5
        values = truth[:, None] * 2 + rng.normal(size=(3, 50)) * 0.5
        result = faithfulness_intervals(values, full, empty, resamples=400, seed=seed)
        held.append([interval.low <= at <= interval.high for interval, at in zip(result, truth, strict=True)])
        estimates = (values.mean(1) - empty.mean()) / (full - empty).mean()
        assert [interval.estimate for interval in result] == pytest.approx(estimates)
    # 900 draws of probability 0.95 have a standard deviation of 0.7 %; the interval of 50 rows is about 1 % narrow.
    assert 0.92 < np.mean(held) < 0.97
