"""EAP: the activation difference times the gradient at the clean run."""

from __future__ import annotations

import torch

from ..models.gradients import contract, destination_gradients, source_differences
from ..models.prepare import Prepared
from ..tasks.metrics import Metric
from .method import BatchScores, loss


def score_eap(batch: Prepared, metric: Metric, steps: int) -> BatchScores:
    """One forward and one forward + backward pass; `steps` plays no part."""
    with torch.no_grad():
        corrupted = batch.run(batch.corrupted)
        corrupted_readout = batch.read_out(corrupted, metric.reads_all_logits)
    clean = batch.run(batch.clean.detach().requires_grad_())
    readout = batch.read_out(clean, metric.reads_all_logits)
    gradients = destination_gradients(batch.model, clean, loss(metric, readout, readout))
    values = contract(batch.model, source_differences(batch.model, clean, corrupted), [gradients])
    with torch.no_grad():
        return BatchScores(values, metric.value(readout, readout), metric.value(corrupted_readout, readout))
