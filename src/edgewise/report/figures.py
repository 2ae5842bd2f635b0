"""Figures: faithfulness against circuit size."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..evaluate import CONFIDENCE, Benchmark, faithfulness_intervals
from ..results import Result, ResultRow
from ..select import Greedy, Ilp, TopN
from ..statistics import Bootstrap, Shrinkage
from ..study.recipes import PORTFOLIO, TUNED
from .tables import method_name, short

COLOURS = {Greedy.name: "#6b7280", TopN.name: "#d97706", Ilp.name: "#2563eb"}
LEARNED, OTHER = "#059669", "#7c3aed"
# By whether there is a bootstrap, and whether there is PNR.
STYLES = {(False, False): "-", (True, False): "--", (False, True): ":", (True, True): "-."}


def write_figures(folder: Path, result: Result) -> list[Path]:
    """Write the curves of both metrics into a folder that exists, as PNG and SVG.

    A band shows the best method's interval over resamples of the evaluated examples.
    """
    shown, run = result.benchmarks, result.run
    figure, axes = plt.subplots(1, len(shown), figsize=(5.75 * len(shown), 4.6), squeeze=False, constrained_layout=True)
    for axis, benchmark in zip(axes[0], shown, strict=True):
        _draw(axis, benchmark, result.of(benchmark))
    how = (method_name(run.settings[name]) for name in ("scorer", "ablation"))
    figure.suptitle(" · ".join((short(run.model), short(run.task), *how)))
    paths = [folder / f"faithfulness.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return paths


def _look(row: ResultRow) -> tuple[str, str, str]:
    """The colour, the line and the marker of a method."""
    recipe, way = row.recipe, method_name(row.recipe["filter"])
    if row.name in (TUNED, PORTFOLIO):
        return OTHER, "-", "o"
    if recipe["learner"] is not None:
        return LEARNED, "--" if recipe["solver"] == Ilp.name else "-", "o"
    style = STYLES[way == Bootstrap.name, recipe["pnr"] is not None]
    return COLOURS.get(recipe["solver"], OTHER), style, "s" if way == Shrinkage.name else "o"


def _draw(axis: Axes, benchmark: Benchmark, rows: list[ResultRow]) -> None:
    axis.axhline(1, color="#111827", linewidth=0.8)
    axis.axhline(0, color="#d1d5db", linewidth=0.8)
    best = max(rows, key=lambda row: benchmark.better * row.area)
    for row in sorted(rows, key=lambda row: benchmark.better * row.area):
        colour, style, marker = _look(row)
        curve = row.curve
        found = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
        # A curve may start at size 0, which a logarithmic axis can't show.
        points = [(x, y.estimate, y.low, y.high) for x, y in zip(curve.shares, found, strict=True) if x > 0]
        x, middle, low, high = zip(*points, strict=True)
        if row is best:
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(x, middle, style, color=colour, marker=marker, markersize=3, linewidth=1.5,
                  label=f"{row.name}  {row.area:.3f}")  # fmt: skip
    axis.set_xscale("log")
    heading = f"{benchmark.name}: {benchmark.words}, {benchmark.improves}"
    axis.set_title(f"{heading}\nband: {CONFIDENCE:.0%} interval of {best.name}", fontsize=10)
    axis.set_xlabel("edges asked for, share of all")
    axis.set_ylabel(f"faithfulness ({rows[0].curve.definition.name})")
    axis.legend(fontsize=7.5, frameon=False, handlelength=4)
    axis.spines[["top", "right"]].set_visible(False)
