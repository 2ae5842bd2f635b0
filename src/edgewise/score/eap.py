"""EAP and its variants: the differences of the sources times gradients of one or several runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..models.rules import NO_RULES, BackwardRules
from ..tasks.metrics import Metric, Readout
from .base import BatchScores, Scorer, check_steps, loss

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.forward import Trace
    from ..models.gradients import Gradients
    from ..models.prepare import Batch, Prepared


@dataclass(frozen=True)
class Eap(Scorer):
    """Edge attribution patching: one forward and one forward + backward pass."""

    name: ClassVar[str] = "eap"
    at_clean: ClassVar[bool] = True

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        return score_at_clean(batch, metric)


@dataclass(frozen=True)
class EapIg(Scorer):
    """EAP-IG-inputs: EAP with the gradient averaged between the corrupted and the clean embedding.

    One forward pass and `steps` forward + backward passes, at corrupted + (k / steps)(clean - corrupted).
    """

    name: ClassVar[str] = "eap-ig"
    steps: int = 5

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of scoring, which grows a little with every step."""
        return scoring_need(shape, length, self.steps)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        return score_on_path(batch, metric, self.steps)


@dataclass(frozen=True)
class CleanCorrupted(Scorer):
    """Source differences times the mean of the gradients at the two ends: two forward + backward passes."""

    name: ClassVar[str] = "clean-corrupted"

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of two runs whose traces are kept."""
        return scoring_need(shape, length, 2, kept_traces=1)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        clean = batch.run(batch.clean.detach().requires_grad_())
        readout = batch.read_out(clean, metric.reads_all_logits)
        clean_readout = as_constant(readout)
        at_clean = batch.gradients(clean, loss(metric, readout, clean_readout))
        del readout  # and with it what autograd keeps
        corrupted, corrupted_metric, at_corrupted = run_with_gradients(batch, metric, batch.corrupted, clean_readout)
        differences = batch.differences(clean, corrupted)
        del clean, corrupted
        values = batch.contract(differences, [at_clean, at_corrupted])
        return BatchScores(values, metric.checked(clean_readout, clean_readout), corrupted_metric)


@dataclass(frozen=True)
class ExpectedGradients(Scorer):
    """Source differences times the gradient at corrupted + a (clean - corrupted), with one random a per example.

    a is uniform in [0, 1), and a digest of `seed` and of the example's tokens, so that it depends neither on the batch
    nor on the order of the examples. The mean over examples estimates the integral that EAP-IG approximates by steps.
    """

    name: ClassVar[str] = "expected-gradients"
    seed: int = 0

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of one run with gradients, beside the differences."""
        return scoring_need(shape, length, kept_traces=0)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        import torch

        corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean)
        corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
        differences = batch.differences(clean, corrupted)
        del clean, corrupted  # the runs are large, and the gradients do not need them
        points = torch.tensor(self.draw_points(batch.batch), dtype=batch.clean.dtype, device=batch.clean.device)
        embedding = batch.corrupted.lerp(batch.clean, points[:, None, None])
        values = batch.contract(differences, [run_with_gradients(batch, metric, embedding, readout)[-1]])
        return BatchScores(values, metric.checked(readout, readout), metric.checked(corrupted_readout, readout))

    def draw_points(self, batch: Batch) -> list[float]:
        """Return a number in [0, 1) per example."""
        points = []
        for clean, corrupted, real in zip(batch.clean, batch.corrupted, batch.real, strict=True):
            text = repr((self.seed, clean[real].tolist(), corrupted[real].tolist()))
            digest = hashlib.sha256(text.encode()).digest()
            points.append(int.from_bytes(digest[:6], "big") / 2**48)
        return points


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


def score_at_clean(batch: Prepared, metric: Metric, rules: BackwardRules = NO_RULES) -> BatchScores:
    """Return the source differences times the gradient of the clean run."""
    corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean.detach().requires_grad_(), rules)
    corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
    clean_readout = as_constant(readout)
    gradients = batch.gradients(clean, loss(metric, readout, clean_readout))
    values = batch.contract(batch.differences(clean, corrupted), [gradients])
    clean_metric = metric.checked(clean_readout, clean_readout)
    return BatchScores(values, clean_metric, metric.checked(corrupted_readout, clean_readout))


def score_on_path(batch: Prepared, metric: Metric, steps: int, rules: BackwardRules = NO_RULES) -> BatchScores:
    """Return the source differences times the mean gradient of runs between the corrupted and the clean embedding.

    The runs are at corrupted + (k / steps)(clean - corrupted) with k from 0 to steps - 1. Step 0 is the corrupted run.
    """
    clean = batch.run(batch.clean)
    clean_readout = batch.read_out(clean, metric.reads_all_logits)

    def run(step: int) -> tuple[Trace, Tensor, Gradients]:
        """Return the run of a step, its metric and its gradients."""
        embedding = batch.corrupted.lerp(batch.clean, step / steps)
        return run_with_gradients(batch, metric, embedding, clean_readout, rules)

    corrupted, corrupted_metric, first = run(0)
    differences = batch.differences(clean, corrupted)
    del clean, corrupted  # the runs are large, and the other steps do not need them
    values = batch.contract(differences, chain([first], (run(step)[-1] for step in range(1, steps))))
    return BatchScores(values, metric.checked(clean_readout, clean_readout), corrupted_metric)


def as_constant(readout: Readout) -> Readout:
    """Return a readout without a gradient: for metrics that compare a run with the clean run, which doesn't change."""
    logits = None if readout.logits is None else readout.logits.detach()
    return replace(readout, answer_logits=readout.answer_logits.detach(), logits=logits)


def run_with_gradients(
    batch: Prepared, metric: Metric, embedding: Tensor, clean: Readout, rules: BackwardRules = NO_RULES
) -> tuple[Trace, Tensor, Gradients]:
    """Return a run from an embedding, its metric [example], and the gradients at all its destinations."""
    trace = batch.run(embedding.detach().requires_grad_(), rules)
    readout = batch.read_out(trace, metric.reads_all_logits)
    gradients = batch.gradients(trace, loss(metric, readout, clean))
    return trace, metric.checked(readout, clean).detach(), gradients
