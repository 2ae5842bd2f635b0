"""Faithfulness, a metric on the scale of the model's own, and areas over its curve: CPR and CMD. NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from ..method import Method, check_is

if TYPE_CHECKING:
    from torch import Tensor

FloatArray = NDArray[np.float64]
# How far from 1 the faithfulness of a circuit may be that is shown by default, and the rounding error of that.
TOLERANCE, ROUNDING = 0.1, 1e-9


class Faithfulness(Method, ABC):
    """A definition of faithfulness. Derive from it for a custom definition.

    summary    a few words for legends and help texts
    undefined  the error where it divides by 0. May contain {full}, the metric of the model.
    """

    summary: ClassVar[str] = ""
    undefined: ClassVar[str] = "faithfulness is undefined"

    @abstractmethod
    def compute(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """Return faithfulness from mean metrics; NaN where it is undefined. Arrays broadcast."""


@dataclass(frozen=True)
class MibFaithfulness(Faithfulness):
    """(m(C) - m(empty)) / (m(full) - m(empty)): 0 for the empty circuit, 1 for the full model."""

    name: ClassVar[str] = "mib"
    summary: ClassVar[str] = "MIB's, 0 for the empty circuit and 1 for the model"
    undefined: ClassVar[str] = (
        "the metric is {full:.6g} for the full and for the empty circuit: faithfulness is undefined"
    )

    def compute(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """NaN where the full and the empty circuit have the same metric up to rounding."""
        size = np.maximum(np.maximum(np.abs(full), np.abs(empty)), 1e-9)
        range_ = full - empty
        return (circuit - empty) / np.where(np.abs(range_) <= 1e-9 * size, np.nan, range_)


@dataclass(frozen=True)
class RatioFaithfulness(Faithfulness):
    """m(C) / m(full), as in the paper's validation tables. Not on MIB's scale."""

    name: ClassVar[str] = "ratio"
    summary: ClassVar[str] = "a ratio, not on MIB's scale"
    undefined: ClassVar[str] = (
        "the metric of the full model is 0: faithfulness as a ratio is undefined; use MIB's (mib)"
    )

    def compute(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """NaN where the model's metric is 0."""
        return circuit / np.where(full == 0, np.nan, full)


FAITHFULNESS: dict[str, type[Faithfulness]] = {cls.name: cls for cls in (MibFaithfulness, RatioFaithfulness)}
MIB = MibFaithfulness()


def faithfulness(circuit: ArrayLike, full: ArrayLike, empty: ArrayLike, definition: Faithfulness = MIB) -> FloatArray:
    """Return faithfulness from the mean metrics of the circuits, of the full and of the empty circuit.

    Arrays broadcast. If a circuit's mean is NaN, results may be NaN; otherwise a NaN raises InputError (undefined).
    """
    check_is("definition of faithfulness", Faithfulness, definition)
    parts = [np.asarray(part, np.float64) for part in (circuit, full, empty)]
    values = definition.compute(*parts)
    if np.isnan(values).any() and not np.isnan(parts[0]).any():
        raise InputError(definition.undefined.format(full=float(parts[1].mean())))
    return values


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

    @property
    def has_target(self) -> bool:
        """Whether circuits should be as faithful as the model, not more. Learners then calibrate their rankings."""
        return self.better < 0

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

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, metric_range: float) -> Tensor:
        """Return the loss [example] that learners minimise.

        Parameters
        ----------
        value, full, empty
            [example] the metric of a circuit, of the model and of the empty circuit.
        metric_range
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

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, metric_range: float) -> Tensor:
        """Compare every example with its own run of the model, which is less noisy than |1 - f| of a batch."""
        return ((value - full) / metric_range).square()

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

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, metric_range: float) -> Tensor:
        return -(value - empty) / metric_range

    def learning_rate(self, n_edges: int) -> float:
        """Return a larger rate than for CMD: there is no target to overshoot."""
        return 0.4


CMD, CPR = CircuitModelDistance(), CircuitPerformanceRatio()
MEASURES: dict[str, type[Measure]] = {cls.name: cls for cls in (CircuitModelDistance, CircuitPerformanceRatio)}
BOTH_MEASURES: tuple[Measure, ...] = (CMD, CPR)
