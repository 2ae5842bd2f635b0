"""The base class of scorers, and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import InputError
from ..graph import LEVELS
from ..method import Method
from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric, Readout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ..models.prepare import Prepared


MOST_STEPS = 1000


@dataclass(frozen=True, eq=False)
class BatchScores:
    """The scores of a batch [example, edge], and the metric [example] of its clean and corrupted runs."""

    values: Tensor
    clean_metric: Tensor
    corrupted_metric: Tensor


class Scorer(Method, ABC):
    """An attribution method: scores every edge on every example. Derive from it for a custom scorer.

    Import torch inside the methods, so that the command line can list scorers without waiting for torch.

    at_clean   whether it reads the gradient at the clean run only, where some metrics are flat
    by_span    whether it can score (edge, span) pairs: all that make their scores by `Prepared.contract` can
    levels     which of edges, nodes and neurons it can score
    max_edges  the largest graph for which a comparison of all scorers includes it; None for any
    """

    at_clean: ClassVar[bool] = False
    by_span: ClassVar[bool] = True
    levels: ClassVar[tuple[str, ...]] = LEVELS
    max_edges: ClassVar[int | None] = None

    @abstractmethod
    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Return the scores of a batch. A positive score marks an edge whose corruption hurts."""

    def check(self, metric: Metric) -> None:
        """Raise InputError if edges can't be scored with a metric."""
        if not metric.differentiable:
            raise InputError(
                f"metric {metric.name!r} has no gradient, so edges can't be scored with it; score with another one"
            )
        if self.at_clean and metric.flat_at_clean:
            raise InputError(
                f"metric {metric.name!r} has no slope at the clean run, where {self.name} takes it, so every score "
                "would be 0; use eap-ig, or another metric"
            )

    def check_kind(self, positions: bool, level: str) -> None:
        """Raise InputError if it can't score (edge, span) pairs, or a level."""
        if level not in self.levels:
            raise InputError(
                f"scorer {self.name!r} scores {' and '.join(f'{name}s' for name in self.levels)}, not {level}s; use "
                "another one, such as eap-ig, or another level"
            )
        if positions and not self.by_span:
            raise InputError(
                f"scorer {self.name!r} can't score positions; use one that multiplies differences with gradients, such "
                "as eap-ig, or leave positions out"
            )

    @property
    def first_scorer(self) -> Scorer | None:
        """A scorer whose mean scores over all examples this one reads first. None for most scorers."""
        return None

    def with_first_scores(self, mean: NDArray[np.float64]) -> Scorer:
        """Return the scorer to run, given the mean scores [edge] of `first_scorer`."""
        return self

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory that scoring examples of `length` tokens needs beyond the model."""
        return scoring_need(shape, length)


def loss(metric: Metric, run: Readout, clean: Readout) -> Tensor:
    """Return minus the metric, summed over examples, so that a positive score marks an edge whose corruption hurts."""
    return -metric.checked(run, clean).sum()


def check_steps(steps: int) -> None:
    """Raise InputError if the number of steps of integrated gradients is out of range: each step is a pass."""
    if not 1 <= steps <= MOST_STEPS:
        raise InputError(f"integrated gradients need at least 1 step and at most {MOST_STEPS:,}, not {steps}")
