"""Figures: faithfulness against circuit size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..disk import write_bytes
from ..errors import InputError
from ..evaluate import CONFIDENCE, Benchmark, faithfulness_intervals
from ..results import Result, ResultRow
from ..select import Greedy, Ilp, TopN
from ..statistics import Bootstrap, Shrinkage
from ..study.recipes import PORTFOLIO, TUNED
from .tables import method_name, short
from .words import drawn

COLOURS = {Greedy.name: "#6b7280", TopN.name: "#d97706", Ilp.name: "#2563eb"}
LEARNED, OTHER = "#059669", "#7c3aed"
# By whether there is a bootstrap, and whether there is PNR.
STYLES = {(False, False): "-", (True, False): "--", (False, True): ":", (True, True): "-."}


def write_figures(folder: Path, result: Result) -> list[Path]:
    """Write the curves of both metrics into a folder, as PNG and SVG; it is made if it isn't there.

    A band shows the best method's interval over resamples of the evaluated examples. Equal results give equal files.
    """
    if folder.is_symlink():  # figures go into the result itself, not to elsewhere
        raise InputError(f"{folder} is a link, not a folder; remove it first")
    with drawing():
        figure = _figure(result)
        images = {folder / f"faithfulness.{kind}": rendered(figure, kind, dpi=160) for kind in ("png", "svg")}
    for path, image in images.items():
        write_bytes(path, image)
    return list(images)


@contextmanager
def drawing() -> Iterator[None]:
    """Figures that are drawn within come out the same every time, and no name is handed to TeX."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcParams.update({"svg.hashsalt": "edgewise", "text.usetex": False})
        warnings.simplefilter("ignore")  # of characters that the font lacks: they are drawn as boxes
        yield


def rendered(figure: Figure, kind: str, dpi: int) -> bytes:
    """A figure as the bytes of a PNG or SVG."""
    image = io.BytesIO()
    figure.savefig(image, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return image.getvalue()


def add_legend(axis: Axes, lines: Sequence[Line2D], **look: Any) -> None:
    """The labels of lines as they are; matplotlib would typeset some, and leave out those that begin with _."""
    legend = axis.legend(lines, [f"line {number}" for number in range(len(lines))], **look)
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set(text=line.get_label(), parse_math=False)


def _figure(result: Result) -> Figure:
    shown, run = result.benchmarks, result.run
    figure = Figure(figsize=(5.75 * len(shown), 4.6), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)
    for axis, benchmark in zip(axes[0], shown, strict=True):
        _draw(axis, benchmark, result.of(benchmark))
    how = (method_name(run.settings[name]) for name in ("scorer", "ablation"))
    names = (drawn(name) for name in (short(run.model), short(run.task), *how))
    figure.suptitle(" · ".join(names), parse_math=False)
    return figure


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
    lines: list[Line2D] = []
    for row in sorted(rows, key=lambda row: benchmark.better * row.area):
        colour, style, marker = _look(row)
        curve = row.curve
        found = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
        # A curve may start at size 0, which a logarithmic axis can't show.
        points = [(x, y.estimate, y.low, y.high) for x, y in zip(curve.shares, found, strict=True) if x > 0]
        x, middle, low, high = zip(*points, strict=True)
        if row is best:
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        lines += axis.plot(x, middle, style, color=colour, marker=marker, markersize=3, linewidth=1.5,
                           label=f"{drawn(row.name)}  {row.area:.3f}")  # fmt: skip
    axis.set_xscale("log")
    heading = f"{benchmark.name}: {benchmark.words}, {benchmark.improves}"
    band = f"band: {CONFIDENCE:.0%} interval of {drawn(best.name)}"
    axis.set_title(f"{heading}\n{band}", fontsize=10, parse_math=False)
    axis.set_xlabel("edges asked for, share of all")
    axis.set_ylabel(f"faithfulness ({drawn(rows[0].curve.definition.name)})", parse_math=False)
    add_legend(axis, lines, fontsize=7.5, frameon=False, handlelength=4)
    axis.spines[["top", "right"]].set_visible(False)
