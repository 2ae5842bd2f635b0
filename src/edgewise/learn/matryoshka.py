"""Matryoshka attribution: the published form of learning one ranking for all sizes, as a preset of `TopKLearner`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..evaluate import CPR, Measure
from ..score import Scorer
from .top_k_learner import TopKLearner


@dataclass(frozen=True)
class Matryoshka(TopKLearner):
    """`TopKLearner` as Matryoshka attribution was published: 5,000 steps of one example, from zeros, without noise.

    Every step draws a number of edges uniformly and runs all edges with the weights of a soft choice of as many
    (sigmoid, temperature 0.5). Adam with a constant rate of 0.05 maximises the metric, so the measure is CPR.
    The threshold of the soft choice takes 50 bisection steps instead of 30, which changes rounding only.
    """

    name: ClassVar[str] = "matryoshka"
    title: ClassVar[str] = "Matryoshka"

    measure: Measure = CPR
    steps: int = 5000
    batch: int = 1
    rate: float | None = 0.05
    noise: float = 0.0
    temperature: float = 0.5
    warm: Scorer | None = None
    forward: Literal["hard", "sharp", "soft"] = "soft"
    draw: Literal["log", "curve", "uniform"] = "uniform"
    decay: bool = False
    circuits: int = 1
    normalise: bool = False
    validate: bool = False
    reverse: bool = False
    node_rate: float = 0.0
    calibrate: bool = False

    @classmethod
    def published(cls, **options: Any) -> Matryoshka:
        """Return the defaults, except for the given options."""
        return cls(**options)
