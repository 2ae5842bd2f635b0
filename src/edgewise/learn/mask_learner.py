"""The base class of learners that fit masks, and how a ranking follows from masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.ranking import Ranking
from .base import LearningCost, LearningProblem
from .mask_gates import MaskGates

if TYPE_CHECKING:
    from ..runtime.session import Session


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
