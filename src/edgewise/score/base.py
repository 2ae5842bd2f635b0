"""What a scoring method is, what it is given and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError
from ..method import Method
from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric, Readout

if TYPE_CHECKING:
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
    """An attribution method: scores of every edge for every example. Derive from it for one of one's own.

    Methods import torch where they use it, so that the command line can list scorers without waiting for it.
    """

    @abstractmethod
    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Score a batch. A positive score marks an edge whose corruption hurts."""

    def check(self, metric: Metric) -> None:
        """Refuse a metric that can't be scored with, before any work is done."""
        if not metric.differentiable:
            raise InputError(
                f"metric {metric.name!r} has no gradient, so edges can't be scored with it; score with another one"
            )

    def need(self, shape: Shape, length: int) -> Need:
        """The memory that scoring examples of `length` tokens needs beyond the model."""
        return scoring_need(shape, length)


def loss(metric: Metric, run: Readout, clean: Readout) -> Tensor:
    """Minus the metric, summed over examples: a positive score then marks an edge whose corruption hurts."""
    return -metric.value(run, clean).sum()


def check_steps(steps: int) -> None:
    """Refuse a number of steps that integrated gradients can't have: each is a pass, whose gradients are kept."""
    if not 1 <= steps <= MOST_STEPS:
        raise InputError(f"integrated gradients need at least 1 step and at most {MOST_STEPS:,}, not {steps}")
