"""Intervals of faithfulness, CPR and CMD: a bootstrap over the evaluated examples, and paired comparisons. NumPy only.

A resample draws examples with replacement and recomputes everything from them: the metric of every circuit, of the full
and of the empty one, then faithfulness, then the area. The circuits stay the same: these intervals say how much the
evaluation would change with other examples, not how much the circuit would.

CMD takes absolute values, so resampling a curve near 1 adds distance that isn't there: the draws lie above the estimate
as the estimate lies above the truth, and more so for the noisier of two recipes. A percentile interval takes the draws
as they are, a basic one mirrors them at the estimate. Each is wrong in some cases. Intervals here contain both: they
reach as far to either side of the estimate as the farther tail of the draws, and p is the larger of the two
(measured in tests/test_intervals.py).

Resamples of few examples all have the sign that the examples have. Without a true difference, n examples have the same
sign by chance with probability 2^(1 - n), as in a sign test. So p is never below that: 95 % needs 6 examples.

The interval of a difference contains 0 if and only if p is above its level, unless all resamples are equal. So it is
widened where quantiles, which lie between two draws, and p, which counts draws, disagree; or where p can't be as small
as the level, because of few examples or few resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.statistics import MAX_RESAMPLES, percentile_interval, resampling_weights
from ..errors import InputError, check_number
from ..method import check_is
from .curve import Curve, areas
from .measures import MIB, Faithfulness, Measure, faithfulness

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
NOT_SIGNIFICANT = "no significant difference"
CONFIDENCE = 0.95
# Draws that differ by less are equal up to rounding. The unit of areas is the model's own performance.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Interval:
    """A number and its bootstrap interval over resamples of the examples."""

    estimate: float
    low: float
    high: float
    confidence: float

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """The area of one recipe minus that of another on the same examples, its interval, and a two-sided bootstrap p.

    `measure` says which sign is an improvement: plus for CPR, minus for CMD. If all resamples are equal, as those of a
    single example are, the interval has no width, p is 1 and the difference is not significant. Few examples are never
    significant.
    """

    measure: Measure
    difference: float
    low: float
    high: float
    p: float
    confidence: float

    @property
    def is_better(self) -> bool:
        """Whether the whole interval lies on the better side of 0."""
        return self._excludes_zero and self.measure.better * self.difference > 0

    @property
    def is_worse(self) -> bool:
        """Whether the whole interval lies on the worse side of 0."""
        return self._excludes_zero and self.measure.better * self.difference < 0

    @property
    def _excludes_zero(self) -> bool:
        return self.low < self.high and (self.low > 0 or self.high < 0)

    @property
    def verdict(self) -> str:
        """'better', 'worse' or 'no significant difference', at the level of the interval."""
        return "better" if self.is_better else "worse" if self.is_worse else NOT_SIGNIFICANT

    def record(self) -> dict[str, Any]:
        """Return all fields but the measure, as plain data for JSON."""
        return {name: value for name, value in vars(self).items() if name != "measure"}


@dataclass(frozen=True, eq=False)
class Resampled:
    """A measure's area, or its curve's height at one size, and its values on resamples of `n_examples` examples.

    `draws` [resample] are NaN where a resample leaves faithfulness undefined, which can happen with very few examples.
    """

    measure: Measure
    estimate: float
    draws: FloatArray
    n_examples: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the estimate with its interval, cut off at the measure's least value."""
        reach, least = _reach(self.estimate, self.draws, confidence), self.measure.least
        return Interval(self.estimate, max(self.estimate - reach, least), self.estimate + reach, confidence)

    def minus(self, other: Resampled, confidence: float = CONFIDENCE) -> Comparison:
        """Compare with another one, resample by resample. Both must come from the same examples and seed."""
        difference, draws = self.estimate - other.estimate, self.draws - other.draws
        least_p = 2.0 ** (1 - min(self.n_examples, other.n_examples))
        reach, p = _reach(difference, draws, confidence), max(_tail(draws, 0.0), _tail(draws, 2 * difference), least_p)
        if p > 1 - confidence:
            reach = max(reach, abs(difference))
        if np.ptp(draws[np.isfinite(draws)]) <= ROUNDING:
            reach, p = 0.0, 1.0
        return Comparison(self.measure, difference, difference - reach, difference + reach, p, confidence)


def resample(curve: Curve, measure: Measure, resamples: int = RESAMPLES, seed: int = 0) -> Resampled:
    """Return the area of a curve on resampled examples. Equal seeds draw equal examples, so differences are paired."""
    check_number("resamples", resamples, whole=True)
    if not 2 <= resamples <= MAX_RESAMPLES:
        raise InputError(f"an interval needs at least 2 resamples and at most {MAX_RESAMPLES}, not {resamples}")
    check_is("measure", Measure, measure)
    draws = areas(curve.shares, _draw_heights(curve, measure, resamples, seed))
    return Resampled(measure, curve.area(measure), draws, len(curve.full))


def resample_heights(curve: Curve, measure: Measure) -> tuple[Resampled, ...]:
    """Return the height of a curve at every size on resampled examples, the same ones for all curves."""
    heights, draws = measure.height(curve.faithfulness).tolist(), _draw_heights(curve, measure, RESAMPLES, 0)
    n_examples = len(curve.full)
    return tuple(Resampled(measure, *pair, n_examples) for pair in zip(heights, draws.T, strict=True))


def _draw_heights(curve: Curve, measure: Measure, resamples: int, seed: int) -> FloatArray:
    """Return the heights [resample, size] of a curve on resampled examples."""
    return measure.height(_draw(curve.values, curve.full, curve.empty, curve.definition, resamples, seed))


def _draw(
    values: FloatArray, full: FloatArray, empty: FloatArray, definition: Faithfulness, resamples: int, seed: int
) -> FloatArray:
    """Return faithfulness [resample, circuit] on resampled examples; NaN where it is undefined."""
    weights = resampling_weights(len(full), resamples, seed)
    return definition.compute(weights @ values.T, weights @ full[:, None], weights @ empty[:, None])


def mean_resampled(parts: Sequence[Resampled]) -> Resampled:
    """Return the mean of areas on several sets of examples, resample by resample."""
    estimate = float(np.mean([part.estimate for part in parts]))
    draws, n_examples = np.mean([part.draws for part in parts], axis=0), min(part.n_examples for part in parts)
    return Resampled(parts[0].measure, estimate, draws, n_examples)


def compare(
    curve: Curve,
    other: Curve,
    measure: Measure,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Comparison:
    """Compare the area of `curve` with that of `other` on the same resamples of the same examples.

    Parameters
    ----------
    curve, other
        Curves over the same sizes and the same examples.
    measure
        The area to compare: `CMD` or `CPR`.
    resamples, confidence, seed
        Of the paired bootstrap over examples.

    Returns
    -------
    Comparison
        The area of `curve` minus that of `other`, its interval, and whether it is significant.

    Raises
    ------
    InputError
        If the curves have other examples, other sizes, or other definitions of faithfulness.

    Examples
    --------
    >>> greedy, ilp = discovery.of(edgewise.CMD)[:2]
    >>> edgewise.compare(ilp.curve, greedy.curve, edgewise.CMD).difference
    """
    if curve.full.shape != other.full.shape or not ((curve.full == other.full) & (curve.empty == other.empty)).all():
        raise InputError(
            f"a paired comparison needs curves on the same examples, but these have {len(curve.full)} and "
            f"{len(other.full)} examples or other values of the full and empty circuit"
        )
    if (curve.shares, curve.definition) != (other.shares, other.definition):
        raise InputError(
            "areas are compared over the same sizes and by the same definition of faithfulness, but these are over "
            f"{curve.shares} ({curve.definition.name}) and {other.shares} ({other.definition.name})"
        )
    return resample(curve, measure, resamples, seed).minus(resample(other, measure, resamples, seed), confidence)


def faithfulness_intervals(
    values: FloatArray,
    full: FloatArray,
    empty: FloatArray,
    definition: Faithfulness = MIB,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[Interval, ...]:
    """Return the faithfulness of every circuit with its interval.

    values       [circuit, example] the metric of each circuit
    full, empty  [example] the metric of the full and of the empty circuit
    """
    estimates = faithfulness(values.mean(1), float(full.mean()), float(empty.mean()), definition).tolist()
    intervals = []
    for estimate, draws in zip(estimates, _draw(values, full, empty, definition, resamples, seed).T, strict=True):
        reach = _reach(estimate, draws, confidence)
        intervals.append(Interval(estimate, estimate - reach, estimate + reach, confidence))
    return tuple(intervals)


def _reach(estimate: float, draws: FloatArray, confidence: float) -> float:
    """Return the distance from the estimate to the farther tail of the draws that are defined."""
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        raise InputError("faithfulness is undefined in every resample of the evaluated examples; give more examples")
    low, high = percentile_interval(defined, confidence)
    return max(estimate - float(low), float(high) - estimate, 0.0)


def _tail(draws: FloatArray, value: float) -> float:
    """Return twice the share of draws on the rarer side of a value.

    The observed data count as one more resample, so the result is never 0. It is 1 if all draws equal the value.
    """
    rarer = min(int((draws <= value).sum()), int((draws >= value).sum()))
    return min(1.0, 2 * (rarer + 1) / (int(np.isfinite(draws).sum()) + 1))
