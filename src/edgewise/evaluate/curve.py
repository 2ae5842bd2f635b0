"""The faithfulness curve and its areas, CPR and CMD. NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError, unknown_name

SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FloatArray = NDArray[np.float64]


def _mib(circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
    """(m(C) - m(empty)) / (m(full) - m(empty)): 0 for the empty circuit, 1 for the full model."""
    size = np.maximum(np.maximum(np.abs(full), np.abs(empty)), 1e-9)
    range_ = full - empty
    return (circuit - empty) / np.where(np.abs(range_) <= 1e-9 * size, np.nan, range_)


def _ratio(circuit: FloatArray, full: FloatArray, empty: FloatArray) -> FloatArray:
    """m(C) / m(full), as in the paper's validation tables; not on MIB's scale."""
    return circuit / np.where(full == 0, np.nan, full)


# Definitions give NaN where they divide by nothing.
FAITHFULNESS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {"mib": _mib, "ratio": _ratio}
DEFINITIONS = {"mib": "MIB's, 0 for the empty circuit and 1 for the model", "ratio": "a ratio, not on MIB's scale"}
UNDEFINED = {
    "mib": "the metric is {full:.6g} for the full and for the empty circuit: faithfulness is undefined",
    "ratio": "the metric of the full model is 0: faithfulness as a ratio is undefined; use --faithfulness mib",
}


def faithfulness(circuit: ArrayLike, full: ArrayLike, empty: ArrayLike, definition: str = "mib") -> FloatArray:
    """Faithfulness of circuits from their mean metric, by MIB's definition or as a ratio; arrays broadcast."""
    found = _faithfulness(circuit, full, empty, definition)
    if np.isnan(found).any() and not np.isnan(np.asarray(circuit, np.float64)).any():
        raise InputError(UNDEFINED[definition].format(full=float(np.asarray(full, np.float64).mean())))
    return found


def reweighted_faithfulness(
    weights: FloatArray, values: FloatArray, full: FloatArray, empty: FloatArray, definition: str = "mib"
) -> FloatArray:
    """[resample, circuit] faithfulness of mean metrics under weights [resample, example], all means alike.

    NaN in resamples of which the full and the empty circuit can't be told apart.
    """
    return _faithfulness(weights @ values.T, weights @ full[:, None], weights @ empty[:, None], definition)


def _faithfulness(circuit: ArrayLike, full: ArrayLike, empty: ArrayLike, definition: str) -> FloatArray:
    """Faithfulness, NaN where it is undefined."""
    if definition not in FAITHFULNESS:
        raise unknown_name("faithfulness definition", definition, list(FAITHFULNESS))
    return FAITHFULNESS[definition](*(np.asarray(part, np.float64) for part in (circuit, full, empty)))


def areas(shares: ArrayLike, heights: ArrayLike) -> FloatArray:
    """[...] the areas under curves [..., size] by trapezoids, linear in the share of edges."""
    x, y = np.asarray(shares, np.float64), np.asarray(heights, np.float64)
    return (np.diff(x) * (y[..., 1:] + y[..., :-1]) / 2).sum(-1)


def area(shares: ArrayLike, heights: ArrayLike) -> float:
    """The area under one curve."""
    return float(areas(shares, heights))


def _under(height: FloatArray) -> FloatArray:
    return height


def _distance(height: FloatArray) -> FloatArray:
    return np.abs(1 - height)


# What the benchmark's two metrics take the area of, and which way is better.
HEIGHTS: dict[str, Callable[[FloatArray], FloatArray]] = {"CPR": _under, "CMD": _distance}
BETTER = {"CPR": 1, "CMD": -1}


def size_to_edges(share: float, n_edges: int) -> int:
    """int(share * edges), as MIB has it."""
    if not 0 <= share <= 1:
        raise InputError(f"a circuit's size is a share of the edges, from 0 to 1, but {share} was given")
    return int(share * n_edges)


@dataclass(frozen=True, eq=False)
class Curve:
    """Circuits of growing size, and the metric of each on every example.

    shares       [size] of all edges, increasing; `asked` and `kept` are edges [size]
    values       [size, example] the metric of each circuit; `full` and `empty` are [example]
    definition   of faithfulness: 'mib' or 'ratio'
    """

    shares: tuple[float, ...]
    asked: tuple[int, ...]
    kept: tuple[int, ...]
    values: FloatArray
    full: FloatArray
    empty: FloatArray
    definition: str = "mib"

    def __post_init__(self) -> None:
        sizes, examples = len(self.shares), len(self.full)
        if self.values.shape != (sizes, examples) or self.empty.shape != (examples,):
            raise InputError(f"a curve of {sizes} sizes and {examples} examples can't have values {self.values.shape}")
        if len(self.asked) != sizes or len(self.kept) != sizes:
            raise InputError(f"a curve of {sizes} sizes needs as many numbers of edges")
        if any(b <= a for a, b in zip(self.shares, self.shares[1:], strict=False)):
            raise InputError(f"the sizes of a curve must increase, but {self.shares} were given")
        if self.definition not in FAITHFULNESS:
            raise unknown_name("faithfulness definition", self.definition, list(FAITHFULNESS))

    @property
    def faithfulness(self) -> FloatArray:
        """[size] of the mean metric over examples."""
        return faithfulness(self.values.mean(1), float(self.full.mean()), float(self.empty.mean()), self.definition)

    @property
    def cpr(self) -> float:
        """The area under faithfulness: higher is better, without bound."""
        return self.area("CPR")

    @property
    def cmd(self) -> float:
        """The area between faithfulness and 1: best at 0."""
        return self.area("CMD")

    def area(self, benchmark: str) -> float:
        """CPR or CMD, by name."""
        if benchmark not in HEIGHTS:
            raise unknown_name("benchmark metric", benchmark, list(HEIGHTS))
        return area(self.shares, HEIGHTS[benchmark](self.faithfulness))

    def reweighted(self, weights: FloatArray) -> FloatArray:
        """[resample, size] faithfulness under weights [resample, example]; see `reweighted_faithfulness`."""
        return reweighted_faithfulness(weights, self.values, self.full, self.empty, self.definition)

    def rows(self) -> list[dict[str, Any]]:
        """One record per size."""
        columns: Sequence[Sequence[Any]] = (
            self.shares,
            self.asked,
            self.kept,
            self.values.mean(1).tolist(),
            self.faithfulness.tolist(),
        )
        names = ("share", "edges_asked", "edges_kept", "metric", "faithfulness")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
