"""EAP: the activation difference times the gradient at the clean run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..tasks.metrics import Metric
from .base import BatchScores, Scorer
from .first_order import score_at_clean

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class Eap(Scorer):
    """Edge attribution patching: one forward and one forward + backward pass."""

    name: ClassVar[str] = "eap"
    at_clean: ClassVar[bool] = True

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        return score_at_clean(batch, metric)
