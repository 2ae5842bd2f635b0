"""The strongest edges with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...io.edge_file import edge_name
from ..edge_kinds import COLOURS, KINDS, edge_kinds
from ..findings import Findings
from ..formatting import format_score, with_minus_signs
from .dots import BELOW, Dot, dots_height, draw_dots, labels_width, words_width
from .sheet import FAINT, SMALL, Sheet, number_ticks, share_words

PLOT, BESIDE, MOST, GAP, ABOVE, LEGEND = 2.9, 2.1, 25, 0.2, 0.2, 0.3
# How far from the mean one sees, at least and at most, in multiples of it.
LEAST, FARTHEST = 0.05, 3.0


def intervals_figure(found: Findings) -> Figure:
    """The edges of the largest mean scores, the largest on top: in their own unit, and relative to their mean."""
    means, relative = _dots(found)
    left, height = labels_width(means), dots_height(means)
    width = left + PLOT + GAP + BESIDE + words_width(relative)
    sheet = Sheet.make(max(width, 6.4), height + LEGEND, found.title, _caption(found, len(means)))
    draw_dots(sheet.axes(left, 0, PLOT, height - BELOW), means, "mean score over the training examples")
    axis = sheet.axes(left + PLOT + GAP, 0, BESIDE, height - BELOW)
    draw_dots(axis, relative, "interval, relative to the mean score")
    reach = 1.1 * min(max(LEAST, *(abs(end) for one in relative for end in (one.low, one.high))), FARTHEST)
    axis.set_xlim(-reach, reach)
    ticks, _ = number_ticks(-reach, reach, 4)
    axis.set_xticks(ticks, [share_words(tick) for tick in ticks])
    axis.axvline(-1, color=FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    look: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linewidth": 1.2}
    handles = [Line2D([], [], color=colour, label=f"into {kind}", **look) for kind, colour in COLOURS.items()]
    handles += [Line2D([], [], color=FAINT, label="sign changes", markerfacecolor="white", **look)]
    sheet.legend(0, height, handles, len(handles), handlelength=2, fontsize=SMALL)
    return sheet.figure


def _dots(found: Findings) -> tuple[list[Dot], list[Dot]]:
    """The strongest edges with their means, and with how far their intervals reach from those."""
    known = found.statistics
    top = np.argsort(-np.abs(known.mean), kind="stable")[:MOST]
    means, relative = [], []
    kinds = edge_kinds(known.graph)
    for edge in top.tolist():
        mean, low, high = (float(array[edge]) for array in (known.mean, known.low, known.high))
        is_unstable, is_kept = bool(known.sign_unstable[edge]), bool(known.kept[edge])
        look = (COLOURS[KINDS[kinds[edge]]], not is_unstable, "o" if is_kept else "X")
        means.append(Dot(edge_name(known.graph, edge), mean, low, high, *look))
        least, most = sorted((end - mean) / mean for end in (low, high)) if mean else (0.0, 0.0)
        words = ", ".join(["sign changes"] * is_unstable + ["filtered"] * (not is_kept))
        score = with_minus_signs(format_score(mean))
        relative.append(Dot("", 0.0, least, most, *look, f"{score}  {words}".rstrip()))
    return means, relative


def _caption(found: Findings, shown: int) -> str:
    known = found.statistics
    if np.array_equal(known.low, known.high):
        how = "Without a second training example there is nothing to resample, so they have no intervals."
    else:
        how = (
            "The lines are the bootstrap's intervals over resamples of these examples; right, in percent of the mean: "
            "beyond −100 % lies the other sign. Hollow: the resamples' means had both signs. A cross: the interval "
            "holds 0, so the bootstrap's filter chooses the edge last."
        )
    return (
        f"The {shown} edges of the largest mean score among {known.graph.n_edges:,}, scored on "
        f"{found.result.run.train.examples} examples. {how}"
    )
