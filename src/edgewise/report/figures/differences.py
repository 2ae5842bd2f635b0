"""How much better or worse than greedy every method is."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...evaluate import CONFIDENCE, Comparison, Measure
from ...recipes.recipe import GREEDY
from ..findings import Findings, left_out
from ..formatting import format_interval, format_number, shorten, with_minus_signs
from .dots import BELOW, Dot, dots_height, draw_dots, labels_width, words_width
from .looks import BLUE, GREY, VERMILLION
from .sheet import FAINT, SMALL, Sheet

PLOT, ABOVE = 3.6, 0.42
COLOURS = {"better": BLUE, "worse": VERMILLION}


def difference_dots(found: Mapping[str, Comparison]) -> list[Dot]:
    """A dot for every method's difference, the best on top; filled where its interval excludes 0."""
    ordered = sorted(found.items(), key=lambda pair: -pair[1].measure.better * pair[1].difference)
    return [
        Dot(
            shorten(name), less.difference, less.low, less.high, COLOURS.get(less.verdict, GREY),
            less.verdict in COLOURS,
            words=with_minus_signs(
                f"{format_number(less.difference, True)} {format_interval(less.low, less.high, True)}"
            ),
        )
        for name, less in ordered
    ]  # fmt: skip


def draw_differences(axis: Axes, dots: list[Dot], measure: Measure, words: str) -> None:
    """The dots, and which side is the better one."""
    draw_dots(axis, dots, words)
    low, high = axis.get_xlim()
    side = (0, high) if measure.better > 0 else (low, 0)
    axis.axvspan(*side, color=BLUE, alpha=0.06, linewidth=0, zorder=0)
    at, towards = (high, "right") if measure.better > 0 else (low, "left")
    arrow = "better →" if measure.better > 0 else "← better"
    axis.text(at, -0.62, arrow, ha=towards, va="bottom", size=SMALL, color=BLUE)


def differences_figure(found: Findings) -> Figure:
    """A dot plot for each metric, one below the other."""
    dots = {b: difference_dots(less) for b, less in found.differences.items()}
    left = max(map(labels_width, dots.values()))
    right = max(map(words_width, dots.values()))
    heights = {b: ABOVE + dots_height(some) for b, some in dots.items()}
    sheet = Sheet.make(left + PLOT + right, sum(heights.values()), found.title, _caption(found))
    top = 0.0
    for measure, some in dots.items():
        against = shorten(found.reference(measure).name)
        sheet.heading(0, top, measure.name, f"less that of {against}, {measure.improves}")
        if some:
            axis = sheet.axes(left, top + ABOVE, PLOT, heights[measure] - ABOVE - BELOW)
            draw_differences(axis, some, measure, f"difference of {measure.name}")
        else:
            sheet.words(0, top + ABOVE, f"{against} is the only method: there is nothing to compare", color=FAINT)
        top += heights[measure]
    return sheet.figure


def _caption(found: Findings) -> str:
    names = {found.reference(b).name for b in found.result.measures}
    against = GREEDY.name.lower() if names == {GREEDY.name} else "the method named above"
    return (
        f"Area less that of {against}, paired over the {found.result.run.test.examples} evaluated examples, with its "
        f"{CONFIDENCE:.0%} interval. Filled: the interval excludes 0; hollow and grey: not significant. "
        f"The tinted side is the better one.{left_out(found)}"
    )
