"""The figure of a comparison of methods: faithfulness against cost, and mean ranks."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ...evaluate import BOTH_MEASURES, CONFIDENCE, Measure
from ...study import MethodCell, MethodComparison, mean_ranks
from ...study.methods import BASELINE, RandomRanking
from ..formatting import short_name, shorten, with_minus_signs
from . import style
from .curves import other_look
from .dots import Dot, draw_dots

PANEL_HEIGHT, ROW_HEIGHT = 2.3, 0.2


def methods_figure(comparison: MethodComparison) -> Figure:
    """Draw CPR and CMD against seconds per example for every cell, and mean ranks if there are several cells."""
    names = list(dict.fromkeys(row.name for cell in comparison.cells for row in cell.rows))
    others = [name for name in names if name not in (BASELINE, RandomRanking.name)]
    looks: dict[str, dict[str, Any]] = {name: {**other_look(place)} for place, name in enumerate(others)}
    looks[BASELINE] = {"color": style.BLACK, "marker": "o", "markersize": 5.0}
    looks[RandomRanking.name] = {"color": style.GREY, "linestyle": (0, (4, 2)), "linewidth": 1.0}
    n_cells, has_ranks = len(comparison.cells), len(comparison.cells) > 1
    heights = [PANEL_HEIGHT] * n_cells + [ROW_HEIGHT * len(names) + 0.8] * has_ranks
    caption = (
        "Area on test, mean over seeds, against wall seconds of scoring or learning per training example; logarithmic "
        "but for CPR. The dashed line is a random ranking; for CPR it is drawn only if it is near the others."
        + f" Ranks: mean over cells, 1 is best, with {CONFIDENCE:.0%} intervals over resampled cells."
        * has_ranks
    )
    figure = style.new_figure(10.0, sum(heights), "Faithfulness and cost of scorers and learners", caption)
    panels = figure.subplots(len(heights), 2, squeeze=False, height_ratios=heights)
    for row, cell in zip(panels, comparison.cells, strict=False):
        for axes, measure in zip(row, BOTH_MEASURES[::-1], strict=True):
            _draw_cell(axes, cell, measure, looks)
    handles = [
        Line2D([], [], **looks[name] | ({"linestyle": "none"} if "marker" in looks[name] else {})) for name in names
    ]
    labels = [shorten(name) for name in names]
    style.add_legend(panels[0][1], handles, labels, loc="upper left", bbox_to_anchor=(1.03, 1))
    if has_ranks:
        for axes, measure in zip(panels[-1], BOTH_MEASURES[::-1], strict=True):
            ranks = mean_ranks(comparison, measure)
            dots = [Dot(shorten(r.method), r.mean, r.low, r.high, looks[r.method]["color"]) for r in ranks]
            draw_dots(axes, dots, style.SCREEN)
            axes.set_xlim(0.5, len(ranks) + 0.5)
            style.set_heading(axes, f"Mean rank, {measure.name}", f"over {n_cells} cells, 1 is best")
    return figure


def _draw_cell(axes: Axes, cell: MethodCell, measure: Measure, looks: dict[str, dict[str, Any]]) -> None:
    """Draw one point per method. Methods without a cost, such as random, are lines."""
    points = [row for row in cell.rows if row.seconds > 0]
    is_log = measure.least == 0 and all(row.repeats[measure].mean > 0 for row in cell.rows)
    for axis, set_scale, is_logarithmic in (
        (axes.xaxis, axes.set_xscale, bool(points)),
        (axes.yaxis, axes.set_yscale, is_log),
    ):
        if is_logarithmic:
            set_scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: with_minus_signs(f"{value:g}")))
    for row in points:
        axes.plot([row.seconds], [row.repeats[measure].mean], **looks[row.name] | {"linestyle": "none"})
    limits = axes.get_ylim()
    for row in cell.rows:
        if row not in points:
            axes.axhline(row.repeats[measure].mean, color=looks[row.name]["color"], linestyle=(0, (4, 2)), linewidth=1)
    if not is_log:
        axes.set_ylim(limits)  # random would leave no room for the differences between the others
    axes.set_xlabel("seconds per example")
    place = f"{shorten(short_name(cell.task))}  ·  {shorten(short_name(cell.model))}"
    place = shorten(cell.model) if cell.task == cell.model else place
    style.set_heading(axes, measure.name, f"{place}  ·  {measure.improves}")
