"""EAP: the activation difference times the gradient at the clean run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import InputError
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, loss

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class Eap(Scorer):
    """Edge attribution patching: one forward and one forward + backward pass."""

    name: ClassVar[str] = "eap"

    def check(self, metric: Metric) -> None:
        """Raise InputError for a metric that is flat at the clean run: all scores would be 0."""
        super().check(metric)
        if metric.flat_at_clean:
            raise InputError(
                f"metric {metric.name!r} has no slope at the clean run, where {self.name} takes it, so every score "
                "would be 0; use eap-ig, or another metric"
            )

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Multiply the source differences with the gradient of the clean run."""
        corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean.detach().requires_grad_())
        corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
        gradients = batch.gradients(clean, loss(metric, readout, readout))
        values = batch.contract(batch.differences(clean, corrupted), [gradients])
        return BatchScores(values, metric.value(readout, readout).detach(), metric.value(corrupted_readout, readout))
