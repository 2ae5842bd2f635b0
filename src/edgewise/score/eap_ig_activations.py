"""EAP-IG-activations: EAP with gradients averaged while the outputs of one group of nodes after another change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, check_steps, loss
from .eap import run_with_gradients

if TYPE_CHECKING:
    from ..models.gradients import Gradients
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class EapIgActivations(Scorer):
    """Source differences times the mean gradient of runs in which the outputs of one group of nodes are interpolated.

    A group is `input`, all heads of a layer, or an MLP. In the runs of a group its outputs are the constants corrupted
    + (k / steps)(clean - corrupted), k = 1 to steps, and everything else is run from the clean prompt. The gradients at
    all destinations are averaged over the runs of all groups. With L layers there are (2 L + 1) steps runs.
    """

    name: ClassVar[str] = "eap-ig-activations"
    steps: int = 5

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of the runs of a group, while the clean and the corrupted run are kept."""
        return scoring_need(shape, length, max(2, self.steps), kept_traces=2)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Contract the gradients of one group at a time, which needs less memory than those of all groups."""
        corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean)
        corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
        differences = batch.differences(clean, corrupted)

        def gradients(group: str, layer: int) -> Iterator[Gradients]:
            start, end = getattr(corrupted, group)[layer], getattr(clean, group)[layer]
            for step in range(1, self.steps + 1):
                replaced: dict[str, Any] = {group: {layer: start.lerp(end, step / self.steps)}}
                trace = batch.run(batch.clean.detach().requires_grad_(), **replaced)
                yield batch.gradients(trace, loss(metric, batch.read_out(trace, metric.reads_all_logits), readout))

        def input_gradients() -> Iterator[Gradients]:
            for step in range(1, self.steps + 1):
                embedding = batch.corrupted.lerp(batch.clean, step / self.steps)
                yield run_with_gradients(batch, metric, embedding, readout)[-1]

        values = batch.contract(differences, input_gradients())
        for layer in range(batch.model.graph.n_layers):
            for group in ("mix", "mlp_out"):
                values += batch.contract(differences, gradients(group, layer))
        values /= 2 * batch.model.graph.n_layers + 1
        return BatchScores(values, metric.checked(readout, readout), metric.checked(corrupted_readout, readout))
