"""Faithfulness by circuit size, on a linear axis, over which areas are taken, and on a logarithmic one.

Figures of a run, and of a study, which also has every recipe's difference from greedy, or the costs of its scorers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from ...evaluate import BOTH_MEASURES, CMD, CONFIDENCE, Curve, Measure, faithfulness_intervals
from ...recipes.discovery import Discovery, Outcome, best_outcome
from ...study import Cell, Study
from ..formatting import format_number, short_name, shorten, with_minus_signs
from ..overview import choices, ordered_outcomes, reference_outcome, run_title
from . import style
from .dots import draw_differences
from .style import Page

Look = dict[str, Any]
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))
MARKERS = "vDPX<>phd*"
# Wide lines lie below thin ones: where curves coincide, all of them can be seen.
BEST: Look = {"color": style.BLUE, "linewidth": 3.6, "marker": "o", "markersize": 6.5, "zorder": 2}
REFERENCE: Look = {"color": style.BLACK, "linewidth": 2.2, "marker": "s", "markersize": 5, "zorder": 2.2}
EXPORTED: Look = {"color": style.VERMILLION, "linewidth": 1.6, "linestyle": (0, (3, 1.5)), "marker": "^",
                  "markersize": 4, "zorder": 4}  # fmt: skip
BASELINE_LOOK: Look = {"color": style.BLACK, "marker": "o", "markersize": 5.0, "linestyle": "none"}
NO_COST_LOOK: Look = {"color": style.GREY, "linestyle": (0, (4, 2)), "linewidth": 1.0}


@dataclass(frozen=True, eq=False)
class CurveLine:
    """A curve to draw.

    sizes, heights  [size] shares of the edges and faithfulness, without sizes that ask for no edge
    band            [low and high, size] drawn around the curve; None for none
    is_filled       whether to tint the area that the measure integrates on the linear axis instead of the band
    """

    look: Look
    sizes: NDArray[np.float64]
    heights: NDArray[np.float64]
    band: NDArray[np.float64] | None = None
    is_filled: bool = False


def panel_height(page: Page) -> float:
    """Return the height of the panels that `draw_curves` draws: beside each other, on narrow pages below each other."""
    return 4.0 if page.is_narrow else 2.4


def draw_curves(
    part: FigureBase, lines: Sequence[CurveLine], measure: Measure, definition: str, page: Page, units: str = "edges"
) -> Axes:
    """Draw the same curves on a linear and on a logarithmic axis of sizes; `definition` names the faithfulness.

    Return the linear one.
    """
    linear, log = part.subplots(*((2, 1) if page.is_narrow else (1, 2)), sharey=True)
    for axes in (linear, log):
        axes.axhline(1, color=style.FAINT, linewidth=0.7, zorder=1)
        axes.axhline(0, color=style.PALE, linewidth=0.7, zorder=1)
        for line in lines:
            if line.is_filled and axes is linear:
                ends = np.array([0.0, 1.0])
                level = ends[np.abs(measure.height(ends)).argmin()]  # the faithfulness at which the area is 0
                axes.fill_between(line.sizes, line.heights, level, color=line.look["color"], alpha=0.13, linewidth=0)
            elif line.band is not None:
                axes.fill_between(line.sizes, *line.band, color=line.look["color"], alpha=0.18, linewidth=0)
            axes.add_line(Line2D(line.sizes, line.heights, **line.look))
    values = [line.heights for line in lines] + [line.band.ravel() for line in lines if line.band is not None]
    linear.set_ylim(style.padded_limits(np.concatenate([[1.0], *values])))
    linear.set_ylabel(f"faithfulness ({definition})")
    linear.set_xlabel(f"size: share of the {units} asked for, linear")
    linear.set_xlim(-0.02, 1.02)
    smallest = min((float(line.sizes.min(initial=1.0)) for line in lines), default=0.01)
    steps = (1, 2, 5) if smallest > 0.05 else (1,)
    ticks = [step * 10.0**power for power in range(int(np.floor(np.log10(smallest))), 1) for step in steps]
    ticks = [tick for tick in ticks if smallest / 1.25 <= tick <= 1]
    log.set_xscale("log")
    log.set_xticks(ticks)
    log.minorticks_off()
    log.tick_params(labelleft=page.is_narrow)  # below the linear axis it has no labels beside it
    log.set_xlim(smallest / 1.25, 1.25)
    log.set_xlabel("the same, logarithmic")
    for axes in (linear, log):
        axes.xaxis.set_major_formatter(lambda share, _: style.format_share(share))
    return linear


def faithfulness_figure(discovery: Discovery, page: Page = style.SCREEN) -> Figure:
    """Draw the curves of all recipes, a row of panels per measure, with each recipe's area in the legend."""
    run, split = discovery.run, shorten(discovery.run.test.split)
    recipes = {measure: ordered_outcomes(discovery, measure) for measure in discovery.measures}
    best_names = {measure: best_outcome(rows, measure).name for measure, rows in recipes.items()}
    labels = {
        measure: [_label(discovery, row, best_names[measure]) for row in rows] for measure, rows in recipes.items()
    }
    n_lines = [-(-len(names) // style.legend_columns(names, page)) + 2 for names in labels.values()]
    heights = [panel_height(page) + page.row_height * lines for lines in n_lines]
    curve = discovery.outcomes[0].curve
    empty_sizes = [share for share, n_edges in zip(curve.shares, curve.n_requested, strict=True) if not n_edges]
    up_to = style.format_share(max(empty_sizes, default=0.0))
    caption = (
        f"Faithfulness ({curve.definition.summary}) of circuits on {run.test.examples} examples of "
        f"{split}. CMD and CPR are areas over the linear axis: left, the area of the best recipe is "
        f"tinted; right, the band is its {CONFIDENCE:.0%} interval over resamples of the examples."
        + f" Sizes up to {up_to} ask for no {run.graph.unit} and are not drawn." * bool(empty_sizes)
        + f" Exported recipes: {choices(discovery)}."
    )
    special = {  # other recipes look the same in all panels
        measure: {discovery.best(measure).name: EXPORTED, best_names[measure]: BEST}
        | {reference_outcome(discovery, measure).name: REFERENCE}
        for measure in recipes
    }
    names = dict.fromkeys(row.name for rows in recipes.values() for row in rows)
    others = [name for name in names if not all(name in special[measure] for measure in recipes)]
    figure = style.new_figure(sum(heights), run_title(discovery), caption, page)
    parts = figure.subfigures(len(recipes), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (measure, rows) in zip(parts, recipes.items(), strict=True):
        looks = {name: other_look(place) for place, name in enumerate(others)} | special[measure]
        best = best_names[measure]
        lines = [_curve_line(row.curve, looks[row.name], row.name == best, row.name == best) for row in rows]
        linear = draw_curves(part, lines, measure, shorten(curve.definition.name), page, run.graph.units)
        style.set_heading(linear, measure.name, f"{measure.summary}, {measure.improves}", page)
        handles = [Line2D([], [], **looks[row.name]) for row in rows]
        style.add_legend(
            part, handles, labels[measure], page, title=f"recipe and its {measure.name}, best first",
            title_fontsize=page.small, alignment="left", handlelength=3.2,
        )  # fmt: skip
    return figure


def _label(discovery: Discovery, outcome: Outcome, best: str) -> str:
    """Return a recipe's name and area, and whether it is the best on the evaluated examples or the exported one."""
    roles = [f"best on {shorten(discovery.run.test.split)}"] * (outcome.name == best)
    roles += ["exported"] * (outcome.name == discovery.best(outcome.measure).name)
    label = f"{shorten(outcome.name)}  {with_minus_signs(format_number(outcome.area))}"
    return f"{label}  ({', '.join(roles)})" if roles else label


def curve_figure(curve: Curve, title: str, measure: Measure | None = None) -> Figure:
    """Draw one curve with its interval; with a measure, tint the area that it integrates."""
    caption = (
        f"Faithfulness ({curve.definition.summary}) of circuits on {len(curve.full):,} examples; the band is its "
        f"{CONFIDENCE:.0%} interval over resamples of the examples."
    )
    figure = style.new_figure(panel_height(style.SCREEN), title, caption)
    line = _curve_line(curve, BEST, has_band=True, is_filled=measure is not None)
    draw_curves(figure, [line], measure or CMD, shorten(curve.definition.name), style.SCREEN)
    return figure


def other_look(place: int) -> Look:
    """Return how the curve of a recipe that doesn't stand out is drawn: a thin line of some colour and dashes."""
    n_colours = len(style.OTHER_COLOURS)
    return {
        "color": style.OTHER_COLOURS[place % n_colours], "linestyle": DASHES[place // n_colours % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)], "linewidth": 1.0, "markersize": 3.6, "markerfacecolor": "white",
        "markeredgewidth": 0.8, "zorder": 3,
    }  # fmt: skip


def _curve_line(curve: Curve, look: Look, has_band: bool, is_filled: bool) -> CurveLine:
    drawn = curve.nonempty_sizes
    band = None
    if has_band:
        intervals = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
        band = np.array([[intervals[place].low for place in drawn], [intervals[place].high for place in drawn]])
    return CurveLine(look, np.array(curve.shares)[drawn], curve.faithfulness[drawn], band, is_filled)


def study_figure(study: Study, page: Page = style.SCREEN) -> Figure:
    """Draw a row of panels for every model, task and measure: the reference and the chosen row, and all differences."""
    rows = [(cell, measure) for cell in study.cells for measure in BOTH_MEASURES]
    upper = panel_height(page) + 2 * page.row_height
    heights = [upper + page.row_height * len(cell.test[measure]) + 0.9 for cell, measure in rows]
    seeds = f", mean and range over {study.plan.seeds} seeds" if study.plan.seeds > 1 else ""
    reference = study.cells[0].test[CMD][0].name.lower()
    chosen_as = "best other scorer" if study.plan.scorers else "recipe that validation chose"
    every = "scorer" if study.plan.scorers else "recipe, at the parameters that validation chose,"
    caption = (
        f"Above: {reference} and the {chosen_as}, on test{seeds}; areas are taken over the linear axis. Below: every "
        f"{every} minus {reference}, paired over the examples, with {CONFIDENCE:.0%} intervals; filled where the "
        "interval excludes 0. The tinted side is the better one."
    )
    title = f"Faithfulness on test, and differences from {reference}"
    figure = style.new_figure(sum(heights), title, caption, page)
    parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
    definition = shorten(study.plan.settings.faithfulness.name)
    for part, height, (cell, measure) in zip(parts, heights, rows, strict=True):
        above, below = part.subfigures(2, 1, height_ratios=[upper, height - upper])
        first, chosen = cell.test[measure][0], cell.chosen(measure)
        compared = [(first, REFERENCE), (chosen, BEST)][: 1 + (chosen is not first)]
        lines = []  # the mean curve over seeds, with their range as its band
        for repeats, look in compared:
            drawn, curve = repeats.curves[0].nonempty_sizes, repeats.curves[0]
            values = np.array([of_seed.faithfulness for of_seed in repeats.curves])[:, drawn]  # [seed, size]
            band = np.stack([values.min(0), values.max(0)])
            lines.append(CurveLine(look, np.array(curve.shares)[drawn], values.mean(0), band))
        linear = draw_curves(above, lines, measure, definition, page)
        place = f"{shorten(short_name(cell.task))}  ·  {shorten(short_name(cell.model))}  ·  {measure.improves}"
        style.set_heading(linear, measure.name, place, page)
        names = [f"{shorten(r.name)}  {with_minus_signs(format_number(r.mean))}" for r, _ in compared]
        style.add_legend(above, [Line2D([], [], **look) for _, look in compared], names, page)
        axes = below.subplots()
        style.set_heading(axes, measure.name, f"minus {reference}'s {measure.name}", page)
        others = {r.name: r.resampled.minus(first.resampled) for r in cell.test[measure][1:]}
        draw_differences(axes, others, measure, page)
    return figure


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
