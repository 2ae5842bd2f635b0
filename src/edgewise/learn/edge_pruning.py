"""Edge pruning (Bhaskar et al. 2024, arXiv 2406.16778): hard concrete gates, and Lagrange multipliers for the size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import InputError
from .mask_gates import check_masks
from .mask_learner import MaskLearner

if TYPE_CHECKING:
    from torch import Tensor

# The hard concrete distribution: a sigmoid of this temperature, stretched to these limits, then cut to [0, 1].
TEMPERATURE, LOW, HIGH = 2 / 3, -0.1, 1.1
# How far the published multipliers can move: 3,000 steps of 0.8. In fewer or smaller steps they move as far.
MULTIPLIER_RANGE = 2400.0
# The share of the steps in which the learning rate rises from 0; afterwards it falls to 0.
RATE_WARM_UP = 1 / 15


@dataclass(frozen=True)
class EdgePruning(MaskLearner):
    """Learns masks of given sizes with hard concrete gates.

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
