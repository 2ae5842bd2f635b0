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
    """A definition of faithfulness.

    words      what it is, in a few words
    undefined  what to say where it divides by nothing
    """

    words: ClassVar[str] = ""
    undefined: ClassVar[str] = "faithfulness is undefined"

    @abstractmethod
    def of(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """From the mean metric of circuits, of the full and of the empty one; arrays broadcast. NaN where undefined."""


@dataclass(frozen=True)
class MibFaithfulness(Faithfulness):
    """(m(C) - m(empty)) / (m(full) - m(empty)): 0 for the empty circuit, 1 for the full model."""

    name: ClassVar[str] = "mib"
    words: ClassVar[str] = "MIB's, 0 for the empty circuit and 1 for the model"
    undefined: ClassVar[str] = (
        "the metric is {full:.6g} for the full and for the empty circuit: faithfulness is undefined"
    )

    def of(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """NaN where the full and the empty circuit can't be told apart."""
        size = np.maximum(np.maximum(np.abs(full), np.abs(empty)), 1e-9)
        range_ = full - empty
        return (circuit - empty) / np.where(np.abs(range_) <= 1e-9 * size, np.nan, range_)


@dataclass(frozen=True)
class RatioFaithfulness(Faithfulness):
    """m(C) / m(full), as in the paper's validation tables; not on MIB's scale."""

    name: ClassVar[str] = "ratio"
    words: ClassVar[str] = "a ratio, not on MIB's scale"
    undefined: ClassVar[str] = (
        "the metric of the full model is 0: faithfulness as a ratio is undefined; use --faithfulness mib"
    )

    def of(self, circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
        """NaN where the model's metric is 0."""
        return circuit / np.where(full == 0, np.nan, full)


FAITHFULNESS: dict[str, type[Faithfulness]] = {one.name: one for one in (MibFaithfulness, RatioFaithfulness)}
MIB = MibFaithfulness()


def faithfulness(circuit: ArrayLike, full: ArrayLike, empty: ArrayLike, definition: Faithfulness = MIB) -> FloatArray:
    """Faithfulness of circuits from their mean metric; arrays broadcast. Refuses where it is undefined."""
    check_is("definition of faithfulness", Faithfulness, definition)
    parts = [np.asarray(part, np.float64) for part in (circuit, full, empty)]
    found = definition.of(*parts)
    if np.isnan(found).any() and not np.isnan(parts[0]).any():
        raise InputError(definition.undefined.format(full=float(parts[1].mean())))
    return found


def reweighted_faithfulness(
    weights: FloatArray, values: FloatArray, full: FloatArray, empty: FloatArray, definition: Faithfulness = MIB
) -> FloatArray:
    """[resample, circuit] faithfulness of mean metrics under weights [resample, example], all means alike.

    NaN in resamples of which the full and the empty circuit can't be told apart.
    """
    return definition.of(weights @ values.T, weights @ full[:, None], weights @ empty[:, None])
