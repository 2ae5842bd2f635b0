"""The benchmark's two metrics, CPR and CMD, as values: all that is told of them is told here. NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..method import Method

if TYPE_CHECKING:
    from torch import Tensor

FloatArray = NDArray[np.float64]


class Measure(Method, ABC):
    """An area of the faithfulness curve.

    rank           which values of a ranking it selects by, 'signed' or 'absolute'
    better         1 if higher is better, -1 if lower is
    least          the least value that it can have
    words          what it measures, in a few words
    spelled        its name spelled out; `meaning` says in a sentence what it asks
    uses_pnr       whether a share of positive edges is asked for, as the paper does for absolute rankings only
    papers_choice  the combination that the paper chose for all its models and tasks
    """

    rank: ClassVar[str]
    better: ClassVar[int]
    least: ClassVar[float] = float("-inf")
    words: ClassVar[str] = ""
    spelled: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    uses_pnr: ClassVar[bool] = False
    papers_choice: ClassVar[str] = ""

    @property
    def improves(self) -> str:
        """Which way is better, in words."""
        return "higher is better" if self.better > 0 else "lower is better"

    @abstractmethod
    def height(self, faithfulness: FloatArray) -> FloatArray:
        """What the area is taken of."""

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        """[example] what a ranking learns to make small, of the metric of a circuit, the model and the empty circuit.

        span  the mean of full - empty over all examples
        """
        raise InputError(f"benchmark {self.name!r} has no loss, so no ranking can be learned for it")

    def learning_rate(self, n_edges: int) -> float:
        """The rate at which rankings are learned unless one is asked for."""
        return 0.1


@dataclass(frozen=True)
class CircuitModelDistance(Measure):
    """The integrated circuit-model distance: the area between faithfulness and 1."""

    name: ClassVar[str] = "CMD"
    rank: ClassVar[str] = "absolute"
    better: ClassVar[int] = -1
    least: ClassVar[float] = 0.0
    words: ClassVar[str] = "distance to 1"
    spelled: ClassVar[str] = "integrated circuit-model distance"
    meaning: ClassVar[str] = "the area between the curve and 1, how far circuits are from behaving as the model does"
    uses_pnr: ClassVar[bool] = True
    papers_choice: ClassVar[str] = "ILP + PNR"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        """|1 - f|."""
        return np.abs(1 - faithfulness)

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        """Every example must match its own run of the model, which is steadier than |1 - f| of a batch."""
        return ((value - full) / span).square()

    def learning_rate(self, n_edges: int) -> float:
        """.1 for 2,000 edges and fewer, .03 for 100,000 and more."""
        return float(np.exp(np.interp(np.log(n_edges), np.log([2e3, 1e5]), np.log([0.1, 0.03]))))


@dataclass(frozen=True)
class CircuitPerformanceRatio(Measure):
    """The integrated circuit performance ratio: the area under faithfulness, without bound."""

    name: ClassVar[str] = "CPR"
    rank: ClassVar[str] = "signed"
    better: ClassVar[int] = 1
    words: ClassVar[str] = "area below"
    spelled: ClassVar[str] = "integrated circuit performance ratio"
    meaning: ClassVar[str] = (
        "the area below the curve, how much of the task circuits do, which may be more than the model"
    )
    papers_choice: ClassVar[str] = "ILP + Bootstrapping"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        """f."""
        return faithfulness

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        """Minus faithfulness."""
        return -(value - empty) / span

    def learning_rate(self, n_edges: int) -> float:
        """Larger than for CMD: there is no target to overshoot."""
        return 0.4


CMD, CPR = CircuitModelDistance(), CircuitPerformanceRatio()
MEASURES: dict[str, type[Measure]] = {one.name: one for one in (CircuitModelDistance, CircuitPerformanceRatio)}
BOTH_MEASURES: tuple[Measure, ...] = (CMD, CPR)
