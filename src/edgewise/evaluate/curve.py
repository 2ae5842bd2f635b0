"""The faithfulness curve and its areas, CPR and CMD. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.notebook import data_frame, from_report
from ..errors import InputError
from ..graph import size_to_edges as size_to_edges
from ..method import check_is
from .measures import CMD, CPR, MIB, Faithfulness, Measure, faithfulness

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FloatArray = NDArray[np.float64]
# Far beyond any metric, and small enough to calculate with.
MAX_METRIC = 1e100
# The share of edges that is shown by default if no circuit is faithful enough.
DEFAULT_SHARE = 0.05


def areas(shares: ArrayLike, heights: ArrayLike) -> FloatArray:
    """Return the areas [...] under curves [..., size] by the trapezoidal rule, linear in the share of edges."""
    x, y = np.asarray(shares, np.float64), np.asarray(heights, np.float64)
    return (np.diff(x) * (y[..., 1:] + y[..., :-1]) / 2).sum(-1)


def check_metric(name: str, values: FloatArray) -> None:
    """Raise InputError for values of a metric, read from a file, of which no area can be computed."""
    if values.dtype.kind != "f" or not (np.abs(values) <= MAX_METRIC).all():
        raise InputError(f"{name} has values that aren't finite, or too large for a metric")


@dataclass(frozen=True, eq=False)
class Curve:
    """Circuits of growing size, and the metric of each on every example.

    shares               [size] of all edges, increasing
    n_requested, n_kept  [size] edges that were asked for, and edges that the circuit has
    values               [size, example] the metric of each circuit
    full, empty          [example] the metric of the model and of the empty circuit
    definition           the definition of faithfulness
    """

    shares: tuple[float, ...]
    n_requested: tuple[int, ...]
    n_kept: tuple[int, ...]
    values: FloatArray
    full: FloatArray
    empty: FloatArray
    definition: Faithfulness = MIB

    def __post_init__(self) -> None:
        sizes, examples = len(self.shares), len(self.full)
        if self.values.shape != (sizes, examples) or self.empty.shape != (examples,):
            raise InputError(f"a curve of {sizes} sizes and {examples} examples can't have values {self.values.shape}")
        if len(self.n_requested) != sizes or len(self.n_kept) != sizes:
            raise InputError(f"a curve of {sizes} sizes needs as many numbers of edges")
        if any(b <= a for a, b in zip(self.shares, self.shares[1:], strict=False)):
            raise InputError(f"the sizes of a curve must increase, but {self.shares} were given")
        check_is("definition of faithfulness", Faithfulness, self.definition)

    @property
    def faithfulness(self) -> FloatArray:
        """[size] of the mean metric over examples."""
        return faithfulness(self.values.mean(1), float(self.full.mean()), float(self.empty.mean()), self.definition)

    @property
    def cpr(self) -> float:
        """The area under faithfulness. Higher is better, without bound."""
        return self.area(CPR)

    @property
    def cmd(self) -> float:
        """The area between faithfulness and 1. 0 is best."""
        return self.area(CMD)

    def area(self, measure: Measure) -> float:
        """Return CPR, CMD or the area of a custom measure."""
        check_is("measure", Measure, measure)
        if len(self.shares) < 2:
            raise InputError("a curve of fewer than two sizes has no area; give more sizes")
        return float(areas(self.shares, measure.height(self.faithfulness)))

    @property
    def nonempty_sizes(self) -> list[int]:
        """Indices of the sizes that ask for an edge. In a small graph the smallest sizes ask for none."""
        return [index for index, count in enumerate(self.n_requested) if count > 0]

    def default_size(self, measure: Measure, chosen_by: NDArray[np.float64] | None = None) -> int:
        """Return the index of the size to show by default.

        It is the smallest circuit that is faithful by the measure, or else the one nearest to `DEFAULT_SHARE`. Empty
        circuits and the full model are only taken if there is nothing else. `chosen_by` is the faithfulness [size] that
        decides; by default that of this curve.
        """
        partial = [index for index, count in enumerate(self.n_kept) if count > 0 and self.shares[index] < 1]
        partial = partial or [len(self.shares) - 1]
        is_faithful = measure.is_faithful(self.faithfulness if chosen_by is None else chosen_by)
        faithful = [index for index in partial if is_faithful[index]]
        return faithful[0] if faithful else min(partial, key=lambda index: abs(self.shares[index] - DEFAULT_SHARE))

    def index_of(self, size: float) -> int:
        """Return the index of a size: a float is a share of the edges, an int the number that was asked for."""
        if not isinstance(size, Real):
            raise InputError(f"a size is a share of the edges (a float) or a number of edges (an int), not {size!r}")
        sizes: Sequence[float] = self.n_requested if isinstance(size, Integral) else self.shares
        match = next((index for index, known in enumerate(sizes) if isclose(known, size)), None)
        if match is None:
            raise InputError(
                f"there is no circuit of size {size!r}; choose one of: {', '.join(map(str, sizes))}. For another size, "
                "use solve(discovery.scores, size), or run with Settings(sizes=...)"
            )
        return match

    def subset(self, examples: slice | NDArray[np.intp]) -> Curve:
        """Return the curve of some of the examples, or of all of them in another order."""
        return replace(self, values=self.values[:, examples], full=self.full[examples], empty=self.empty[examples])

    @classmethod
    def concatenate(cls, parts: Sequence[Curve]) -> Curve:
        """Return the curve of several sets of examples, one after the other. Its `n_kept` are the edges asked for."""
        first = parts[0]
        values, full, empty = (
            np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("values", "full", "empty")
        )
        return replace(first, n_kept=first.n_requested, values=values, full=full, empty=empty)

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per size, for JSON and CSV."""
        names = ("share", "edges_asked", "edges_kept", "metric", "faithfulness")
        columns = (self.shares, self.n_requested, self.n_kept, self.values.mean(1).tolist(), self.faithfulness.tolist())
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with a row per size: share, edges_asked, edges_kept, metric, faithfulness."""
        rows = self.rows()
        return data_frame({name: [row[name] for row in rows] for name in rows[0]})

    def plot(self, title: str = "") -> Figure:
        """Return a matplotlib figure of faithfulness by size."""
        figure: Figure = from_report("figures", "plot_curve")(self, title)
        return figure

    def __repr__(self) -> str:
        areas = f", CMD {self.cmd:.4f}, CPR {self.cpr:.4f}" if len(self.shares) > 1 else ""
        return f"Curve({len(self.shares)} sizes x {len(self.full):,} examples{areas})"
