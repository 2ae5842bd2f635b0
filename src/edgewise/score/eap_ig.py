"""EAP-IG-inputs: EAP with the gradient averaged between the corrupted and the clean embedding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric, Readout
from .base import BatchScores, Scorer, check_steps, loss

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.forward import Trace
    from ..models.gradients import Differences, Gradients
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
        import torch

        from ..models.gradients import contract, destination_gradients, source_differences

        def run(step: int, clean: Readout) -> tuple[Trace, Tensor, Gradients]:
            """Return the run of a step, its metric and its gradients."""
            trace = batch.run(torch.lerp(batch.corrupted, batch.clean, step / self.steps).requires_grad_())
            readout = batch.read_out(trace, metric.reads_all_logits)
            gradients = destination_gradients(batch.model, trace, loss(metric, readout, clean))
            return trace, metric.value(readout, clean).detach(), gradients

        def run_ends() -> tuple[Readout, Tensor, Differences, Gradients]:
            """Return what later steps need of the clean and the corrupted run; the large runs are freed."""
            with torch.no_grad():
                clean = batch.run(batch.clean)
                readout = batch.read_out(clean, metric.reads_all_logits)
            corrupted, corrupted_metric, gradients = run(0, readout)
            return readout, corrupted_metric, source_differences(batch.model, clean, corrupted), gradients

        clean, corrupted_metric, differences, first = run_ends()
        rest = (run(step, clean)[-1] for step in range(1, self.steps))
        values = contract(batch.model, differences, chain([first], rest))
        return BatchScores(values, metric.value(clean, clean), corrupted_metric)
