"""Dot plots with intervals: recipes minus greedy, and the strongest edges, beside a histogram of all scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from ...core.statistics import EdgeStatistics
from ...evaluate import CONFIDENCE, Comparison, Measure
from ...recipes.discovery import Discovery
from ..circuit_summary import COLOURS as KIND_COLOURS, KINDS, edge_kinds
from ..formatting import format_interval, format_number, format_score, shorten, with_minus_signs
from ..overview import centred_statistics, ordered_outcomes, reference_outcome, run_title
from . import style
from .style import Page

VERDICT_COLOURS = {"better": style.BLUE, "worse": style.VERMILLION}
MAX_EDGES = 25
BINS = 48
# Scores this many orders of magnitude below the largest count as 0.
DECADES = 9
SMALLEST_SCORE = 1e-200


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


def draw_dots(axes: Axes, dots: Sequence[Dot], page: Page) -> None:
    """Draw dots with their intervals, the first on top; 0 is always inside the limits. Narrow pages omit the texts."""
    low, high = style.padded_limits([end for dot in dots for end in (dot.low, dot.high)])
    axes.set_xlim(low, high)
    axes.set_ylim(max(1, len(dots)) - 0.5, -0.5)
    axes.axvline(0, color=style.FAINT, linewidth=0.8, zorder=1)
    axes.locator_params(axis="x", nbins=5)
    rows = range(len(dots))
    axes.hlines(rows, low, high, color=style.PALE, linewidth=0.5, linestyle=(0, (1, 2)), zorder=0.5)
    colours = [dot.colour for dot in dots]
    axes.hlines(rows, [dot.low for dot in dots], [dot.high for dot in dots], colors=colours, linewidth=1.3, zorder=2)
    for row, dot in enumerate(dots):
        face = dot.colour if dot.is_filled else "white"
        axes.plot([dot.value], [row], marker=dot.marker, color=dot.colour, markersize=4.5, markerfacecolor=face)
        text = "" if page.is_narrow else dot.text
        axes.text(1.012, row, text, transform=axes.get_yaxis_transform(), size=page.small, va="center_baseline")
    axes.set_yticks(rows, [style.fit_text(dot.label, 0.42 * page.width, page) for dot in dots])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def draw_differences(axes: Axes, comparisons: Mapping[str, Comparison], measure: Measure, page: Page) -> None:
    """Draw each recipe's difference from the reference, the best on top, and tint the better side of 0."""
    if not comparisons:
        axes.set_axis_off()
        axes.text(0, 0.5, "Only one recipe: nothing to compare", color=style.FAINT)
        return
    ordered = sorted(comparisons.items(), key=lambda item: -measure.better * item[1].difference)
    dots = []
    for name, comparison in ordered:
        difference, low, high = comparison.difference, comparison.low, comparison.high
        text = with_minus_signs(f"{format_number(difference, signed=True)} {format_interval(low, high, signed=True)}")
        colour = VERDICT_COLOURS.get(comparison.verdict, style.GREY)
        dots.append(Dot(shorten(name), difference, low, high, colour, comparison.verdict in VERDICT_COLOURS, text=text))
    draw_dots(axes, dots, page)
    low, high = axes.get_xlim()
    is_right = measure.better > 0
    axes.axvspan(0, high if is_right else low, color=style.BLUE, alpha=0.06, linewidth=0, zorder=0)
    axes.set_xlabel("better →" if is_right else "← better", loc="right" if is_right else "left", color=style.BLUE)


def differences_figure(discovery: Discovery, page: Page = style.SCREEN) -> Figure:
    """Draw a dot plot of differences from greedy for each measure."""
    comparisons = {}
    for measure in discovery.measures:
        reference, shown = reference_outcome(discovery, measure), ordered_outcomes(discovery, measure)
        comparisons[measure] = {
            row.name: row.resampled.minus(reference.resampled) for row in shown if row is not reference
        }
    heights = [page.row_height * max(1, len(recipes)) + 0.75 for recipes in comparisons.values()]
    caption = (
        f"Area minus the reference recipe's area, paired over the {discovery.run.test.examples} evaluated examples, "
        f"with its {CONFIDENCE:.0%} interval. Filled: the interval excludes 0; hollow and grey: no significant "
        "difference. The tinted side is the better one."
    )
    figure = style.new_figure(sum(heights), run_title(discovery), caption, page)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (measure, recipes) in zip(panels, comparisons.items(), strict=True):
        name = shorten(reference_outcome(discovery, measure).name)
        style.set_heading(axes, measure.name, f"minus {name}'s {measure.name}, {measure.improves}", page, 0.6)
        draw_differences(axes, recipes, measure, page)
    return figure


def scores_figure(discovery: Discovery, page: Page = style.SCREEN) -> Figure:
    """Draw the strongest edges with their intervals, and a histogram of all scores by absolute value and sign."""
    statistics, run = centred_statistics(discovery), discovery.run
    mean, units = statistics.mean, run.graph.units
    strongest = np.argsort(-np.abs(mean), kind="stable")[:MAX_EDGES].tolist()
    bins = score_bins(np.abs(mean))
    n_zero = int((np.abs(mean) < bins[0]).sum())
    unstable = style.format_share(discovery.statistics.sign_instability)
    if run.train.examples > 1:
        intervals = (
            "Lines and brackets are the bootstrap's intervals over resamples of these examples. The sign changes "
            f"between resamples for {unstable} of the {units} of non-negligible mean."
        )
    else:
        intervals = "With a single training example there is nothing to resample, so there are no intervals."
    caption = (
        f"Mean scores over {run.train.examples} training examples. Above: the {len(strongest)} {units} of the largest "
        f"absolute mean. Below: all {len(mean):,} {units}, {int((mean > 0).sum()):,} positive (above the line) and "
        f"{int((mean < 0).sum()):,} negative (below it). {intervals}"
        + (f" {n_zero:,} {units} are 0 or negligible and are not drawn." if n_zero else "")
    )
    heights = [page.row_height * len(strongest) + 1.4, 2.6]
    figure = style.new_figure(sum(heights), run_title(discovery), caption, page)
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    upper, lower = (part.subplots() for part in parts)
    style.set_heading(upper, f"Strongest {units}", "with intervals", page)
    dots, kinds = [], edge_kinds(run.graph)
    for edge in strongest:
        value, low, high = (float(values[edge]) for values in (mean, statistics.low, statistics.high))
        text = format_score(value) + (f" [{format_score(low)}, {format_score(high)}]" if low < high else "")
        colour, is_stable = KIND_COLOURS[KINDS[kinds[edge]]], not statistics.sign_unstable[edge]
        marker, text = "o" if statistics.kept[edge] else "X", with_minus_signs(text)
        dots.append(Dot(run.graph.edge_name(edge), value, low, high, colour, is_stable, marker, text))
    draw_dots(upper, dots, page)
    upper.set_xlabel("mean score")
    handles = [Line2D([], [], color=colour, marker="o", markersize=4.5) for colour in KIND_COLOURS.values()]
    handles += [Line2D([], [], color=style.FAINT, marker="o", markersize=4.5, markerfacecolor="white")]
    handles += [Line2D([], [], color=style.FAINT, marker="X", markersize=4.5)]
    labels = [f"into {kind}" for kind in KIND_COLOURS] + ["sign changes", "fails the bootstrap filter"]
    style.add_legend(parts[0], handles, labels, page, handlelength=2)
    style.set_heading(lower, f"All {units}", "by absolute mean score", page)
    _draw_histogram(lower, bins, statistics, units, page)
    patches = [Patch(color=style.BLUE), Patch(color=style.VERMILLION)]
    patches += [Patch(facecolor="white", edgecolor=style.INK, hatch="//////")]
    style.add_legend(parts[1], patches, ["positive", "negative", "sign changes"], page, handlelength=2)
    return figure


def score_bins(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of logarithmic bins that hold all absolute scores [edge] except the negligible ones."""
    largest = float(size.max())
    if largest < SMALLEST_SCORE:
        return np.array([0.1, 1.0])
    smallest = float(size[size >= largest / 10**DECADES].min())
    if smallest == largest:
        return np.array([largest / 2, largest * 2])
    bins = np.geomspace(smallest, largest, BINS + 1)
    bins[0], bins[-1] = smallest, largest  # exactly, so that the extremes are inside
    return np.maximum.accumulate(np.minimum(bins, largest))  # increasing in spite of rounding


def _draw_histogram(axes: Axes, bins: NDArray[np.float64], statistics: EdgeStatistics, units: str, page: Page) -> None:
    """Count edges by absolute score: positive ones above the line, negative ones below, hatched if unstable."""
    highest = {}
    for sign, colour in ((1, style.BLUE), (-1, style.VERMILLION)):
        has_sign = sign * statistics.mean > 0
        size = np.abs(statistics.mean)
        counts = np.histogram(size[has_sign], bins)[0]
        unstable_counts = np.histogram(size[has_sign & statistics.sign_unstable], bins)[0]
        axes.stairs(sign * counts, bins, fill=True, color=colour, alpha=0.85, linewidth=0)
        hatching: Any = {"facecolor": "none", "hatch": "//////", "edgecolor": style.INK, "linewidth": 0}
        axes.stairs(sign * unstable_counts, bins, fill=True, **hatching)
        highest[sign] = max(1, int(counts.max()))
    axes.axhline(0, color=style.FAINT, linewidth=0.7)
    axes.set_ylim(-1.06 * highest[-1], 1.06 * highest[1])
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):,.0f}"))
    axes.set_ylabel(f"number of {units}")
    axes.set_xscale("log")
    axes.set_xlim(bins[0], bins[-1])
    axes.xaxis.set_major_locator(LogLocator(numticks=6 if page.is_narrow else 9))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.minorticks_off()
    axes.set_xlabel("absolute mean score, logarithmic")
