"""Faithfulness: a circuit's metric on the scale of the model's own. NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from ..method import Method, check_is

FloatArray = NDArray[np.float64]


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
    """Return the faithfulness of circuits from their mean metric. Arrays broadcast. Raise InputError if undefined."""
    check_is("definition of faithfulness", Faithfulness, definition)
    parts = [np.asarray(part, np.float64) for part in (circuit, full, empty)]
    values = definition.compute(*parts)
    if np.isnan(values).any() and not np.isnan(parts[0]).any():
        raise InputError(definition.undefined.format(full=float(parts[1].mean())))
    return values
