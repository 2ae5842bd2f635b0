"""Error bars of faithfulness, CPR and CMD: a bootstrap over the evaluated examples, and paired comparisons. NumPy only.

A resample draws examples with replacement and computes everything anew from them: the metric of every circuit, of the
full and of the empty one, hence faithfulness, hence the area. What the scores were made of stays as it was: these
intervals say how much the *evaluation* would change with other examples, not how much the circuit would.

CMD takes absolute values, so resampling a curve that is near 1 adds distance that isn't there: the draws lie above the
estimate as the estimate lies above the truth, and more so for the noisier of two methods. A percentile interval takes
the draws as they are, a basic one mirrors them at the estimate; either misleads in some of these cases. Intervals here
hold both: they reach as far to either side of the estimate as the farther tail of the draws does, and p is the larger
of the two (measured in tests/test_intervals.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.statistics import MOST_RESAMPLES, resampling_weights
from ..errors import InputError
from ..method import check_is
from .curve import Curve, areas
from .faithfulness import MIB, Faithfulness, faithfulness, reweighted_faithfulness
from .measures import Measure

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
CONFIDENCE = 0.95
# Draws that are this near to each other are equal but for rounding: areas are in units of what the model itself does.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Interval:
    """A number and its bootstrap interval over resamples of the examples."""

    estimate: float
    low: float
    high: float
    confidence: float

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "confidence": self.confidence}


@dataclass(frozen=True)
class Comparison:
    """One method's area less another's on the same examples, its interval, and a two-sided bootstrap p.

    `benchmark` says which sign is an improvement: higher for CPR, lower for CMD. An interval without any width says
    that all resamples are equal, as those of a single example or of copies of it are: they tell nothing apart, p is 1.
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
        """What can be said at the interval's level."""
        return "better" if self.is_better else "worse" if self.is_worse else "not told apart"

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        names = ("difference", "low", "high", "p", "confidence")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Resampled:
    """CPR or CMD, and what it is on resamples of the examples.

    draws    [resample]; NaN where a resample leaves faithfulness undefined, as one of very few examples may
    """

    measure: Measure
    estimate: float
    draws: FloatArray

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The area with its interval; no distance is below 0."""
        reach, least = _reach(self.estimate, self.draws, confidence), self.measure.least
        return Interval(self.estimate, max(self.estimate - reach, least), self.estimate + reach, confidence)

    def less(self, other: Resampled, confidence: float = CONFIDENCE) -> Comparison:
        """This area less another one, resample by resample: both must come from the same examples and seed."""
        difference, draws = self.estimate - other.estimate, self.draws - other.draws
        reach, p = _reach(difference, draws, confidence), max(_tail(draws, 0.0), _tail(draws, 2 * difference))
        if np.ptp(draws[np.isfinite(draws)]) <= ROUNDING:
            reach, p = 0.0, 1.0
        return Comparison(self.measure, difference, difference - reach, difference + reach, p, confidence)


def resample(curve: Curve, measure: Measure, resamples: int = RESAMPLES, seed: int = 0) -> Resampled:
    """The curve's CPR or CMD on resampled examples; equal seeds draw equal examples, so differences are paired."""
    if not 2 <= resamples <= MOST_RESAMPLES:
        raise InputError(f"an interval needs at least 2 resamples and at most {MOST_RESAMPLES}, not {resamples}")
    check_is("benchmark", Measure, measure)
    weights = resampling_weights(len(curve.full), resamples, seed)
    draws = areas(curve.shares, measure.height(curve.reweighted(weights)))
    return Resampled(measure, curve.area(measure), draws)


def mean_of(parts: Sequence[Resampled]) -> Resampled:
    """The mean of areas on several sets of examples, resample by resample."""
    estimate = float(np.mean([part.estimate for part in parts]))
    return Resampled(parts[0].measure, estimate, np.mean([part.draws for part in parts], axis=0))


def compare(
    one: Curve,
    other: Curve,
    measure: Measure,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Comparison:
    """How much higher `one`'s CPR or CMD is than `other`'s; both see the same resamples of the same examples."""
    if one.full.shape != other.full.shape or not ((one.full == other.full) & (one.empty == other.empty)).all():
        raise InputError(
            f"a paired comparison needs curves on the same examples, but these have {len(one.full)} and "
            f"{len(other.full)} examples or other values of the full and empty circuit"
        )
    return resample(one, measure, resamples, seed).less(resample(other, measure, resamples, seed), confidence)


def faithfulness_intervals(
    values: FloatArray,
    full: FloatArray,
    empty: FloatArray,
    definition: Faithfulness = MIB,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[Interval, ...]:
    """The faithfulness of every circuit with its interval, from metrics [circuit, example].

    full, empty    [example] the metric of the full and the empty circuit
    """
    estimates = faithfulness(values.mean(1), float(full.mean()), float(empty.mean()), definition)
    draws = reweighted_faithfulness(resampling_weights(len(full), resamples, seed), values, full, empty, definition)
    reach = [_reach(float(at), column, confidence) for at, column in zip(estimates, draws.T, strict=True)]
    return tuple(
        Interval(float(at), float(at) - far, float(at) + far, confidence)
        for at, far in zip(estimates, reach, strict=True)
    )


def _reach(estimate: float, draws: FloatArray, confidence: float) -> float:
    """How far the farther tail of the draws that are defined is from the estimate."""
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must lie between 0 and 1, not at {confidence}")
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        raise InputError("faithfulness is undefined in every resample of the evaluated examples; give more examples")
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return max(estimate - float(low), float(high) - estimate, 0.0)


def _tail(draws: FloatArray, at: float) -> float:
    """Twice the share of draws on the rarer side of a value.

    The observed data count as one more resample, so that it is never 0; if all draws are at the value, it is 1.
    """
    rarer = min(int((draws <= at).sum()), int((draws >= at).sum()))
    return min(1.0, 2 * (rarer + 1) / (int(np.isfinite(draws).sum()) + 1))
