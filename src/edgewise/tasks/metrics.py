"""Metrics: one value per example, higher when the run behaves more like the clean one. Reducing is others' job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import unknown_name


@dataclass(frozen=True)
class Readout:
    """What a run says at the last position of every example.

    answers        [example, 2] token ids: correct, incorrect
    answer_logits  [example, 2] their logits
    logits         [example, vocabulary], or None where nobody asked for all of them
    """

    answers: Tensor
    answer_logits: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class Metric:
    """A per-example metric and what it needs.

    value             (readout of the run, readout of the clean run) -> [example]
    reads_all_logits  whether the two answers' logits are not enough
    differentiable    whether edges can be scored with it
    flat_at_clean     whether the clean run is its maximum, so that it has no slope there
    """

    name: str
    value: Callable[[Readout, Readout | None], Tensor]
    reads_all_logits: bool = False
    differentiable: bool = True
    flat_at_clean: bool = False


def _logit_difference(run: Readout, clean: Readout | None) -> Tensor:
    return run.answer_logits[:, 0] - run.answer_logits[:, 1]


def _probability_difference(run: Readout, clean: Readout | None) -> Tensor:
    assert run.logits is not None
    chances = torch.exp(run.answer_logits - torch.logsumexp(run.logits, dim=-1, keepdim=True))
    return chances[:, 0] - chances[:, 1]


def _negative_kl(run: Readout, clean: Readout | None) -> Tensor:
    assert run.logits is not None and clean is not None and clean.logits is not None
    there, here = clean.logits.log_softmax(-1), run.logits.log_softmax(-1)
    return -(there.exp() * (there - here)).sum(-1)


def _accuracy(run: Readout, clean: Readout | None) -> Tensor:
    assert run.logits is not None
    return (run.logits.argmax(-1) == run.answers[:, 0]).to(run.logits.dtype)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("logit-difference", _logit_difference),
        Metric("probability-difference", _probability_difference, reads_all_logits=True),
        Metric("kl", _negative_kl, reads_all_logits=True, flat_at_clean=True),
        Metric("accuracy", _accuracy, reads_all_logits=True, differentiable=False),
    )
}


def get_metric(name: str) -> Metric:
    """The metric called `name`; an unknown name lists what exists.

    logit-difference        logit(correct) - logit(incorrect), the benchmark's metric
    probability-difference  the same of probabilities
    kl                      minus the KL divergence from the clean run's prediction to this run's
    accuracy                1 where the correct answer is the most likely next token (can't be differentiated)
    """
    if name not in METRICS:
        raise unknown_name("metric", name, list(METRICS))
    return METRICS[name]
