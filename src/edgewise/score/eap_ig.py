"""EAP-IG-inputs: EAP with the gradient averaged between the corrupted and the clean embedding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, check_steps, loss

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.forward import Trace
    from ..models.gradients import Gradients
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class EapIg(Scorer):
    """One forward pass and `steps` forward + backward passes, at corrupted + (k / steps)(clean - corrupted)."""

    name: ClassVar[str] = "eap-ig"
    steps: int = 5

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of scoring, which grows a little with every step."""
        return scoring_need(shape, length, self.steps)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Multiply the source differences with the mean gradient. Step 0 is the corrupted run."""
        clean = batch.run(batch.clean)
        clean_readout = batch.read_out(clean, metric.reads_all_logits)

        def run(step: int) -> tuple[Trace, Tensor, Gradients]:
            """Return the run of a step, its metric and its gradients."""
            trace = batch.run(batch.corrupted.lerp(batch.clean, step / self.steps).requires_grad_())
            readout = batch.read_out(trace, metric.reads_all_logits)
            gradients = batch.gradients(trace, loss(metric, readout, clean_readout))
            return trace, metric.value(readout, clean_readout).detach(), gradients

        corrupted, corrupted_metric, first = run(0)
        differences = batch.differences(clean, corrupted)
        del clean, corrupted  # the runs are large, and the other steps do not need them
        values = batch.contract(differences, chain([first], (run(step)[-1] for step in range(1, self.steps))))
        return BatchScores(values, metric.value(clean_readout, clean_readout), corrupted_metric)
