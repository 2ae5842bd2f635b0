"""Faithfulness against circuit size, over a linear share of the edges, of which areas are taken, and a logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...evaluate import Measure
from .looks import Look
from .sheet import FAINT, NORMAL, PALE, SMALL, Sheet, number_ticks, padded, share_words

FloatArray = NDArray[np.float64]
# In inches: a panel, the room that its labels need at the left, between panels, below, and what is above.
PANEL, LABELS, BETWEEN, BELOW, ABOVE = (2.75, 2.2), 0.52, 0.3, 0.62, 0.24
SCALES = ("linear", "log")


@dataclass(frozen=True, eq=False)
class Line:
    """A curve as it is drawn: only sizes that ask for an edge; [size] all.

    low, high  the band around it; None for none
    is_filled  whether the area that counts is tinted where the share is linear
    """

    look: Look
    shares: FloatArray
    heights: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    is_filled: bool = False


def draw_panels(sheet: Sheet, left: float, top: float, lines: Sequence[Line], measure: Measure, words: str) -> None:
    """Two panels beside each other of the same heights; `words` say what the height is."""
    around = [1.0]
    around += [float(value) for line in lines for ends in (line.heights, line.low, line.high) if ends is not None
               for value in ends]  # fmt: skip
    low, high = padded(around)
    for scale in SCALES:
        is_first = scale == SCALES[0]
        axis = sheet.axes(left + LABELS + (0 if is_first else PANEL[0] + BETWEEN), top, *PANEL)
        for level, colour in ((1, FAINT), (0, PALE)):
            axis.axhline(level, color=colour, linewidth=0.7, zorder=1)
        for line in lines:
            _draw(axis, line, measure, is_first)
        ticks, labels = number_ticks(low, high)
        axis.set_yticks(ticks, labels if is_first else [""] * len(ticks))
        axis.set_ylim(low, high)
        _share_axis(axis, scale, [share for line in lines for share in line.shares])
        if is_first:
            axis.set_ylabel(words, parse_math=False, fontsize=NORMAL)


def panels_width() -> float:
    """The inches that two panels take."""
    return LABELS + 2 * PANEL[0] + BETWEEN


def _draw(axis: Axes, line: Line, measure: Measure, is_linear: bool) -> None:
    look = line.look
    if line.is_filled and is_linear:
        ends = np.array([0.0, 1.0])
        level = float(ends[np.abs(measure.height(ends)).argmin()])  # where the height that is integrated is 0
        axis.fill_between(line.shares, line.heights, level, color=look.colour, alpha=0.13, linewidth=0, zorder=1)
    if line.low is not None and line.high is not None and not (line.is_filled and is_linear):
        axis.fill_between(line.shares, line.low, line.high, color=look.colour, alpha=0.18, linewidth=0, zorder=1.5)
    axis.add_line(look.line(x=line.shares, y=line.heights))


def _share_axis(axis: Axes, scale: str, shares: Sequence[float]) -> None:
    """Ticks in percent of the edges."""
    least = min(shares, default=0.01)
    if scale == "log":
        axis.set_xscale("log")
        low, decades = least / 1.25, range(int(np.floor(np.log10(least))), 1)
        steps = (1, 2, 5) if least > 0.05 else (1,)
        ticks = [step * 10.0**power for power in decades for step in steps if low <= step * 10.0**power <= 1]
    else:
        low, ticks = -0.02, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axis.set_xticks(ticks, [share_words(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlim(low, 1.25 if scale == "log" else 1.02)
    axis.set_xlabel(f"edges asked for, {'logarithmic' if scale == 'log' else 'linear'} share", fontsize=SMALL)
