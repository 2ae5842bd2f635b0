"""EAP-IG-inputs: as EAP, with the gradient averaged on the way from the corrupted embedding to the clean one."""

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
        """Of every step a little is kept until the last."""
        return scoring_need(shape, length, self.steps)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Step k = 0 is the corrupted run, which serves for the activation differences too."""
        import torch

        from ..models.gradients import contract, destination_gradients, source_differences

        def run(step: int, clean: Readout) -> tuple[Trace, Tensor, Gradients]:
            """A step's run, its metric and its gradients."""
            trace = batch.run(torch.lerp(batch.corrupted, batch.clean, step / self.steps).requires_grad_())
            readout = batch.read_out(trace, metric.reads_all_logits)
            gradients = destination_gradients(batch.model, trace, loss(metric, readout, clean))
            return trace, metric.value(readout, clean).detach(), gradients

        def begin() -> tuple[Readout, Tensor, Differences, Gradients]:
            """What stays of the clean and the corrupted run; the runs themselves are large, and go."""
            with torch.no_grad():
                clean = batch.run(batch.clean)
                readout = batch.read_out(clean, metric.reads_all_logits)
            corrupted, corrupted_metric, gradients = run(0, readout)
            return readout, corrupted_metric, source_differences(batch.model, clean, corrupted), gradients

        clean, corrupted_metric, differences, first = begin()
        rest = (run(step, clean)[-1] for step in range(1, self.steps))
        values = contract(batch.model, differences, chain([first], rest))
        return BatchScores(values, metric.value(clean, clean), corrupted_metric)
