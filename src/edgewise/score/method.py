"""What a scoring method is given and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..tasks.metrics import Metric, Readout


@dataclass(frozen=True, eq=False)
class BatchScores:
    """The scores of a batch [example, edge], and the metric [example] of its clean and corrupted runs."""

    values: Tensor
    clean_metric: Tensor
    corrupted_metric: Tensor


def loss(metric: Metric, run: Readout, clean: Readout) -> Tensor:
    """Minus the metric, summed over examples: a positive score then marks an edge whose corruption hurts."""
    return -metric.value(run, clean).sum()
