"""The parameters of learners that fit a mask: every edge has a gate that is open, closed or partly open at random."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, Measure
from ..method import check_is
from ..tasks import Metric
from .base import Learner, check_choice
from .top_k_parameters import MOST_STEPS

if TYPE_CHECKING:
    from torch import Tensor

# More masks than a curve has sizes; a limit for parameters from files.
MOST_MASKS = 100


@dataclass(frozen=True)
class MaskGates(Learner, ABC):
    """The gates of a mask: random weights whose distribution has one parameter per edge. `MaskLearner` learns them.

    measure  whose loss is minimised if `loss` is 'measure'
    loss     'kl': the KL divergence from the model's prediction to the circuit's, in nats, whatever metric and measure
             are; 'measure': the loss of the measure for the metric
    steps    number of steps per mask; each takes `batch` examples
    rate     learning rate
    start    the first value of every parameter
    """

    measure: Measure = CMD
    loss: Literal["kl", "measure"] = "kl"
    steps: int = 300
    batch: int = 16
    rate: float = 0.1
    start: float = 1.0
    seed: int = 0

    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    # Whether every example of a step has gates of its own.
    gates_per_example: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        check_choice("loss", self.loss, ("kl", "measure"))
        for what, value in (("steps", self.steps), ("examples a batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"learning needs at least 1 of {what} and at most {MOST_STEPS:,}, not {value}")
        if not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not abs(self.start) < float("inf"):
            raise InputError(f"start must be a finite number, not {self.start}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"a seed is at least 0 and below 2^63, not {self.seed}")

    @abstractmethod
    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        """Return gates [row, edge] from uniform numbers [row, edge]; differentiable in the parameters."""

    @abstractmethod
    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        """Return what a step adds to the loss for the number of open gates."""

    @abstractmethod
    def open_probability(self, parameters: Tensor) -> Tensor:
        """Return the probability [edge] that each gate is open."""

    def first_parameters(self, n_edges: int) -> Tensor:
        """Return the first parameters: one per edge, then those that belong to no edge."""
        import torch

        return torch.full((n_edges,), float(self.start))

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.rate

    def check(self, metric: Metric) -> None:
        """Raise InputError if the loss is that of a metric without gradient."""
        if self.loss == "measure":
            super().check(metric)


def check_masks(parameter: str, values: tuple[float, ...], expected: str, are_valid: bool) -> None:
    """Raise InputError if the sizes or penalties of the masks are invalid, none, repeated or too many."""
    if not are_valid or not 1 <= len(values) <= MOST_MASKS or len(set(values)) < len(values):
        raise InputError(f"{parameter} must be 1 to {MOST_MASKS} different {expected}, not {values}")
