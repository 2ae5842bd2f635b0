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

    from .task import Task


@dataclass(frozen=True, eq=False)
class Readout:
    """The output of a run where metrics read it: at the last position of every example.

    If answers have several tokens, an example has a row per token of the longest, and `counted` says which are used.

    answers        [row, 2] token ids: correct, incorrect. Without an incorrect answer, both are the correct one
    answer_logits  [row, 2] their logits
    right          [row, any] all correct token ids, the correct answer first; it also pads shorter rows
    logits         [row, vocabulary], or None if the metric doesn't read them
    wrong          [row, any] all incorrect token ids, like `right`; None if there is only the incorrect answer
    counted        [example, row of the example] False for rows beyond an example's correct answer; None for a row per
                   example
    sides          [row, 2] 1 if the row predicts a token of the correct, or of the incorrect answer, else 0; None if
                   answers have one token
    """

    answers: Tensor
    answer_logits: Tensor
    right: Tensor
    logits: Tensor | None = None
    wrong: Tensor | None = None
    counted: Tensor | None = None
    sides: Tensor | None = None

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
    is_difference     whether it is positive if the correct answer beats the incorrect one; examples then need both
    reads_one_token   whether it reads only the first token of answers of several tokens; these must then differ

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Probability(Metric):
    ...     reads_all_logits = True
    ...     def value(self, run, clean):
    ...         return (run.answer_logits[:, 0] - run.all_logits.logsumexp(-1)).exp()
    """

    reads_all_logits: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    flat_at_clean: ClassVar[bool] = False
    is_difference: ClassVar[bool] = False
    reads_one_token: ClassVar[bool] = False

    @abstractmethod
    def value(self, run: Readout, clean: Readout) -> Tensor:
        """Return the metric [row] of a run, given the clean run. A row is an example, or a token of its answer."""

    def combine(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return the metric [example] of answers of several tokens, from values [example, row]: by default the sum."""
        return values.masked_fill(~counted, 0).sum(1)

    def for_task(self, task: Task) -> Metric:
        """Return the metric to use for a task. Raise InputError if it can't be used."""
        n_alone = sum(example.incorrect is None for example in task.examples)
        if self.is_difference and n_alone:
            raise InputError(
                f"metric {self.name!r} compares a correct with an incorrect answer, but {n_alone:,} of the "
                f"{len(task):,} examples of task {task.name!r} have no incorrect one; use log-probability or kl"
            )
        n_same = sum(example.correct == example.incorrect for example in task.examples)  # they have several tokens
        if self.reads_one_token and n_same:
            raise InputError(
                f"metric {self.name!r} compares the first tokens of answers, but in {n_same:,} of the {len(task):,} "
                f"examples of task {task.name!r} these are the same; use log-probability-difference"
            )
        return self

    def checked(self, run: Readout, clean: Readout) -> Tensor:
        """Return the metric [example]. Raise InputError if a custom metric doesn't return one number per row."""
        values, expected = self.value(run, clean), (len(run.answers),)
        shape = getattr(values, "shape", None)
        if shape != expected:
            result = type(values).__name__ if shape is None else tuple(shape)
            raise InputError(f"metric {self.name!r} must give one value per example, {expected}, but gave {result}")
        return values if run.counted is None else self.combine(values.view(run.counted.shape), run.counted)


@dataclass(frozen=True)
class TaskMetric(Metric):
    """The metric that suits a task.

    It is log-probability if examples have no incorrect answer, probability-difference if they have sets of answers on
    both sides, as greater-than has, log-probability-difference if answers have several tokens, and else
    logit-difference. No metric suits sets together with answers of several tokens.
    """

    name: ClassVar[str] = "auto"

    def for_task(self, task: Task) -> Metric:
        if any(example.incorrect is None for example in task.examples):
            return LogProbability()
        has_several = any(example.n_reads > 1 for example in task.examples)
        if any(example.also_incorrect for example in task.examples):
            if has_several:
                raise InputError(
                    f"task {task.name!r} has sets of answers, and answers of several tokens: no metric suits both; "
                    "make each answer one token, give one correct and one incorrect answer, or choose a metric"
                )
            return ProbabilityDifference()
        return LogProbabilityDifference() if has_several else LogitDifference()

    def value(self, run: Readout, clean: Readout) -> Tensor:
        raise InputError("metric 'auto' stands for the metric of a task; call metric.for_task(task)")


@dataclass(frozen=True)
class LogitDifference(Metric):
    """logit(correct) - logit(incorrect), the benchmark's metric."""

    name: ClassVar[str] = "logit-difference"
    is_difference: ClassVar[bool] = True
    reads_one_token: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        return run.answer_logits[:, 0] - run.answer_logits[:, 1]


@dataclass(frozen=True)
class ProbabilityDifference(Metric):
    """The probability of all correct answers minus that of all incorrect ones."""

    name: ClassVar[str] = "probability-difference"
    reads_all_logits: ClassVar[bool] = True
    is_difference: ClassVar[bool] = True
    reads_one_token: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        log_total = run.all_logits.logsumexp(-1, keepdim=True)
        sums = []
        for tokens in (run.right, run.answers[:, 1:] if run.wrong is None else run.wrong):
            repeated = tokens == tokens[:, :1]  # padding repeats the first
            repeated[:, 0] = False
            probabilities = (run.all_logits.gather(1, tokens) - log_total).exp()
            sums.append(probabilities.masked_fill(repeated, 0).sum(-1))
        return sums[0] - sums[1]


@dataclass(frozen=True)
class LogProbability(Metric):
    """The log-probability of the correct answer, summed over its tokens."""

    name: ClassVar[str] = "log-probability"
    reads_all_logits: ClassVar[bool] = True

    def value(self, run: Readout, clean: Readout) -> Tensor:
        return run.answer_logits[:, 0] - run.all_logits.logsumexp(-1)


@dataclass(frozen=True)
class LogProbabilityDifference(Metric):
    """The log-probability of the correct answer minus that of the incorrect one, each summed over its tokens."""

    name: ClassVar[str] = "log-probability-difference"
    reads_all_logits: ClassVar[bool] = True
    is_difference: ClassVar[bool] = True

    def for_task(self, task: Task) -> Metric:
        """Return the logit difference if all answers have one token: it is the same."""
        return super().for_task(task) if any(e.n_reads > 1 for e in task.examples) else LogitDifference().for_task(task)

    def value(self, run: Readout, clean: Readout) -> Tensor:
        logs = run.answer_logits - run.all_logits.logsumexp(-1, keepdim=True)
        logs = logs if run.sides is None else logs * run.sides
        return logs[:, 0] - logs[:, 1]

    def combine(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return the sum over the rows of both answers. Other rows are 0."""
        return values.sum(1)


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
    """1 if the most likely next tokens are correct, else 0. It has no gradient, so edges can't be scored with it."""

    name: ClassVar[str] = "accuracy"
    reads_all_logits: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def value(self, run: Readout, clean: Readout) -> Tensor:
        highest, token = run.all_logits.max(-1, keepdim=True)
        is_right = (token == run.right).any(-1).to(highest.dtype)
        return is_right.masked_fill(highest.isnan().squeeze(-1), float("nan"))

    def combine(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return 1 for examples whose tokens are all correct."""
        return values.masked_fill(~counted, 1).amin(1)


DEFAULT_METRIC = TaskMetric()
METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        TaskMetric, LogitDifference, ProbabilityDifference, LogProbability, LogProbabilityDifference, Kl, Accuracy,
    )
}  # fmt: skip
