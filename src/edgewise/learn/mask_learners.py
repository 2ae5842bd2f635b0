"""Learners that fit masks, and how a ranking follows from masks: edge pruning and uniform gradient sampling."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..core.ranking import Ranking
from ..errors import InputError
from .base import LearningCost, LearningProblem
from .mask_gates import MaskGates, check_masks

if TYPE_CHECKING:
    from torch import Tensor

    from ..runtime.session import Session

# The hard concrete distribution: a sigmoid of this temperature, stretched to these limits, then cut to [0, 1].
TEMPERATURE, LOW, HIGH = 2 / 3, -0.1, 1.1
# How far the published multipliers can move: 3,000 steps of 0.8. In fewer or smaller steps they move as far.
MULTIPLIER_RANGE = 2400.0
# The share of the steps in which the learning rate rises from 0; afterwards it falls to 0.
RATE_WARM_UP = 1 / 15


@dataclass(frozen=True)
class MaskLearner(MaskGates, ABC):
    """Learns masks, one after the other, and a ranking from them.

    A mask fits one size or one penalty. The value of an edge is the probability that its gate is open, the mean over
    the masks. So if every mask is part of the next larger one, the edges of the smallest mask come first.
    """

    @abstractmethod
    def masks(self) -> tuple[MaskLearner, ...]:
        """Return one learner per mask."""

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Learn every mask, and combine them."""
        from .mask_training import train

        units = [train(learner, problem, session) for learner in self.masks()]
        value = np.mean([unit.arrays["value"] for unit in units], axis=0)
        origin = {
            "losses": [loss for unit in units for loss in unit.about["losses"]],
            "open": [unit.about["open"] for unit in units],
            "seconds": sum(unit.about["seconds"] for unit in units),
        }
        return Ranking(problem.graph, value, signed=False, origin=origin)

    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return the cost of the steps of all masks."""
        from .training import weighted_cost

        return weighted_cost(problem, self.steps * len(self.masks()), self.batch)


@dataclass(frozen=True)
class EdgePruning(MaskLearner):
    """Edge pruning (Bhaskar et al. 2024, arXiv 2406.16778): masks of given sizes with hard concrete gates.

    A step draws one mask, and minimises loss + a g + b g^2, where g is the expected share of open gates minus the
    step's target. The multipliers a and b start at 0 and are maximised. The target falls linearly from all edges to
    the size during the warm-up.

    The published method also has gates on nodes and decays parameters, and measures g on the drawn mask. Here g is
    its expectation, which has less noise.

    sizes    shares of the edges; one mask is learned for each
    warm_up  share of the steps in which the target falls
    start    first log alpha of the gates
    """

    name: ClassVar[str] = "edge-pruning"
    title: ClassVar[str] = "Edge pruning"

    rate: float = 0.3
    start: float = 3.0
    sizes: tuple[float, ...] = (0.05,)
    warm_up: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        are_shares = all(0 < size <= 1 for size in self.sizes)
        check_masks("sizes", self.sizes, "shares of the edges, above 0 and up to 1", are_shares)
        if not 0 <= self.warm_up <= 1:
            raise InputError(f"warm_up is a share of the steps, from 0 to 1, not {self.warm_up}")

    @classmethod
    def published(cls, **options: Any) -> EdgePruning:
        """Return the settings of the publication: 3,000 steps of 32 examples, a rate of 0.8, a size of 2 %."""
        settings: dict[str, Any] = {"steps": 3000, "batch": 32, "rate": 0.8, "start": 10.0}
        return cls(**settings | {"sizes": (0.02,), "warm_up": 5 / 6} | options)

    def masks(self) -> tuple[EdgePruning, ...]:
        return tuple(replace(self, sizes=(size,)) for size in self.sizes)

    def first_parameters(self, n_edges: int) -> Tensor:
        """Return log alpha of every gate, then the two multipliers, which are 0."""
        import torch

        return torch.cat([super().first_parameters(n_edges), torch.zeros(2)])

    def rate_at(self, step: int) -> float:
        warm_up = max(1.0, RATE_WARM_UP * self.steps)
        return self.rate * min((step + 1) / warm_up, (self.steps - step) / max(1.0, self.steps - warm_up), 1.0)

    def target_at(self, step: int) -> float:
        """Return the share of gates that a step wants open."""
        done = min(1.0, step / (self.warm_up * self.steps)) if self.warm_up else 1.0
        return 1 + done * (self.sizes[0] - 1)

    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        logits = (uniform.log() - (1 - uniform).log() + parameters[:-2]) / TEMPERATURE
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        excess = self.open_probability(parameters).mean() - self.target_at(step)
        linear, squared = parameters[-2:] * (MULTIPLIER_RANGE / (self.rate * self.steps))
        # A step minimises this: it lowers the constraint's cost for the gates, and raises it for the multipliers.
        lowered = linear.detach() * excess + squared.detach() * excess**2
        raised = linear * excess.detach() + squared * excess.detach() ** 2
        return lowered - raised

    def open_probability(self, parameters: Tensor) -> Tensor:
        return (parameters[:-2] - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()


@dataclass(frozen=True)
class UniformGradientSampling(MaskLearner):
    """Uniform gradient sampling (Li and Janson 2024, arXiv 2409.09951).

    It learns masks whose gates are open with probability p, and partly open with probability p (1 - p).

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
