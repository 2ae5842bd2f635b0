"""Metrics: one value per example, higher when the run behaves more like the clean one. Reducing is others' job.

Torch is known here by its tensors' own methods only, so that the command line can list metrics without waiting for it.
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
    """What a run says at the last position of every example.

    answers        [example, 2] token ids: correct, incorrect
    answer_logits  [example, 2] their logits
    right          [example, any] the token ids that count as right, the correct answer first, which fills up rows
    logits         [example, vocabulary], or None where nobody asked for all of them
    """

    answers: Tensor
    answer_logits: Tensor
    right: Tensor
    logits: Tensor | None = None

    @property
    def all_logits(self) -> Tensor:
        """[example, vocabulary], for metrics that say `reads_all_logits`."""
        if self.logits is None:
            raise InputError("a metric reads all logits without saying so; set reads_all_logits = True in its class")
        return self.logits


class Metric(Method, ABC):
    """A per-example metric and what it needs. Derive from it for a metric of one's own.

    reads_all_logits  whether the two answers' logits are not enough
    differentiable    whether edges can be scored with it
    flat_at_clean     whether the clean run is its maximum, so that it has no slope there
    is_difference     whether it is positive where the correct answer beats the incorrect one
    """

    reads_all_logits: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    flat_at_clean: ClassVar[bool] = False
    is_difference: ClassVar[bool] = False

    @abstractmethod
    def value(self, run: Readout, clean: Readout) -> Tensor:
        """[example] of a run, given the clean run."""

    def checked(self, run: Readout, clean: Readout) -> Tensor:
        """The same; refuses a metric of one's own that gives anything else than a number per example."""
        found, expected = self.value(run, clean), (len(run.answers),)
        shape = getattr(found, "shape", None)
        if shape != expected:
            given = type(found).__name__ if shape is None else tuple(shape)
            raise InputError(f"metric {self.name!r} must give one value per example, {expected}, but gave {given}")
        return found


@dataclass(frozen=True)
class LogitDifference(Metric):
    """logit(correct) - logit(incorrect), the benchmark's metric."""

    name: ClassVar[str] = "logit-difference"
    is_difference: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        """[example]."""
        return run.answer_logits[:, 0] - run.answer_logits[:, 1]


@dataclass(frozen=True)
class ProbabilityDifference(Metric):
    """The difference of the two answers' probabilities."""

    name: ClassVar[str] = "probability-difference"
    reads_all_logits: ClassVar[bool] = True
    is_difference: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        """[example]."""
        chances = (run.answer_logits - run.all_logits.logsumexp(-1, keepdim=True)).exp()
        return chances[:, 0] - chances[:, 1]


@dataclass(frozen=True)
class Kl(Metric):
    """Minus the KL divergence from the clean run's prediction to this run's."""

    name: ClassVar[str] = "kl"
    reads_all_logits: ClassVar[bool] = True
    flat_at_clean: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        """[example]."""
        there, here = clean.all_logits.log_softmax(-1), run.all_logits.log_softmax(-1)
        return -(there.exp() * (there - here)).sum(-1)


@dataclass(frozen=True)
class Accuracy(Metric):
    """1 where the most likely next token is right; it can be evaluated but not scored with."""

    name: ClassVar[str] = "accuracy"
    reads_all_logits: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def value(self, run: Readout, clean: Readout) -> Tensor:
        """[example]."""
        logits = run.all_logits
        return (logits.argmax(-1, keepdim=True) == run.right).any(-1).to(logits.dtype)


METRICS: dict[str, type[Metric]] = {one.name: one for one in (LogitDifference, ProbabilityDifference, Kl, Accuracy)}
