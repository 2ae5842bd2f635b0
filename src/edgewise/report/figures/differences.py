"""How much better or worse than greedy each recipe is, as a dot plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...evaluate import CONFIDENCE, Comparison, Measure
from ...recipes.discovery import Discovery
from ..formatting import format_interval, format_number, shorten, with_minus_signs
from ..overview import omitted_recipes, reference_outcome, run_title, shown_outcomes
from .style import BLUE, FAINT, GREY, PALE, SMALL, VERMILLION, new_figure, padded_limits, set_heading

ROW_HEIGHT = 0.2
COLOURS = {"better": BLUE, "worse": VERMILLION}


@dataclass(frozen=True)
class Dot:
    """One row of a dot plot: a value with its interval; `text` stands at the end of the row."""

    label: str
    value: float
    low: float
    high: float
    colour: str
    is_filled: bool = True
    marker: str = "o"
    text: str = ""


def draw_dots(axes: Axes, dots: Sequence[Dot]) -> None:
    """Draw dots with their intervals, the first on top; 0 is always inside the limits."""
    low, high = padded_limits([end for dot in dots for end in (dot.low, dot.high)])
    axes.set_xlim(low, high)
    axes.set_ylim(max(1, len(dots)) - 0.5, -0.5)
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    axes.locator_params(axis="x", nbins=5)
    rows = range(len(dots))
    axes.hlines(rows, low, high, color=PALE, linewidth=0.5, linestyle=(0, (1, 2)), zorder=0.5)
    colours = [dot.colour for dot in dots]
    axes.hlines(rows, [dot.low for dot in dots], [dot.high for dot in dots], colors=colours, linewidth=1.3, zorder=2)
    for row, dot in enumerate(dots):
        face = dot.colour if dot.is_filled else "white"
        axes.plot([dot.value], [row], marker=dot.marker, color=dot.colour, markersize=4.5, markerfacecolor=face)
        axes.text(1.012, row, dot.text, transform=axes.get_yaxis_transform(), size=SMALL, va="center_baseline")
    axes.set_yticks(rows, [dot.label for dot in dots])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def draw_differences(axes: Axes, comparisons: Mapping[str, Comparison], measure: Measure) -> None:
    """Draw each recipe's difference from the reference, the best on top, and tint the better side of 0."""
    if not comparisons:
        axes.set_axis_off()
        axes.text(0, 0.5, "There is only one recipe: there is nothing to compare", color=FAINT)
        return
    ordered = sorted(comparisons.items(), key=lambda item: -measure.better * item[1].difference)
    dots = []
    for name, comparison in ordered:
        difference, low, high = comparison.difference, comparison.low, comparison.high
        text = with_minus_signs(f"{format_number(difference, signed=True)} {format_interval(low, high, signed=True)}")
        colour = COLOURS.get(comparison.verdict, GREY)
        dots.append(Dot(shorten(name), difference, low, high, colour, comparison.verdict in COLOURS, text=text))
    draw_dots(axes, dots)
    low, high = axes.get_xlim()
    is_right = measure.better > 0
    axes.axvspan(0, high if is_right else low, color=BLUE, alpha=0.06, linewidth=0, zorder=0)
    axes.set_xlabel("better →" if is_right else "← better", loc="right" if is_right else "left", color=BLUE)


def differences_figure(discovery: Discovery) -> Figure:
    """Draw a dot plot of differences from greedy for each measure."""
    comparisons = {}
    for measure in discovery.measures:
        reference, shown = reference_outcome(discovery, measure), shown_outcomes(discovery, measure)
        comparisons[measure] = {
            row.name: row.resampled.minus(reference.resampled) for row in shown if row is not reference
        }
    heights = [ROW_HEIGHT * max(1, len(recipes)) + 0.75 for recipes in comparisons.values()]
    caption = (
        f"Area minus the reference recipe's area, paired over the {discovery.run.test.examples} evaluated examples, "
        f"with its {CONFIDENCE:.0%} interval. Filled: the interval excludes 0; hollow and grey: no significant "
        f"difference. The tinted side is the better one.{omitted_recipes(discovery)}"
    )
    figure = new_figure(7.5, sum(heights), run_title(discovery), caption)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (measure, recipes) in zip(panels, comparisons.items(), strict=True):
        name = shorten(reference_outcome(discovery, measure).name)
        set_heading(axes, measure.name, f"minus {name}'s {measure.name}, {measure.improves}")
        draw_differences(axes, recipes, measure)
    return figure
