"""EAP-IG-inputs: as EAP, with the gradient averaged on the way from the corrupted embedding to the clean one."""

from __future__ import annotations

import torch

from ..models.gradients import contract, destination_gradients, source_differences
from ..models.prepare import Prepared
from ..tasks.metrics import Metric
from .method import BatchScores, loss


def score_eap_ig(batch: Prepared, metric: Metric, steps: int) -> BatchScores:
    """One forward pass and `steps` forward + backward passes, at corrupted + (k / steps)(clean - corrupted).

    Step k = 0 is the corrupted run, which serves for the activation differences too.
    """
    with torch.no_grad():
        clean = batch.run(batch.clean)
        clean_readout = batch.read_out(clean, metric.reads_all_logits)
    gradients = []
    for step in range(steps):
        embedding = torch.lerp(batch.corrupted, batch.clean, step / steps).requires_grad_()
        trace = batch.run(embedding)
        readout = batch.read_out(trace, metric.reads_all_logits)
        gradients.append(destination_gradients(batch.model, trace, loss(metric, readout, clean_readout)))
        if step == 0:
            differences = source_differences(batch.model, clean, trace)
            corrupted_metric = metric.value(readout, clean_readout).detach()
    return BatchScores(
        contract(batch.model, differences, gradients), metric.value(clean_readout, clean_readout), corrupted_metric
    )
