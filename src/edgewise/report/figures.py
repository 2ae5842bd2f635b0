"""Figures: faithfulness against circuit size."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..evaluate.curve import BETTER
from ..evaluate.intervals import CONFIDENCE, faithfulness_intervals
from ..formats.result_folder import Result, ResultRow
from .tables import short

COLOURS = {"greedy": "#6b7280", "top-n": "#d97706", "ilp": "#2563eb"}
OTHER = "#7c3aed"
STYLES = {(False, False): "-", (True, False): "--", (False, True): ":", (True, True): "-."}
HEADINGS = {"CMD": "CMD: distance to 1, lower is better", "CPR": "CPR: area below, higher is better"}


def write_figures(folder: Path, result: Result) -> list[Path]:
    """Write the curves of both metrics into a folder that exists, as PNG and SVG.

    A band shows the best method's interval over resamples of the evaluated examples.
    """
    figure, axes = plt.subplots(1, 2, figsize=(11.5, 4.6), constrained_layout=True)
    for axis, benchmark in zip(axes, ("CMD", "CPR"), strict=True):
        _draw(axis, benchmark, [row for row in result.rows if row.benchmark == benchmark])
    run = result.run
    figure.suptitle(
        f"{short(run['model'])} · {short(run['task'])} · {run['settings']['method']} · {run['settings']['ablation']}"
    )
    paths = [folder / f"faithfulness.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return paths


def _draw(axis: Axes, benchmark: str, rows: list[ResultRow]) -> None:
    axis.axhline(1, color="#111827", linewidth=0.8)
    axis.axhline(0, color="#d1d5db", linewidth=0.8)
    best = max(rows, key=lambda row: BETTER[benchmark] * row.area)
    for row in sorted(rows, key=lambda row: BETTER[benchmark] * row.area):
        colour = COLOURS.get(row.selections[0]["solver"], OTHER) if row.name != "Tuned" else OTHER
        style = STYLES["Bootstrapping" in row.name, "PNR" in row.name]
        marker = "s" if "Shrinkage" in row.name else "o"
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
    axis.set_title(f"{HEADINGS[benchmark]}\nband: {CONFIDENCE:.0%} interval of {best.name}", fontsize=10)
    axis.set_xlabel("edges asked for, share of all")
    axis.set_ylabel(f"faithfulness ({rows[0].curve.definition})")
    axis.legend(fontsize=7.5, frameon=False, handlelength=4)
    axis.spines[["top", "right"]].set_visible(False)
