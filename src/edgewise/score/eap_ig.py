"""EAP-IG-inputs: EAP with the gradient averaged between the corrupted and the clean embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, check_steps
from .first_order import score_on_path

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class EapIg(Scorer):
    """One forward pass and `steps` forward + backward passes, at corrupted + (k / steps)(clean - corrupted)."""

    name: ClassVar[str] = "eap-ig"
    steps: int = 5

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of scoring, which grows a little with every step."""
        return scoring_need(shape, length, self.steps)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        return score_on_path(batch, metric, self.steps)
