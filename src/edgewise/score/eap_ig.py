"""EAP-IG-inputs: as EAP, with the gradient averaged on the way from the corrupted embedding to the clean one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..graph import Graph
from ..models.memory import scoring_bytes
from ..tasks.metrics import Metric
from .scorer import BatchScores, Scorer, check_steps, loss

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class EapIg(Scorer):
    """One forward pass and `steps` forward + backward passes, at corrupted + (k / steps)(clean - corrupted)."""

    name: ClassVar[str] = "eap-ig"
    steps: int = 5

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def bytes_per_example(self, graph: Graph, length: int) -> int:
        """The gradients of every step are kept until the last."""
        return scoring_bytes(graph, length, self.steps)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Step k = 0 is the corrupted run, which serves for the activation differences too."""
        import torch

        from ..models.gradients import contract, destination_gradients, source_differences

        with torch.no_grad():
            clean = batch.run(batch.clean)
            clean_readout = batch.read_out(clean, metric.reads_all_logits)
        gradients = []
        for step in range(self.steps):
            embedding = torch.lerp(batch.corrupted, batch.clean, step / self.steps).requires_grad_()
            trace = batch.run(embedding)
            readout = batch.read_out(trace, metric.reads_all_logits)
            gradients.append(destination_gradients(batch.model, trace, loss(metric, readout, clean_readout)))
            if step == 0:
                differences = source_differences(batch.model, clean, trace)
                corrupted_metric = metric.value(readout, clean_readout).detach()
        values = contract(batch.model, differences, gradients)
        return BatchScores(values, metric.value(clean_readout, clean_readout), corrupted_metric)
