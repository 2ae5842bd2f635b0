"""Faithfulness of every method against circuit size."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ...evaluate import CONFIDENCE, Measure, faithfulness_intervals
from ...recipes.outcome import Outcome
from ..findings import Findings, left_out
from ..formatting import format_number, shorten, with_minus_signs
from .curves import ABOVE, BELOW, PANEL, Line, draw_panels, panels_width
from .looks import Look, looks
from .sheet import SMALL, Sheet, legend_height, legend_width, share_words


def faithfulness_figure(found: Findings) -> Figure:
    """A row per metric: over a linear share of the edges and a logarithmic one, and beside them a legend."""
    shown = found.result.measures
    labels = {b: [_label(found, b, row) for row in found.rows(b)] for b in shown}
    heights = {b: ABOVE + max(PANEL[1] + BELOW, legend_height(len(labels[b]) + 1)) for b in shown}
    beside = max(legend_width(label) for label in labels.values())
    sheet = Sheet.make(panels_width() + 0.2 + beside, sum(heights.values()), found.title, _caption(found))
    top = 0.0
    for measure in shown:
        rows = found.rows(measure)
        names = (
            found.reference(measure).name,
            found.result.best(measure).name,
            found.result.exported(measure).name,
        )
        look = looks([row.name for row in rows], *names)
        lines = [_line(row, look[row.name], row.name == names[1]) for row in rows]
        definition = shorten(rows[0].curve.definition.name)
        sheet.heading(0, top, measure.name, f"{measure.summary}, {measure.improves}")
        draw_panels(sheet, 0, top + ABOVE, lines, measure, f"faithfulness ({definition})")
        handles = [look[row.name].line(label) for row, label in zip(rows, labels[measure], strict=True)]
        sheet.words(panels_width() + 0.2, top + ABOVE, f"method and its {measure.name}, best first", size=SMALL)
        sheet.legend(panels_width() + 0.2, top + ABOVE + legend_height(1), handles)
        top += heights[measure]
    return sheet.figure


def _line(row: Outcome, look: Look, is_best: bool) -> Line:
    curve, asked = row.curve, row.curve.nonempty_sizes
    shares = np.array(curve.shares)[asked]
    if not is_best:
        return Line(look, shares, curve.faithfulness[asked])
    ends = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
    low, high = (np.array([getattr(ends[at], end) for at in asked]) for end in ("low", "high"))
    return Line(look, shares, curve.faithfulness[asked], low, high, is_filled=True)


def _label(found: Findings, measure: Measure, row: Outcome) -> str:
    roles = ["best"] * (row is found.result.best(measure)) + ["exported"] * (row is found.result.exported(measure))
    return f"{shorten(row.name)}  {with_minus_signs(format_number(row.area))}" + (
        f"  ({', '.join(roles)})" if roles else ""
    )


def _caption(found: Findings) -> str:
    run, curve = found.result.run, found.result.outcomes[0].curve
    skipped = [share for share, asked in zip(curve.shares, curve.asked, strict=True) if not asked]
    sizes = f" Sizes up to {share_words(max(skipped))} ask for no edge and aren't drawn." if skipped else ""
    return (
        f"Faithfulness ({curve.definition.summary}) of circuits on {run.test.examples} examples of "
        f"{shorten(run.test.split)}. CMD and CPR are areas over the linear share: left, that of the best is tinted; "
        f"right, the band is the best method's {CONFIDENCE:.0%} interval over resamples of the examples."
        f"{sizes}{left_out(found)}"
    )
