"""Clean-corrupted: EAP with the mean of the gradients at the clean and at the corrupted run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, loss
from .first_order import as_constant, run_with_gradients

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class CleanCorrupted(Scorer):
    """Source differences times the mean of the gradients at the two ends: two forward + backward passes."""

    name: ClassVar[str] = "clean-corrupted"

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of two runs whose traces are kept."""
        return scoring_need(shape, length, 2, kept_traces=1)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        clean = batch.run(batch.clean.detach().requires_grad_())
        readout = batch.read_out(clean, metric.reads_all_logits)
        clean_readout = as_constant(readout)
        at_clean = batch.gradients(clean, loss(metric, readout, clean_readout))
        del readout  # and with it what autograd keeps
        corrupted, corrupted_metric, at_corrupted = run_with_gradients(batch, metric, batch.corrupted, clean_readout)
        differences = batch.differences(clean, corrupted)
        del clean, corrupted
        values = batch.contract(differences, [at_clean, at_corrupted])
        return BatchScores(values, metric.checked(clean_readout, clean_readout), corrupted_metric)
