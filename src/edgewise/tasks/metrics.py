"""Metrics: one value per example, higher if the run behaves more like the clean one.

This module calls methods of tensors but doesn't import torch, so that the command line can list metrics quickly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import InputError
from ..method import Method

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Readout:
    """The output of a run at the last position of every example.

    answers        [example, 2] token ids: correct, incorrect
    answer_logits  [example, 2] their logits
    right          [example, any] all correct token ids, the correct answer first; it also pads shorter rows
    logits         [example, vocabulary], or None if the metric doesn't read them
    """

    answers: Tensor
    answer_logits: Tensor
    right: Tensor
    logits: Tensor | None = None

    @property
    def all_logits(self) -> Tensor:
        """The logits [example, vocabulary], for metrics with `reads_all_logits`."""
        if self.logits is None:
            raise InputError("a metric reads all logits; set reads_all_logits = True in its class")
        return self.logits


class Metric(Method, ABC):
    """A metric: one number per example. Derive from it for a custom metric.

    reads_all_logits  whether it needs more than the logits of the two answers
    differentiable    whether edges can be scored with it
    flat_at_clean     whether the clean run is its maximum, so that its gradient is 0 there
    is_difference     whether it is positive if the correct answer beats the incorrect one

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class LogProbability(Metric):
    ...     reads_all_logits = True
    ...     def value(self, run, clean):
    ...         return run.answer_logits[:, 0] - run.all_logits.logsumexp(-1)
    """

    reads_all_logits: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    flat_at_clean: ClassVar[bool] = False
    is_difference: ClassVar[bool] = False

    @abstractmethod
    def value(self, run: Readout, clean: Readout) -> Tensor:
        """Return the metric [example] of a run, given the clean run."""

    def checked(self, run: Readout, clean: Readout) -> Tensor:
        """Return `value`. Raise InputError if a custom metric doesn't return one number per example."""
        values, expected = self.value(run, clean), (len(run.answers),)
        shape = getattr(values, "shape", None)
        if shape != expected:
            given = type(values).__name__ if shape is None else tuple(shape)
            raise InputError(f"metric {self.name!r} must give one value per example, {expected}, but gave {given}")
        return values


@dataclass(frozen=True)
class LogitDifference(Metric):
    """logit(correct) - logit(incorrect), the benchmark's metric."""

    name: ClassVar[str] = "logit-difference"
    is_difference: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        return run.answer_logits[:, 0] - run.answer_logits[:, 1]


@dataclass(frozen=True)
class ProbabilityDifference(Metric):
    """The difference of the two answers' probabilities."""

    name: ClassVar[str] = "probability-difference"
    reads_all_logits: ClassVar[bool] = True
    is_difference: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        probabilities = (run.answer_logits - run.all_logits.logsumexp(-1, keepdim=True)).exp()
        return probabilities[:, 0] - probabilities[:, 1]


@dataclass(frozen=True)
class Kl(Metric):
    """Minus the KL divergence from the clean run's prediction to this run's."""

    name: ClassVar[str] = "kl"
    reads_all_logits: ClassVar[bool] = True
    flat_at_clean: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        clean_log, run_log = clean.all_logits.log_softmax(-1), run.all_logits.log_softmax(-1)
        return -(clean_log.exp() * (clean_log - run_log)).sum(-1)


@dataclass(frozen=True)
class Accuracy(Metric):
    """1 if the most likely next token is correct, else 0. It has no gradient, so edges can't be scored with it."""

    name: ClassVar[str] = "accuracy"
    reads_all_logits: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def value(self, run: Readout, clean: Readout) -> Tensor:
        logits = run.all_logits
        return (logits.argmax(-1, keepdim=True) == run.right).any(-1).to(logits.dtype)


METRICS: dict[str, type[Metric]] = {
    metric.name: metric for metric in (LogitDifference, ProbabilityDifference, Kl, Accuracy)
}
