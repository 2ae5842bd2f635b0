"""GradDrop: EAP with one layer after another left out of the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, loss
from .eap import as_constant

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class GradDrop(Scorer):
    """The mean over layers of the absolute EAP score with that layer left out of the backward pass.

    This is the GradDrop of AtP* (Kramar et al. 2024, arXiv 2403.00745), for edges.
    Leaving out a layer means that no gradient reaches the outputs of its heads and of its MLP. A direct and an indirect
    effect that cancel in EAP then show up. Scores have no sign. AtP* divides by the number of layers minus 1, which
    changes no ranking.

    One forward pass each for the clean and the corrupted prompt and at most one backward pass per layer: a pass starts
    below the layer that it leaves out, because nothing changes above it.
    """

    name: ClassVar[str] = "grad-drop"
    at_clean: ClassVar[bool] = True

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of EAP whose clean run is kept for several backward passes."""
        return scoring_need(shape, length, keeps_graph=True)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Sum absolute scores over the layers left out."""
        corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean.detach().requires_grad_())
        corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
        clean_readout = as_constant(readout)
        differences, graph = batch.differences(clean, corrupted), batch.model.graph
        runs = batch.dropped_layer_gradients(clean, loss(metric, readout, clean_readout))
        whole = next(runs)
        if batch.level == "edge":
            values = batch.contract(differences, [whole]).abs_()
            for index, block in enumerate(graph.blocks):
                # The gradient at this block does not change if a layer before it is dropped: index // 2 layers.
                values.unflatten(1, (graph.n_edges, -1))[:, block] *= index // 2
            for gradients in runs:
                values += batch.contract(differences, [gradients]).abs_()
        else:
            # The sum over a node's out-edges comes before the absolute value, so each layer's gradients are complete.
            values = batch.contract(differences, [whole.without_layer(0)]).abs_()
            for gradients in runs:
                values += batch.contract(differences, [whole.without_layer(len(gradients.mlp), gradients)]).abs_()
        clean_metric = metric.checked(clean_readout, clean_readout)
        return BatchScores(values / graph.n_layers, clean_metric, metric.checked(corrupted_readout, clean_readout))
