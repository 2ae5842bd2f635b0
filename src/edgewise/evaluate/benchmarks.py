"""The benchmark's two metrics, CPR and CMD, as values: all that is told of them is told here. NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..methods import Method

FloatArray = NDArray[np.float64]


class Benchmark(Method, ABC):
    """An area of the faithfulness curve.

    rank           which values of a ranking it selects by, 'signed' or 'absolute'
    better         1 if higher is better, -1 if lower is
    least          the least value that it can have
    words          what it measures, in a few words
    uses_pnr       whether a share of positive edges is asked for, as the paper does for absolute rankings only
    papers_choice  the combination that the paper chose for all its models and tasks
    """

    rank: ClassVar[str]
    better: ClassVar[int]
    least: ClassVar[float] = float("-inf")
    words: ClassVar[str] = ""
    uses_pnr: ClassVar[bool] = False
    papers_choice: ClassVar[str] = ""

    @property
    def improves(self) -> str:
        """Which way is better, in words."""
        return "higher is better" if self.better > 0 else "lower is better"

    @abstractmethod
    def height(self, faithfulness: FloatArray) -> FloatArray:
        """What the area is taken of."""


@dataclass(frozen=True)
class Cmd(Benchmark):
    """The integrated circuit-model distance: the area between faithfulness and 1."""

    name: ClassVar[str] = "CMD"
    rank: ClassVar[str] = "absolute"
    better: ClassVar[int] = -1
    least: ClassVar[float] = 0.0
    words: ClassVar[str] = "distance to 1"
    uses_pnr: ClassVar[bool] = True
    papers_choice: ClassVar[str] = "ILP + PNR"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        """|1 - f|."""
        return np.abs(1 - faithfulness)


@dataclass(frozen=True)
class Cpr(Benchmark):
    """The integrated circuit performance ratio: the area under faithfulness, without bound."""

    name: ClassVar[str] = "CPR"
    rank: ClassVar[str] = "signed"
    better: ClassVar[int] = 1
    words: ClassVar[str] = "area below"
    papers_choice: ClassVar[str] = "ILP + Bootstrapping"

    def height(self, faithfulness: FloatArray) -> FloatArray:
        """f."""
        return faithfulness


CMD, CPR = Cmd(), Cpr()
BENCHMARKS: dict[str, type[Benchmark]] = {one.name: one for one in (Cmd, Cpr)}
BOTH: tuple[Benchmark, ...] = (CMD, CPR)
