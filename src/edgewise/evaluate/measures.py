"""Measures: areas over the faithfulness curve, CPR and CMD. NumPy only."""

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
# How far from 1 the faithfulness of a circuit may be that is shown by default, and the rounding error of that.
TOLERANCE, ROUNDING = 0.1, 1e-9


class Measure(Method, ABC):
    """An area over the faithfulness curve. Derive from it for a custom measure.

    rank              which values of a ranking circuits are selected by: 'signed' or 'absolute'
    better            1 if higher is better, -1 if lower is
    least             the smallest value that it can have
    full_name         the name without abbreviation
    summary, meaning  what it measures, in a few words and in a sentence
    uses_pnr          whether recipes may ask for a share of positive edges. The paper does so for absolute rankings
                      only.
    paper_recipe      the name of the recipe that the paper chose for all its models and tasks
    target            the faithfulness that circuits should have, in words; `is_faithful` says which have it
    """

    rank: ClassVar[str]
    better: ClassVar[int]
    least: ClassVar[float] = float("-inf")
    summary: ClassVar[str] = ""
    full_name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    uses_pnr: ClassVar[bool] = False
    paper_recipe: ClassVar[str] = ""
    target: ClassVar[str] = f"{1 - TOLERANCE:g} or more"

    @property
    def improves(self) -> str:
        """Which direction is better, in words."""
        return "higher is better" if self.better > 0 else "lower is better"

    @abstractmethod
    def height(self, faithfulness: FloatArray) -> FloatArray:
        """Return the height of the curve whose area is the measure."""

    def is_faithful(self, faithfulness: FloatArray) -> NDArray[np.bool_]:
        """Return which circuits are faithful enough. The smallest of them is shown by default."""
        return faithfulness >= 1 - TOLERANCE - ROUNDING

    @property
    def smallest_faithful(self) -> str:
        """The size that is shown by default, in words; see `Curve.default_size`."""
        return f"the smallest size with faithfulness {self.target}"

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        """Return the loss [example] that learners minimise.

        Parameters
        ----------
        value, full, empty
            [example] the metric of a circuit, of the model and of the empty circuit.
        span
            The mean of full - empty over all examples.
        """
        raise InputError(f"measure {self.name!r} has no loss, so no ranking can be learned for it")

    def learning_rate(self, n_edges: int) -> float:
        """Return the default learning rate."""
        return 0.1


@dataclass(frozen=True)
class CircuitModelDistance(Measure):
    """The integrated circuit-model distance: the area between faithfulness and 1."""

    name: ClassVar[str] = "CMD"
    rank: ClassVar[str] = "absolute"
    better: ClassVar[int] = -1
    least: ClassVar[float] = 0.0
    summary: ClassVar[str] = "distance to 1"
    full_name: ClassVar[str] = "integrated circuit-model distance"
    meaning: ClassVar[str] = "the area between the curve and 1; 0 if circuits of every size behave like the model"
    uses_pnr: ClassVar[bool] = True
    paper_recipe: ClassVar[str] = "ILP + PNR"
    target: ClassVar[str] = f"within {TOLERANCE:g} of 1"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        return np.abs(1 - faithfulness)

    def is_faithful(self, faithfulness: FloatArray) -> NDArray[np.bool_]:
        """Return which circuits behave like the model: a faithfulness above 1 is as wrong as one below."""
        return np.abs(1 - faithfulness) <= TOLERANCE + ROUNDING

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        """Compare every example with its own run of the model, which is less noisy than |1 - f| of a batch."""
        return ((value - full) / span).square()

    def learning_rate(self, n_edges: int) -> float:
        """Return .1 for up to 2,000 edges, .03 for 100,000 and more."""
        return float(np.exp(np.interp(np.log(n_edges), np.log([2e3, 1e5]), np.log([0.1, 0.03]))))


@dataclass(frozen=True)
class CircuitPerformanceRatio(Measure):
    """The integrated circuit performance ratio: the area under faithfulness, without bound."""

    name: ClassVar[str] = "CPR"
    rank: ClassVar[str] = "signed"
    better: ClassVar[int] = 1
    summary: ClassVar[str] = "area below"
    full_name: ClassVar[str] = "integrated circuit performance ratio"
    meaning: ClassVar[str] = "the area under the curve; above 1 if circuits leave out harmful edges"
    paper_recipe: ClassVar[str] = "ILP + Bootstrapping"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        return faithfulness

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        return -(value - empty) / span

    def learning_rate(self, n_edges: int) -> float:
        """Return a larger rate than for CMD: there is no target to overshoot."""
        return 0.4


CMD, CPR = CircuitModelDistance(), CircuitPerformanceRatio()
MEASURES: dict[str, type[Measure]] = {cls.name: cls for cls in (CircuitModelDistance, CircuitPerformanceRatio)}
BOTH_MEASURES: tuple[Measure, ...] = (CMD, CPR)
