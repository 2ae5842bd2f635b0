"""A study's figure: curves of greedy and of the chosen recipe, and every recipe's difference from greedy."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...evaluate import BOTH_MEASURES, CONFIDENCE
from ...study import Repeats, Study
from ..formatting import format_number, short_name, shorten, with_minus_signs
from .curves import BEST, REFERENCE, CurveLine, Look, draw_curves
from .differences import ROW_HEIGHT, draw_differences
from .style import add_legend, new_figure, set_heading


def study_figure(study: Study) -> Figure:
    """Draw a row of panels for every model, task and measure."""
    rows = [(cell, measure) for cell in study.cells for measure in BOTH_MEASURES]
    heights = [max(2.6, ROW_HEIGHT * len(cell.test[measure]) + 0.9) for cell, measure in rows]
    seeds = f", mean and range over {study.plan.seeds} seeds" if study.plan.seeds > 1 else ""
    caption = (
        f"Left: greedy and the recipe that validation chose, on test{seeds}; areas are taken over the linear axis. "
        "Right: every recipe, at the parameters that validation chose, minus greedy, paired over the examples, with "
        f"{CONFIDENCE:.0%} intervals; filled where the interval excludes 0. The tinted side is the better one."
    )
    figure = new_figure(12.5, sum(heights), "Faithfulness on test, and differences from greedy", caption)
    panels = figure.subplots(len(rows), 3, squeeze=False, height_ratios=heights)
    definition = shorten(study.plan.settings.faithfulness.name)
    for (linear, log, right), (cell, measure) in zip(panels, rows, strict=True):
        greedy, chosen = cell.test[measure][0], cell.on_test(measure, cell.chosen(measure))
        compared = [(greedy, REFERENCE), (chosen, BEST)][: 1 + (chosen is not greedy)]
        log.sharey(linear)
        draw_curves(linear, log, [_curve_line(repeats, look) for repeats, look in compared], measure, definition)
        place = f"{shorten(short_name(cell.task))}  ·  {shorten(short_name(cell.model))}"
        set_heading(linear, measure.name, f"{place}  ·  {measure.improves}")
        names = [f"{shorten(r.recipe.name)}  {with_minus_signs(format_number(r.mean))}" for r, _ in compared]
        add_legend(log, [Line2D([], [], **look) for _, look in compared], names, loc="lower right")
        set_heading(right, measure.name, f"minus greedy's {measure.name}")
        others = [repeats for repeats in cell.test[measure] if repeats is not greedy]
        draw_differences(right, {r.recipe.name: r.resampled.minus(greedy.resampled) for r in others}, measure)
    return figure


def _curve_line(repeats: Repeats, look: Look) -> CurveLine:
    """Return the mean curve over seeds, with their range as its band."""
    curve = repeats.curves[0]
    heights = np.array([one.faithfulness for one in repeats.curves])[:, curve.nonempty_sizes]
    band = np.stack([heights.min(0), heights.max(0)])
    return CurveLine(look, np.array(curve.shares)[curve.nonempty_sizes], heights.mean(0), band)
