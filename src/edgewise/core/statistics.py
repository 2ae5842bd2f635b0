"""From scores per example to statistics per edge: mean, interval, whether it is kept, how stable its sign is.

Scores are additive over examples, so a bootstrap resample is a re-weighting of rows that are already there: one
matrix product, never a second run of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, check_number, unknown_name
from ..graph import BaseGraph, frozen
from ..method import Method, check_is
from .ranking import Ranking
from .scores import EdgeScores, column_chunks

FloatArray = NDArray[np.float64]
NEGLIGIBLE_MEAN = 1e-6
# Limits for parameters from files. Larger values change nothing.
MAX_RESAMPLES, MAX_KAPPA = 10_000, 1e6
MAX_SEED = 2**63 - 1


class Filter(Method, ABC):
    """Turns scores per example into the scores that selection reads. Derive from it for a custom filter.

    title         its name in tables; empty for no filter
    on_evaluated  whether it resamples the scores of the evaluated examples, rather than those of train
    drop_failed   whether edges that fail are never selected, rather than selected last
    """

    title: ClassVar[str] = ""
    on_evaluated: bool = False
    drop_failed: bool = False

    @property
    def parameters(self) -> Mapping[str, float]:
        """The hyper-parameters that tables show, by the names that they have there."""
        return {}

    @abstractmethod
    def statistics(self, scores: EdgeScores) -> EdgeStatistics:
        """Return the statistics of every edge, and the scores to select by."""


@dataclass(frozen=True)
class NoFilter(Filter):
    """Scores as they are: the mean over examples."""

    name: ClassVar[str] = "none"

    def statistics(self, scores: EdgeScores) -> EdgeStatistics:
        """Keep every edge. Intervals have no width."""
        mean, n_edges = scores.mean(), scores.graph.n_edges
        never = np.zeros(n_edges, bool)
        return EdgeStatistics(scores.graph, mean, mean.copy(), mean.copy(), ~never, never, mean.copy())


@dataclass(frozen=True)
class Bootstrap(Filter):
    """Keeps edges whose bootstrap interval excludes 0.

    resamples                  number of resamples (the paper's tau); each draws n of the n examples with replacement
    interval                   'paper' (mean +- z sd / sqrt(resamples)), 'normal' (mean +- z sd) or 'percentile'
    threshold                  an edge is kept if its interval lies above this, or below its negative
    drop_failed, on_evaluated  what the paper's public script does; see `Filter`
    """

    name: ClassVar[str] = "bootstrap"
    title: ClassVar[str] = "Bootstrapping"
    resamples: int = 10
    interval: str = "paper"
    confidence: float = 0.95
    threshold: float = 0.0
    seed: int = 0
    drop_failed: bool = False
    on_evaluated: bool = False

    def __post_init__(self) -> None:
        if self.interval not in INTERVALS:
            raise unknown_name("interval", self.interval, list(INTERVALS))
        for name in ("resamples", "seed", "confidence", "threshold"):
            check_number(name, getattr(self, name), whole=name in ("resamples", "seed"))
        if not 2 <= self.resamples <= MAX_RESAMPLES:
            raise InputError(
                f"a bootstrap needs at least 2 resamples and at most {MAX_RESAMPLES}, not {self.resamples}"
            )
        if not 0 < self.confidence < 1:
            raise InputError(f"the confidence level must lie between 0 and 1, not at {self.confidence}")
        if not 0 <= self.threshold < float("inf"):
            raise InputError(f"the significance threshold must be at least 0, and finite, not {self.threshold}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"a seed must be at least 0 and below 2^63, not {self.seed}")

    @property
    def parameters(self) -> Mapping[str, float]:
        return {"tau": self.resamples}

    def statistics(self, scores: EdgeScores) -> EdgeStatistics:
        """Return mean and interval over the resamples' means. An edge that fails has score 0."""
        _require_two_rows(scores)
        n_edges = scores.graph.n_edges
        weights = resampling_weights(scores.n_examples, self.resamples, self.seed)
        mean, low, high = np.empty((3, n_edges))
        unstable = np.empty(n_edges, bool)
        for columns in column_chunks((scores.n_examples + 2 * self.resamples, n_edges)):
            means = weights @ scores.values[:, columns].astype(np.float64)
            mean[columns] = means.mean(0)
            low[columns], high[columns] = INTERVALS[self.interval](means, self.confidence)
            unstable[columns] = (means > 0).any(0) & (means < 0).any(0)
        above, below = low > self.threshold, high < -self.threshold
        passed = (above & (mean > 0)) | (below & (mean < 0))
        return EdgeStatistics(scores.graph, mean, low, high, passed, unstable, np.where(passed, mean, 0.0))


@dataclass(frozen=True)
class Shrinkage(Filter):
    """Moves scores towards 0 by `kappa` standard errors of their mean over examples.

    An edge within kappa standard errors of 0 gets 0. No resampling: the standard error is sd / sqrt(examples).
    """

    name: ClassVar[str] = "shrinkage"
    title: ClassVar[str] = "Shrinkage"
    kappa: float = 1.0

    def __post_init__(self) -> None:
        check_number("kappa", self.kappa)
        if not 0 <= self.kappa <= MAX_KAPPA:
            raise InputError(
                f"kappa is a number of standard errors, at least 0 and at most {MAX_KAPPA:,.0f}, but {self.kappa} "
                "was given"
            )

    @property
    def parameters(self) -> Mapping[str, float]:
        return {"kappa": self.kappa}

    def statistics(self, scores: EdgeScores) -> EdgeStatistics:
        """Return the end of the interval that is nearer to 0 as the score."""
        _require_two_rows(scores)
        mean, deviation = scores.mean(), np.empty(scores.graph.n_edges)
        for columns in column_chunks((2 * scores.n_examples, len(mean))):
            deviation[columns] = scores.values[:, columns].astype(np.float64).std(0, ddof=1)
        half = self.kappa * (deviation / sqrt(scores.n_examples))
        low, high, passed = mean - half, mean + half, np.abs(mean) > half
        score = np.where(passed, np.where(mean > 0, low, high), 0.0)
        return EdgeStatistics(scores.graph, mean, low, high, passed, np.zeros(len(mean), bool), score)


FILTERS: dict[str, type[Filter]] = {cls.name: cls for cls in (NoFilter, Bootstrap, Shrinkage)}
NO_FILTER = NoFilter()


@dataclass(frozen=True, eq=False)
class EdgeStatistics:
    """Statistics of every edge. All arrays are [edge].

    mean           over the examples, or over the resamples' means if there was a bootstrap
    low, high      the confidence interval; equal to the mean without a filter
    kept           whether the edge passed the filter, not whether a circuit has it; all True without a filter
    sign_unstable  whether the resamples' means had both signs
    score          the signed score to select by; 0 where the filter failed, so that the edge is selected last
    """

    graph: BaseGraph
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    kept: NDArray[np.bool_]
    sign_unstable: NDArray[np.bool_]
    score: FloatArray

    def __post_init__(self) -> None:
        for name in ("mean", "low", "high", "kept", "sign_unstable", "score"):
            array = frozen(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.shape != (self.graph.n_edges,):
                raise InputError(f"{name} has shape {array.shape}, but the graph has {self.graph.n_edges} edges")
        wrong = np.flatnonzero(~(self.low <= self.high) | ~np.isfinite(self.mean))
        if len(wrong):
            edge = int(wrong[0])
            values = f"mean {self.mean[edge]:g} and interval [{self.low[edge]:g}, {self.high[edge]:g}]"
            raise InputError(
                f"statistics must be finite, with every interval's low end below its high end, but {len(wrong)} edges "
                f"are not so: the first, {self.graph.edge_name(edge)}, has {values}"
            )

    @property
    def sign_instability(self) -> float:
        """The share of edges of non-negligible mean whose resamples had both signs."""
        relevant = np.abs(self.mean) > NEGLIGIBLE_MEAN
        return float(self.sign_unstable[relevant].mean()) if relevant.any() else 0.0

    @property
    def ranking(self) -> Ranking:
        """The ranking that selection reads."""
        return Ranking(self.graph, self.score, kept=self.kept)

    def __repr__(self) -> str:
        return f"EdgeStatistics({int(self.kept.sum()):,} of {self.graph.n_edges:,} edges passed the filter)"


def summarise(scores: EdgeScores, filter: Filter = NO_FILTER) -> EdgeStatistics:
    """Return the statistics of every edge by a filter.

    Parameters
    ----------
    scores
        Scores [example, edge].
    filter
        `NoFilter()`, `Bootstrap()`, `Shrinkage()` or a custom one.

    Returns
    -------
    EdgeStatistics
        Per edge: mean, interval, whether the filter keeps it. Its `ranking` is what selection reads.

    Examples
    --------
    >>> edgewise.summarise(scores, edgewise.Bootstrap(10)).ranking
    """
    check_is("filter", Filter, filter)
    return filter.statistics(scores)


def _require_two_rows(scores: EdgeScores) -> None:
    if scores.n_examples < 2:
        raise InputError(
            "these scores have a single row (one example, or a data set's mean), which can't be resampled; "
            "score more examples with edgewise, or leave the bootstrap out"
        )


def resampling_weights(n_examples: int, resamples: int, seed: int) -> FloatArray:
    """Return the weight [resample, example] of every example in every resample. Rows sum to 1."""
    for name, value, least, most in (("resamples", resamples, 1, MAX_RESAMPLES), ("seed", seed, 0, MAX_SEED)):
        check_number(name, value, whole=True)
        if not least <= value <= most:
            raise InputError(f"{name} must be from {least} to {most:,}, not {value}")
    drawn = np.random.default_rng(seed).integers(n_examples, size=(resamples, n_examples))
    places = drawn + n_examples * np.arange(resamples)[:, None]
    counts = np.bincount(places.ravel(), minlength=resamples * n_examples)
    return counts.reshape(resamples, n_examples) / n_examples


def _normal_interval(means: FloatArray, confidence: float, factor: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return mean +- z standard deviations: the usual bootstrap interval of a mean over examples."""
    half = z_value(confidence) * means.std(0, ddof=1) * factor
    centre = means.mean(0)
    return centre - half, centre + half


def percentile_interval(draws: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the low and the high quantile over the resamples of draws [resample, ...]."""
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must lie between 0 and 1, not at {confidence}")
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


INTERVALS: dict[str, Callable[[FloatArray, float], tuple[FloatArray, FloatArray]]] = {
    # The half-width is also divided by sqrt(resamples), so more resamples narrow it.
    "paper": lambda means, confidence: _normal_interval(means, confidence, 1 / sqrt(len(means))),
    "normal": _normal_interval,
    "percentile": percentile_interval,
}


def z_value(confidence: float) -> float:
    """Return the standard normal quantile of a two-sided level: 1.96 for 95 %, as the paper rounds it."""
    # Computed from the lower tail: close to 1, the upper tail would round to 1.
    return 1.96 if confidence == 0.95 else -NormalDist().inv_cdf((1 - confidence) / 2)
