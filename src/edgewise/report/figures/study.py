"""A study's figure: for every model, task and metric the curves of greedy and of the chosen method, and how much every
method differs from greedy."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ...evaluate import BOTH_MEASURES, CONFIDENCE, Measure
from ...recipes.recipe import GREEDY
from ...study import Cell, Repeats, Study
from ..formatting import format_number, short_name, shorten, with_minus_signs
from .curves import BELOW, PANEL, Line, draw_panels, panels_width
from .differences import difference_dots, draw_differences
from .dots import BELOW as UNDER
from .dots import Dot, dots_height, labels_width, words_width
from .looks import BEST, REFERENCE, Look
from .sheet import FAINT, SMALL, Sheet

# In inches: the dot plot, the gap before it, and the heading and the legend above.
DOTS, GAP, ABOVE = 2.5, 0.35, 0.44


def study_figure(study: Study) -> Figure:
    """A row for every model, task and metric."""
    rows = [(cell, measure) for cell in study.cells for measure in BOTH_MEASURES]
    dots = [_dots(cell, measure) for cell, measure in rows]
    heights = [ABOVE + max(PANEL[1] + BELOW, dots_height(some) + 0.1) for some in dots]
    names, numbers = max(map(labels_width, dots)), max(map(words_width, dots))
    width = panels_width() + GAP + names + DOTS + numbers
    sheet = Sheet.make(width, sum(heights), "Faithfulness on test, and differences from greedy", _caption(study))
    top, left = 0.0, panels_width() + GAP + names
    definition = shorten(study.plan.settings.faithfulness.name)
    for (cell, measure), some, height in zip(rows, dots, heights, strict=True):
        place = f"{shorten(short_name(cell.task))}  ·  {shorten(short_name(cell.model))}"
        sheet.heading(0, top, measure.name, f"{place}  ·  {measure.improves}")
        shown = _compared(cell, measure)
        draw_panels(sheet, 0, top + ABOVE, [_line(*one) for one in shown], measure, f"faithfulness ({definition})")
        handles = [
            look.line(f"{shorten(one.recipe.name)}  {with_minus_signs(format_number(one.mean))}") for one, look in shown
        ]
        sheet.legend(0.52, top + 0.22, handles, len(handles))
        if some:
            axis = sheet.axes(left, top + ABOVE, DOTS, height - ABOVE - UNDER - 0.1)
            draw_differences(axis, some, measure, f"{measure.name} less greedy's")
        else:
            sheet.words(left - names, top + ABOVE, "nothing but greedy was tried", SMALL, color=FAINT)
        top += height
    return sheet.figure


def _compared(cell: Cell, measure: Measure) -> list[tuple[Repeats, Look]]:
    """Greedy and the chosen method, if that is another one."""
    chosen, greedy = cell.on_test(measure, cell.chosen(measure)), cell.test[measure][0]
    return [(greedy, REFERENCE)] + [(chosen, BEST)] * (chosen is not greedy)


def _line(repeats: Repeats, look: Look) -> Line:
    """The mean over seeds, and their range as a band."""
    curve = repeats.curves[0]
    heights = np.array([one.faithfulness for one in repeats.curves])[:, curve.nonempty_sizes]
    return Line(look, np.array(curve.shares)[curve.nonempty_sizes], heights.mean(0), heights.min(0), heights.max(0))


def _dots(cell: Cell, measure: Measure) -> list[Dot]:
    greedy, *others = cell.test[measure]
    return difference_dots({one.recipe.name: one.resampled.minus(greedy.resampled) for one in others})


def _caption(study: Study) -> str:
    seeds = f", mean and range over {study.plan.seeds} seeds" if study.plan.seeds > 1 else ""
    return (
        f"Left: {GREEDY.name.lower()} and the method that validation chose, on test{seeds}; areas are taken over the "
        "linear share. Right: every combination, at the parameters that validation chose, less greedy, paired over "
        f"the examples, with {CONFIDENCE:.0%} intervals; filled where the interval excludes 0. The tinted side is the "
        "better one."
    )
