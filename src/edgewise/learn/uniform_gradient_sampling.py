"""Uniform gradient sampling (Li and Janson 2024, arXiv 2409.09951): gates that are uniform in a window, else 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from .mask_gates import check_masks
from .mask_learner import MaskLearner

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class UniformGradientSampling(MaskLearner):
    """Learns masks whose gates are open with probability p, and partly open with probability p (1 - p).

    Each example of a step draws its own mask. The gradient with respect to p is the mean, over the examples whose gate
    is partly open, of the gradient with respect to the gate. The loss adds a penalty times the sum of all p, so an edge
    is kept if it lowers the loss by more than the penalty.

    The published method also penalises nodes, clips gradients, and draws 12 masks for each of 5 examples.

    penalties  lambda; one mask is learned for each
    start      first logit of p
    """

    name: ClassVar[str] = "ugs"
    title: ClassVar[str] = "UGS"
    betas: ClassVar[tuple[float, float]] = (0.9, 0.995)
    gates_per_example: ClassVar[bool] = True

    penalties: tuple[float, ...] = (1e-3,)

    def __post_init__(self) -> None:
        super().__post_init__()
        are_valid = all(0 <= penalty < float("inf") for penalty in self.penalties)
        check_masks("penalties", self.penalties, "numbers of at least 0", are_valid)

    @classmethod
    def published(cls, **options: Any) -> UniformGradientSampling:
        """Return the settings of the publication: 3,000 steps of 60 masks, and its rate for patching."""
        settings: dict[str, Any] = {"steps": 3000, "batch": 60, "rate": 0.01}
        return cls(**settings | options)

    def masks(self) -> tuple[UniformGradientSampling, ...]:
        return tuple(replace(self, penalties=(penalty,)) for penalty in self.penalties)

    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        p = parameters.sigmoid()
        window = (p * (1 - p)).detach()
        gates = ((p - uniform) / window + 0.5).clamp(0, 1)
        n_partly_open = ((gates > 0) & (gates < 1)).sum(0).clamp(min=1)
        # Gates keep their values; their derivative by p becomes 1 for each partly open gate, divided by their share.
        return gates.detach() + window * len(uniform) / n_partly_open * (gates - gates.detach())

    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        return self.penalties[0] * parameters.sigmoid().sum()

    def open_probability(self, parameters: Tensor) -> Tensor:
        return parameters.sigmoid()
