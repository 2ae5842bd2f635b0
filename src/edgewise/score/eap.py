"""EAP: the activation difference times the gradient at the clean run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..tasks.metrics import Metric
from .base import BatchScores, Scorer
from .first_order import check_slope_at_clean, score_at_clean

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class Eap(Scorer):
    """Edge attribution patching: one forward and one forward + backward pass."""

    name: ClassVar[str] = "eap"

    def check(self, metric: Metric) -> None:
        """Raise InputError for a metric without a gradient, or without one at the clean run."""
        super().check(metric)
        check_slope_at_clean(self.name, metric)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Multiply the source differences with the gradient of the clean run."""
        return score_at_clean(batch, metric)
