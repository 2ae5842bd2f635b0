"""Mask-IG: gradients in weight space, averaged on the way from no weight on any edge to all of it on every edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, can_keep_streams, weighted_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, check_steps

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class MaskIg(Scorer):
    """The gradient of the metric with respect to every edge's weight, at weights alpha everywhere.

    `steps` midpoints alpha between 0 and 1; where EAP-IG moves the embedding, this moves every edge at once, so that
    the scores of an example add up, but for the steps, to its metric of the model less that of the empty circuit.
    """

    name: ClassVar[str] = "mask-ig"
    steps: int = 20

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """As weighted circuits need it; streams are mixed again where they are too many to be kept."""
        return weighted_need(shape, length, can_keep_streams(shape, length))

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """One weighted circuit and its gradient per step; each example has weights of its own."""
        import torch

        from ..models.weighted import run_weighted

        model, all_logits = batch.model, metric.reads_all_logits
        keep = can_keep_streams(model.shape, batch.clean.shape[1])
        with torch.no_grad():
            reference = batch.run(batch.corrupted)
            clean = batch.read_out(batch.run(batch.clean), all_logits)
            corrupted = batch.read_out(reference, all_logits)
        total = batch.clean.new_zeros((len(batch.last), model.graph.n_edges), dtype=torch.float32)
        for step in range(self.steps):
            weights = torch.full_like(total, (step + 0.5) / self.steps).requires_grad_()
            stream = run_weighted(model, weights, batch.clean, reference, batch.frame, batch.last, keep)
            value = metric.value(batch.read_stream(stream, all_logits), clean).sum()
            total += torch.autograd.grad(value, weights)[0]
        return BatchScores(total / self.steps, metric.value(clean, clean), metric.value(corrupted, clean))
