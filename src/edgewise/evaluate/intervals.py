"""Error bars of CPR and CMD: a bootstrap over the evaluated examples, and paired comparisons. NumPy only.

A resample draws examples with replacement and computes everything anew from them: the metric of every circuit, of the
full and of the empty one, hence faithfulness, hence the area. What the scores were made of stays as it was: these
intervals say how much the *evaluation* would change with other examples, not how much the circuit would.

CMD takes absolute values, so resampling a curve that is near 1 adds distance that isn't there: its draws lie above the
estimate as the estimate lies above the truth. An area's interval is therefore the basic one, which mirrors the draws at
the estimate; in a paired difference that bias nearly cancels, and the percentile interval covers better (measured in
tests/test_intervals.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, unknown_name
from ..statistics import resampling_weights
from .curve import BETTER, HEIGHTS, Curve, areas

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
CONFIDENCE = 0.95
LEAST = {"CPR": float("-inf"), "CMD": 0.0}


@dataclass(frozen=True)
class Interval:
    """An area and its basic bootstrap interval over resamples of the examples."""

    estimate: float
    low: float
    high: float
    confidence: float

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "confidence": self.confidence}


@dataclass(frozen=True)
class Comparison:
    """One method's area less another's on the same examples, its percentile interval, and a two-sided bootstrap p.

    `benchmark` says which sign is an improvement: higher for CPR, lower for CMD.
    """

    benchmark: str
    difference: float
    low: float
    high: float
    p: float
    confidence: float

    @property
    def is_better(self) -> bool:
        """Whether the whole interval lies on the better side of 0."""
        return self.low > 0 if BETTER[self.benchmark] > 0 else self.high < 0

    @property
    def is_worse(self) -> bool:
        """Whether the whole interval lies on the worse side of 0."""
        return self.high < 0 if BETTER[self.benchmark] > 0 else self.low > 0

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        names = ("difference", "low", "high", "p", "confidence")
        return {name: getattr(self, name) for name in names}


def area_interval(
    curve: Curve, benchmark: str, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """The curve's CPR or CMD with its interval over the evaluated examples."""
    draws = resampled_areas(curve, benchmark, resamples, seed)
    return interval_of(benchmark, curve.area(benchmark), draws, confidence)


def compare(
    one: Curve,
    other: Curve,
    benchmark: str,
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
    draws = resampled_areas(one, benchmark, resamples, seed) - resampled_areas(other, benchmark, resamples, seed)
    return comparison_of(benchmark, one.area(benchmark) - other.area(benchmark), draws, confidence)


def resampled_areas(curve: Curve, benchmark: str, resamples: int = RESAMPLES, seed: int = 0) -> FloatArray:
    """[resample] CPR or CMD on resampled examples; equal seeds draw equal examples, so differences are paired."""
    if benchmark not in HEIGHTS:
        raise unknown_name("benchmark metric", benchmark, list(HEIGHTS))
    if resamples < 2:
        raise InputError(f"an interval needs at least 2 resamples, not {resamples}")
    weights = resampling_weights(len(curve.full), resamples, seed)
    return areas(curve.shares, HEIGHTS[benchmark](curve.reweighted(weights)))


def interval_of(benchmark: str, estimate: float, draws: FloatArray, confidence: float = CONFIDENCE) -> Interval:
    """The interval of an area whose resamples [resample] are given; no distance is below 0."""
    low, high = _quantiles(draws, confidence)
    low, high = 2 * estimate - high, 2 * estimate - low
    return Interval(estimate, max(low, LEAST[benchmark]), max(high, LEAST[benchmark]), confidence)


def comparison_of(benchmark: str, difference: float, draws: FloatArray, confidence: float = CONFIDENCE) -> Comparison:
    """The comparison for a difference whose resamples [resample] are given."""
    low, high = _quantiles(draws, confidence)
    # The observed data count as one more resample, so that p is never 0; a difference of exactly 0 everywhere has p 1.
    tail = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(draws) + 1))
    return Comparison(benchmark, difference, low, high, p, confidence)


def _quantiles(draws: FloatArray, confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must lie between 0 and 1, not at {confidence}")
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
