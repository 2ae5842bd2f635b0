"""What scorers and learners cost: CPR and CMD against seconds per example."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ...evaluate import BOTH_MEASURES, Measure
from ...study import Cell, Study
from ..formatting import short_name, shorten, with_minus_signs
from . import style
from .curves import Look, other_look, panel_height
from .style import Page

BASELINE_LOOK: Look = {"color": style.BLACK, "marker": "o", "markersize": 5.0, "linestyle": "none"}
NO_COST_LOOK: Look = {"color": style.GREY, "linestyle": (0, (4, 2)), "linewidth": 1.0}


def costs_figure(study: Study, page: Page = style.SCREEN) -> Figure:
    """Draw CMD and CPR of every scorer against its seconds per example, a row of panels for every cell."""
    names = list(dict.fromkeys(name for cell in study.cells for name in cell.costs))
    others = [other_look(place) | {"linestyle": "none"} for place in range(len(names) - 1)]
    looks = dict(zip(names, [BASELINE_LOOK, *others], strict=True))
    looks |= {name: NO_COST_LOOK for cell in study.cells for name, cost in cell.costs.items() if not cost.seconds}
    caption = (
        "Area on test, mean over seeds, against wall seconds of scoring or learning per training example; logarithmic "
        "except for CPR. Dashed: rankings that cost nothing, such as a random one; for CPR only if near the others."
    )
    height = panel_height(page) + 0.4
    figure = style.new_figure(height * len(study.cells) + 0.6, "Faithfulness and cost of scorers", caption, page)
    part = figure.subfigures(1, 1, squeeze=False)[0, 0]  # a legend of the figure would cover the caption
    panels = part.subplots(len(study.cells), len(BOTH_MEASURES), squeeze=False)
    for row, cell in zip(panels, study.cells, strict=True):
        for axes, measure in zip(row, BOTH_MEASURES, strict=True):
            _draw_cell(axes, cell, measure, looks)
            place = dict.fromkeys(shorten(short_name(name)) for name in (cell.task, cell.model))
            text = "  ·  ".join([*place, measure.improves])
            style.set_heading(axes, measure.name, text, page, 1 / len(BOTH_MEASURES))
    handles = [Line2D([], [], **looks[name]) for name in names]
    style.add_legend(part, handles, [shorten(name) for name in names], page)
    return figure


def _draw_cell(axes: Axes, cell: Cell, measure: Measure, looks: dict[str, Look]) -> None:
    """Draw one point per scorer. Those without a cost are lines."""
    areas = {repeats.name: repeats.mean for repeats in cell.test[measure]}
    costs = {name: cost.seconds for name, cost in cell.costs.items() if cost.seconds}
    is_log = measure.least == 0 and min(areas.values()) > 0
    for axis, set_scale, is_logarithmic in (
        (axes.xaxis, axes.set_xscale, bool(costs)),
        (axes.yaxis, axes.set_yscale, is_log),
    ):
        if is_logarithmic:
            set_scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: with_minus_signs(f"{value:g}")))
    for name, seconds in costs.items():
        axes.plot([seconds], [areas[name]], **looks[name])
    limits = axes.get_ylim()
    for name in [name for name in areas if name not in costs]:
        axes.axhline(areas[name], **looks[name])
    if not is_log:
        axes.set_ylim(limits)  # a random ranking would leave no room for the differences between the others
    axes.set_xlabel("seconds per example")
