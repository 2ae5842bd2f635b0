"""The results of a comparison of scorers and learners, and their mean ranks over models and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..core.ranking import tied_ranks
from ..core.statistics import percentile_interval, resampling_weights
from ..evaluate import CONFIDENCE, Measure
from .cell import Repeats
from .plan import Plan

RANK_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class MethodRow:
    """The results of one scorer or learner on a cell.

    repeats            measure -> the curves over seeds
    seconds            wall seconds of scoring or learning per training example, mean over draws of examples. Those of a
                       learner are the sum over its two rankings, without scores that it starts from.
    memory             estimated bytes beyond the model for one example
    aurocs, precisions [seed] of the ranking for CMD, against the known circuit. Empty if none is known.
    """

    name: str
    repeats: Mapping[Measure, Repeats]
    seconds: float
    memory: int
    aurocs: tuple[float, ...] = ()
    precisions: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MethodCell:
    """All methods on one model and task: the baseline first, random last.

    left_out  name -> why a method of `all` isn't there
    n_true    edges of the known circuit. None if none is known.
    """

    model: str
    task: str
    n_edges: int
    examples: Mapping[str, int]
    rows: tuple[MethodRow, ...]
    left_out: Mapping[str, str]
    n_true: int | None = None


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """A finished comparison: a cell for every model and task."""

    plan: Plan
    cells: tuple[MethodCell, ...]

    def __repr__(self) -> str:
        names = ", ".join(row.name for row in self.cells[0].rows)
        return f"MethodComparison({len(self.cells)} cells; {names})"


@dataclass(frozen=True)
class MeanRank:
    """The mean rank of a method over cells, 1 is best, with its interval over resampled cells."""

    method: str
    mean: float
    low: float
    high: float


def mean_ranks(comparison: MethodComparison, measure: Measure) -> tuple[MeanRank, ...]:
    """Return the mean rank over cells of every method that is in all cells, the best first.

    A method's rank in a cell is its place by mean area over seeds; equal areas share the mean of their places. The
    interval is that of the mean over cells drawn with replacement.
    """
    cells = [{row.name: row.repeats[measure].mean for row in cell.rows} for cell in comparison.cells]
    names = [name for name in cells[0] if all(name in areas for areas in cells)]
    ranks = np.stack([tied_ranks(-measure.better * np.array([cell[name] for name in names])) for cell in cells])
    draws = resampling_weights(len(cells), RANK_RESAMPLES, 0) @ ranks  # [resample, method]
    low, high = percentile_interval(draws, CONFIDENCE)
    listed = [MeanRank(*row) for row in zip(names, ranks.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)]
    return tuple(sorted(listed, key=lambda rank: rank.mean))
