"""Mask-IG: the gradient with respect to edge weights, averaged between weight 0 and weight 1 on every edge."""

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
    """The gradient of the metric with respect to every edge's weight, averaged over `steps` weights in (0, 1).

    All edges have the same weight, the midpoint of a step. So the scores of an example add up, apart from the error of
    finite steps, to the metric of the model minus that of the empty circuit. A node's score is the sum over its
    out-edges, which is the gradient with respect to one weight for all of them.
    """

    name: ClassVar[str] = "mask-ig"
    levels: ClassVar[tuple[str, ...]] = ("edge", "node")
    steps: int = 20

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of a weighted circuit and its gradient, for weights of pairs, which need more."""
        return weighted_need(shape, length, can_keep_streams(shape, length), by_span=True)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Run a weighted circuit and its gradient per step. Each example has weights of its own."""
        import torch

        all_logits, reference = metric.reads_all_logits, batch.run(batch.corrupted)
        clean, corrupted = (batch.read_out(run, all_logits) for run in (batch.run(batch.clean), reference))
        n_weights = batch.model.graph.n_edges * (batch.batch.n_spans if batch.by_span else 1)
        total = batch.clean.new_zeros((len(batch.last), n_weights), dtype=torch.float32)
        for step in range(self.steps):
            weights = torch.full_like(total, (step + 0.5) / self.steps).requires_grad_()
            readout = batch.read_stream(batch.run_weighted(weights, reference), all_logits)
            total += torch.autograd.grad(metric.checked(readout, clean).sum(), weights)[0]
        values = batch.sum_edges(total / self.steps)
        return BatchScores(values, metric.checked(clean, clean), metric.checked(corrupted, clean))
