"""How large scores are, of which sign, and how sure that sign is."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..findings import Findings
from .looks import BLUE, ORANGE
from .sheet import FAINT, INK, SMALL, Sheet, number_ticks, share_words

WIDTH, UPPER, LOWER, LABELS, GAP, BELOW = 5.6, 2.4, 0.9, 0.62, 0.16, 0.42
LEGEND = 0.3
BINS = 48
# Scores that are this much smaller than the largest are as good as 0.
DECADES = 9
NO_STORE = 1e-200
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FloatArray = NDArray[np.float64]


def scores_figure(found: Findings) -> Figure:
    """How many edges have a score of some size, positive above and negative below; how many of them change sign."""
    statistics = found.statistics
    size = np.abs(statistics.mean)
    largest = float(size.max())
    edges = _bins(size, largest)
    seen = size >= edges[0]
    sheet = Sheet.make(
        LABELS + WIDTH, UPPER + GAP + LOWER + BELOW + LEGEND, found.title, _caption(found, int((~seen).sum()))
    )
    upper, lower = sheet.axes(LABELS, 0, WIDTH, UPPER), sheet.axes(LABELS, UPPER + GAP, WIDTH, LOWER)
    _draw_counts(upper, edges, statistics.mean[seen], statistics.sign_unstable[seen])
    _draw_shares(lower, edges, size[seen], statistics.sign_unstable[seen])
    for axis in (upper, lower):
        _size_axis(axis, edges, axis is lower)
    patches = [
        Patch(color=BLUE, label="positive"),
        Patch(color=ORANGE, label="negative"),
        Patch(facecolor="white", edgecolor=INK, hatch="//////", linewidth=0.5, label="of them, the sign changes"),
    ]
    sheet.legend(LABELS, UPPER + GAP + LOWER + BELOW + 0.04, patches, 3, handlelength=1.6)  # type: ignore[arg-type]
    return sheet.figure


def _bins(size: FloatArray, largest: float) -> FloatArray:
    """[bin + 1] the ends of bins of equal ratio that hold all scores but those that are as good as 0."""
    if largest < NO_STORE:
        return np.array([0.1, 1.0])
    least = float(size[size >= largest / 10**DECADES].min())
    if least == largest:
        return np.array([largest / 2, largest * 2])
    ends = np.geomspace(least, largest, BINS + 1)
    ends[0], ends[-1] = least, largest  # without rounding, so that the extremes are inside
    return ends


def _draw_counts(axis: Axes, ends: FloatArray, mean: FloatArray, unstable: NDArray[np.bool_]) -> None:
    heights = []
    for sign, colour in ((1, BLUE), (-1, ORANGE)):
        mine = mean * sign > 0
        counts, unsure = (np.histogram(np.abs(mean[some]), ends)[0] for some in (mine, mine & unstable))
        axis.stairs(sign * counts, ends, fill=True, color=colour, alpha=0.85, linewidth=0)
        axis.stairs(sign * unsure, ends, fill=True, facecolor="none", hatch="//////", edgecolor=INK, linewidth=0)
        heights += [sign * int(counts.max())]
    high, low = max(heights[0], 1), min(heights[1], -1)
    axis.set_ylim(1.06 * low, 1.06 * high)
    ticks, _ = number_ticks(low, high)
    whole = [tick for tick in ticks if tick == int(tick)]
    axis.set_yticks(whole, [f"{abs(int(tick)):,}" for tick in whole])
    axis.axhline(0, color=FAINT, linewidth=0.7)
    axis.set_ylabel("edges")


def _draw_shares(axis: Axes, ends: FloatArray, size: FloatArray, unstable: NDArray[np.bool_]) -> None:
    counts, unsure = (np.histogram(some, ends)[0] for some in (size, size[unstable]))
    axis.stairs(unsure / np.maximum(counts, 1), ends, fill=True, color=FAINT, alpha=0.6, linewidth=0)
    axis.set_ylim(0, 1.05)
    axis.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    axis.set_ylabel("sign changes")


def _size_axis(axis: Axes, ends: FloatArray, has_labels: bool) -> None:
    axis.set_xscale("log")
    powers = range(int(np.ceil(np.log10(ends[0]) - 1e-9)), int(np.floor(np.log10(ends[-1]) + 1e-9)) + 1)
    labels = [f"10{str(power).translate(SUPERSCRIPTS)}" for power in powers]
    axis.set_xticks([10.0**power for power in powers], labels if has_labels else [""] * len(labels))
    axis.minorticks_off()
    axis.set_xlim(ends[0], ends[-1])
    if has_labels:
        axis.set_xlabel("size of the mean score, logarithmic", fontsize=SMALL)


def _caption(found: Findings, as_good_as_0: int) -> str:
    statistics, run = found.statistics, found.result.run
    positive, negative = (int((sign * statistics.mean > 0).sum()) for sign in (1, -1))
    if run.train.examples > 1:
        unstable = share_words(found.result.statistics.sign_instability)
        signs = f"The sign changes between bootstrap resamples for {unstable} of the edges of "
        signs += "non-negligible mean; below, for what share of the edges of each size."
    else:
        signs = "With a single training example there is nothing to resample."
    rest = f" {as_good_as_0:,} edges are 0 or as good as that, and aren't drawn." if as_good_as_0 else ""
    return (
        f"Mean scores of {statistics.graph.n_edges:,} edges, of which {positive:,} are positive (above the line) and "
        f"{negative:,} negative (below it). {signs}{rest}"
    )
