"""How much methods agree: the overlap of their circuits."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...evaluate import Measure
from ...recipes.stability import jaccard, mean_overlap
from ..findings import TELLING, Findings, left_out
from ..formatting import shorten
from .sheet import SMALL, Sheet, heading_width, share_words, text_width

CELL, LARGEST, ABOVE, BELOW, GAP = 0.36, 6.0, 0.34, 0.3, 0.35
# The narrowest cell in which a number can be read.
NARROWEST = 0.24


def agreement_figure(found: Findings) -> Figure:
    """A matrix for each metric, beside each other."""
    shown = found.result.measures
    names = {b: [f"{shorten(row.name)}  {at}" for at, row in enumerate(found.rows(b), 1)] for b in shown}
    left = {b: max(text_width(name, SMALL) for name in names[b]) + 0.12 for b in shown}
    side = {b: min(CELL * len(names[b]), LARGEST) for b in shown}
    heads = {b: f"below the diagonal at {_share(found, b)} of the edges" for b in shown}
    widths = {b: max(left[b] + side[b], heading_width(b.name, heads[b])) for b in shown}
    width = sum(widths.values()) + GAP * (len(shown) - 1)
    sheet = Sheet.make(max(width, 5.0), ABOVE + max(side.values()) + BELOW, found.title, _caption(found))
    start = 0.0
    for measure in shown:
        sheet.heading(start, 0, measure.name, heads[measure])
        _draw(sheet, start + left[measure], side[measure], names[measure], _overlaps(found, measure))
        start += widths[measure] + GAP
    return sheet.figure


def _share(found: Findings, measure: Measure) -> str:
    row, size = found.telling(measure)
    return share_words(row.curve.shares[size])


def _overlaps(found: Findings, measure: Measure) -> np.ndarray:
    """[method, method] below the diagonal at one size, above it the mean over sizes."""
    (_, size), rows = found.telling(measure), found.rows(measure)
    overlaps = np.ones((len(rows), len(rows)))
    for a, one in enumerate(rows):
        for b, other in enumerate(rows[:a]):
            both = zip(found.circuits[measure, one.name], found.circuits[measure, other.name], strict=True)
            by_size = [jaccard(mine, theirs) if mine.n_edges or theirs.n_edges else np.nan for mine, theirs in both]
            overlaps[a, b], overlaps[b, a] = by_size[size], mean_overlap(np.array(by_size), one.curve.shares)
    return np.nan_to_num(overlaps, nan=1.0)


def _draw(sheet: Sheet, left: float, side: float, names: list[str], overlaps: np.ndarray) -> None:
    count = len(names)
    axis = sheet.axes(left, ABOVE, side, side)
    np.fill_diagonal(overlaps := overlaps.copy(), np.nan)
    axis.pcolormesh(np.ma.masked_invalid(overlaps), cmap="Blues", vmin=0, vmax=1.25, edgecolors="white", linewidth=0.8)
    axis.set_xlim(0, count)
    axis.set_ylim(count, 0)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    for row, name in enumerate(names):
        axis.text(-0.15, row + 0.5, name, ha="right", va="center_baseline", size=SMALL, parse_math=False)
        axis.text(row + 0.5, count + 0.12, str(row + 1), ha="center", va="top", size=SMALL)
        for column in range(count) if side / count >= NARROWEST else ():
            if row != column:
                value = float(overlaps[row, column])
                look: dict[str, Any] = {"size": SMALL - 0.5, "color": "white" if value > 0.7 else "black"}
                axis.text(column + 0.5, row + 0.5, _number(value), ha="center", va="center_baseline", **look)


def _number(value: float) -> str:
    """Two digits; 1 only where circuits are the same."""
    return "1" if value == 1 else f"{min(value, 0.99):.2f}".removeprefix("0")


def _caption(found: Findings) -> str:
    return (
        "Jaccard overlap of the circuits of any two methods: the edges in both as a share of those in either; 1 is the "
        "same circuit. Above the diagonal its mean over the sizes. Methods are ordered from the best area down, and "
        "columns go by the same numbers. The size is that of the exported circuit: "
        f"{TELLING}.{left_out(found)}"
    )
