"""First-order scores: the differences of the sources times gradients of one or several runs."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..models.rules import NO_RULES, BackwardRules
from ..tasks.metrics import Metric, Readout
from .base import BatchScores, Scorer, check_steps, loss

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.forward import Trace
    from ..models.gradients import Gradients
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class RuleScorer(Scorer, ABC):
    """A scorer that changes the backward pass by `rules`.

    Without `steps` it takes the gradient at the clean run, as EAP does; with `steps` the mean gradient on the way from
    the corrupted to the clean embedding, as EAP-IG does.
    """

    rules: ClassVar[BackwardRules]
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_steps(self.steps)

    @property
    def at_clean(self) -> bool:  # type: ignore[override]
        return self.steps is None

    def need(self, shape: Shape, length: int) -> Need:
        return scoring_need(shape, length, self.steps or 1)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        if self.steps is None:
            return score_at_clean(batch, metric, self.rules)
        return score_on_path(batch, metric, self.steps, self.rules)


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
