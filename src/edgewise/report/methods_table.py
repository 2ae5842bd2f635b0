"""A comparison of scorers and learners as one table: for the terminal, and as Markdown, CSV, JSON and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.table import Table
from rich.text import Text

from ..evaluate import BOTH_MEASURES, CONFIDENCE, Measure
from ..io.atomic import atomic_folder, write_bytes, write_json, write_text
from ..runtime.engine import thread_count
from ..study import MethodCell, MethodComparison, mean_ranks
from ..study.methods import BASELINE, FullSizeIlp, RandomRanking
from .figures import style
from .figures.curves import other_look
from .figures.dots import Dot, draw_dots
from .formatting import (
    DIGITS,
    describe_method,
    format_interval,
    format_number,
    markdown_cell,
    one_line,
    short_name,
    shorten,
    with_minus_signs,
)
from .study_tables import SPREAD_LEGEND, csv_text
from .tables import BEST, MARKS_LEGEND, mark_words, number_tables

FORMAT, VERSION = "edgewise-methods", 1
# A regular expression of the files in the folder of a comparison.
FILE_PATTERN = r"methods\.(md|csv|json)|figure\.(png|svg)"
FILE = "methods.json"
INDENT = "  "
PANEL_HEIGHT, ROW_HEIGHT = 2.3, 0.2  # of the figure, in inches
# The order of the table's columns.
MEASURES = BOTH_MEASURES[::-1]
LEGEND = (
    f"{BEST}: of this measure in this cell, none if all are equal; compared with {BASELINE} on the same examples, "
    f"{MARKS_LEGEND}",
    f"{SPREAD_LEGEND}; one integer program selects the circuits of all methods, of equal size, by signed values for "
    "CPR and absolute values for CMD",
    "s/example: wall seconds of scoring per training example; for a learner, of learning the rankings of both "
    "measures, divided by the number of examples",
    "memory: estimated peak beyond the model for one example",
)
TRUTH_LEGEND = (
    "AUROC, precision: of absolute scores, or of the ranking that is learned for CMD, against the known circuit; "
    "precision at its size"
)


def methods_summary(comparison: MethodComparison) -> dict[str, Any]:
    """Return the content of methods.json: one row per cell and method.

    Differences are from EAP-IG, paired over the evaluated examples.
    """
    records: list[dict[str, Any]] = []
    for cell in comparison.cells:
        baseline = next(row for row in cell.rows if row.name == BASELINE)
        for row in cell.rows:
            record: dict[str, Any] = {"model": cell.model, "task": cell.task, "method": row.name}
            for measure in MEASURES:
                repeats, name = row.repeats[measure], measure.name
                interval = repeats.resampled.interval()
                areas = [round(measure.better * other.repeats[measure].mean, DIGITS) for other in cell.rows]
                is_best = max(areas) > min(areas) and round(measure.better * repeats.mean, DIGITS) == max(areas)
                record |= {name: repeats.mean, f"{name} spread": repeats.spread, f"{name} low": interval.low}
                record |= {f"{name} high": interval.high, f"{name} best": is_best}
                difference = None
                if row is not baseline:
                    difference = repeats.resampled.minus(baseline.repeats[measure].resampled)
                for field in ("difference", "low", "high", "p", "verdict"):
                    key = f"{name} {field}" if field in ("difference", "verdict", "p") else f"{name} difference {field}"
                    record[key] = None if difference is None else getattr(difference, field)
                n_kept = sum(sum(curve.n_kept) for curve in repeats.curves)
                record[f"{name} kept"] = n_kept / sum(sum(curve.n_requested) for curve in repeats.curves)
            record |= {
                "seconds per example": row.seconds,
                "memory": row.memory,
                "AUROC": float(np.mean(row.aurocs)) if row.aurocs else None,
                "precision": float(np.mean(row.precisions)) if row.precisions else None,
            }
            records.append(record)
    plan = comparison.plan
    return {
        "format": FORMAT,
        "version": VERSION,
        "seeds": plan.seeds,
        "solver": FullSizeIlp.name,
        "threads": thread_count(),
        "settings": {name: value for name, value in plan.settings.record().items() if name != "scorer"},
        "cells": [
            {"model": cell.model, "task": cell.task, "edges": cell.n_edges, "examples": dict(cell.examples),
             "true_edges": cell.n_true, "left_out": dict(cell.left_out)}
            for cell in comparison.cells
        ],
        "rows": records,
        "mean_ranks": {
            measure.name: [asdict(rank) for rank in mean_ranks(comparison, measure)]
            for measure in (MEASURES if len(comparison.cells) > 1 else ())
        },
    }  # fmt: skip


def write_methods(
    comparison: MethodComparison,
    folder: str | Path,
    overwrite: bool = False,
    made_from: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the table and the figure into a folder, atomically.

    Parameters
    ----------
    comparison
        What `compare_methods` returns.
    folder
        The folder to write methods.md, methods.csv, methods.json, figure.png and figure.svg to.
    overwrite
        Replace an earlier comparison.
    made_from
        Inputs to record in methods.json, as plain data.

    Returns
    -------
    dict
        The content of methods.json.
    """
    content = methods_summary(comparison) | ({} if made_from is None else {"made_from": made_from})
    images = style.draw_files({"figure": lambda _: methods_figure(comparison)})
    with atomic_folder(Path(folder), overwrite, FILE_PATTERN) as draft:
        write_text(draft / "methods.md", methods_markdown(content))
        write_text(draft / "methods.csv", csv_text(content["rows"]))
        write_json(draft / FILE, content)
        for name, image in images.items():
            write_bytes(draft / name, image)
    return content


def describe_method_cell(cell: Mapping[str, Any]) -> str:
    """Return a sentence on the examples of a cell, its known circuit and the methods that were left out."""
    counts = ", ".join(f"{number} of {split}" for split, number in cell["examples"].items())
    circuit = f"; the known circuit has {cell['true_edges']:,}" if cell["true_edges"] else ""
    reasons = "".join(f"; without {name}: {reason}" for name, reason in cell["left_out"].items())
    return f"{_cell_name(cell)}: {cell['edges']:,} edges{circuit}; examples {counts}{reasons}"


def _cell_name(record: Mapping[str, Any]) -> str:
    task, model = record["task"], record["model"]
    return str(model) if task == model else f"{short_name(task)}, {short_name(model)}"


def _area(row: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """Return the marks, the number and the spread of an area."""
    spread = row[f"{name} spread"]
    marks = mark_words(row[f"{name} best"], row[f"{name} verdict"] or "")
    return marks, format_number(row[name]), "" if spread is None else f" ±{format_number(spread)}"


def _costs(row: Mapping[str, Any]) -> list[str]:
    """Return seconds, memory, AUROC and precision as text; empty if they are unknown."""
    known = ["" if row[name] is None else format_number(row[name], digits=3) for name in ("AUROC", "precision")]
    return [f"{row['seconds per example']:.2g}", f"{row['memory'] / 1e6:,.3g} MB", *known]


def methods_terminal(content: Mapping[str, Any], width: int) -> list[Table]:
    """Return the table for a terminal. The cells are below each other, each under its name; names aren't folded."""
    rows: list[Sequence[Any]] = []
    ends: list[int] = []
    for cell in content["cells"]:
        members = [row for row in content["rows"] if (row["model"], row["task"]) == (cell["model"], cell["task"])]
        ends += [len(rows) - 1] if rows else []
        rows.append((Text(one_line(_cell_name(cell)), "bold"), *[""] * (len(MEASURES) + 4)))
        for row in members:
            areas = []
            for measure in MEASURES:
                marks, number, spread = _area(row, measure.name)
                areas.append(Text(f"{marks} ".lstrip()) + Text(number, "bold" * row[f"{measure.name} best"]) + spread)
            rows.append((f"{INDENT}{row['method']}", *areas, *_costs(row)))
    heads = ["method", *(measure.name for measure in MEASURES), "s/example", "memory", "AUROC", "precision"]
    shown = range(len(heads) if any(cell["true_edges"] for cell in content["cells"]) else len(heads) - 2)
    longest = max(len(row["method"]) for row in content["rows"]) + len(INDENT)
    return number_tables(
        [heads[i] for i in shown], [[row[i] for i in shown] for row in rows], width, ends=ends, min_name_width=longest
    )


def rank_lines(content: Mapping[str, Any]) -> list[str]:
    """Return the mean ranks of all methods in a line per measure. Empty for a single cell."""
    lines = []
    for name, ranks in content["mean_ranks"].items():
        listed = (f"{r['method']} {r['mean']:.1f} {format_interval(r['low'], r['high'], digits=1)}" for r in ranks)
        lines.append(f"mean rank for {name} over {len(content['cells'])} cells, 1 is best: {', '.join(listed)}")
    return lines


def methods_markdown(content: Mapping[str, Any]) -> str:
    """Return the table as a page without a heading."""
    lines = [f"- {markdown_cell(describe_method_cell(cell))}" for cell in content["cells"]]
    seeds, threads = (
        f"{n} {word}{'s' * (n > 1)}" for n, word in ((content["seeds"], "seed"), (content["threads"], "thread"))
    )
    methods = {name: describe_method(content["settings"][name]) for name in ("metric", "ablation", "faithfulness")}
    settings = ", ".join(f"{name} {method}" for name, method in methods.items())
    lines += ["", f"{seeds}, {threads}; {settings}.", ""]
    lines += [f"- {markdown_cell(text)}" for text in (*LEGEND, TRUTH_LEGEND)]
    heads = ["task, model", "method"]
    heads += [head for m in MEASURES for head in (f"{m.name} ({m.improves})", f"{m.name} minus {BASELINE}'s")]
    heads += ["s/example", "memory", "AUROC", "precision"]
    lines += ["", f"| {' | '.join(heads)} |", "|---|---" + "|---:" * (len(heads) - 2) + "|"]
    for row in content["rows"]:
        cells = [markdown_cell(_cell_name(row)), f"`{markdown_cell(row['method'])}`"]
        for measure in MEASURES:
            name = measure.name
            _, number, spread = _area(row, name)
            number = f"**{number}**" if row[f"{name} best"] else number
            cells.append(with_minus_signs(f"{number}{spread}"))
            difference = ""
            if row[f"{name} difference"] is not None:
                interval = format_interval(row[f"{name} difference low"], row[f"{name} difference high"], signed=True)
                text = f"{format_number(row[f'{name} difference'], signed=True)} {interval}"
                verdict = mark_words(False, row[f"{name} verdict"])
                difference = f"{verdict} {with_minus_signs(text)}".strip()
            cells.append(difference)
        lines.append(f"| {' | '.join([*cells, *_costs(row)])} |")
    if content["mean_ranks"]:
        over = f"Mean rank over the {len(content['cells'])} cells, 1 is best, with its {CONFIDENCE:.0%} interval"
        lines += ["", f"{over} over resampled cells, of methods that are in every cell:", ""]
        names = list(content["mean_ranks"])
        by_method = {name: {r["method"]: r for r in ranks} for name, ranks in content["mean_ranks"].items()}
        lines += [f"| method | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
        for method in by_method[names[0]]:
            ranks = [by_method[name][method] for name in names]
            texts = [f"{r['mean']:.1f} {format_interval(r['low'], r['high'], digits=1)}" for r in ranks]
            lines.append(f"| `{markdown_cell(method)}` | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def methods_figure(comparison: MethodComparison) -> Figure:
    """Draw CPR and CMD against seconds per example for every cell, and mean ranks if there are several cells."""
    names = list(dict.fromkeys(row.name for cell in comparison.cells for row in cell.rows))
    others = [name for name in names if name not in (BASELINE, RandomRanking.name)]
    looks: dict[str, dict[str, Any]] = {name: {**other_look(place)} for place, name in enumerate(others)}
    looks[BASELINE] = {"color": style.BLACK, "marker": "o", "markersize": 5.0}
    looks[RandomRanking.name] = {"color": style.GREY, "linestyle": (0, (4, 2)), "linewidth": 1.0}
    n_cells, has_ranks = len(comparison.cells), len(comparison.cells) > 1
    heights = [PANEL_HEIGHT] * n_cells + [ROW_HEIGHT * len(names) + 0.8] * has_ranks
    caption = (
        "Area on test, mean over seeds, against wall seconds of scoring or learning per training example; logarithmic "
        "but for CPR. The dashed line is a random ranking; for CPR it is drawn only if it is near the others."
        + f" Ranks: mean over cells, 1 is best, with {CONFIDENCE:.0%} intervals over resampled cells."
        * has_ranks
    )
    figure = style.new_figure(10.0, sum(heights), "Faithfulness and cost of scorers and learners", caption)
    panels = figure.subplots(len(heights), 2, squeeze=False, height_ratios=heights)
    for row, cell in zip(panels, comparison.cells, strict=False):
        for axes, measure in zip(row, MEASURES, strict=True):
            _draw_cell(axes, cell, measure, looks)
    handles = [
        Line2D([], [], **looks[name] | ({"linestyle": "none"} if "marker" in looks[name] else {})) for name in names
    ]
    labels = [shorten(name) for name in names]
    style.add_legend(panels[0][1], handles, labels, loc="upper left", bbox_to_anchor=(1.03, 1))
    if has_ranks:
        for axes, measure in zip(panels[-1], MEASURES, strict=True):
            ranks = mean_ranks(comparison, measure)
            dots = [Dot(shorten(r.method), r.mean, r.low, r.high, looks[r.method]["color"]) for r in ranks]
            draw_dots(axes, dots, style.SCREEN)
            axes.set_xlim(0.5, len(ranks) + 0.5)
            style.set_heading(axes, f"Mean rank, {measure.name}", f"over {n_cells} cells, 1 is best")
    return figure


def _draw_cell(axes: Axes, cell: MethodCell, measure: Measure, looks: dict[str, dict[str, Any]]) -> None:
    """Draw one point per method. Methods without a cost, such as random, are lines."""
    points = [row for row in cell.rows if row.seconds > 0]
    is_log = measure.least == 0 and all(row.repeats[measure].mean > 0 for row in cell.rows)
    for axis, set_scale, is_logarithmic in (
        (axes.xaxis, axes.set_xscale, bool(points)),
        (axes.yaxis, axes.set_yscale, is_log),
    ):
        if is_logarithmic:
            set_scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: with_minus_signs(f"{value:g}")))
    for row in points:
        axes.plot([row.seconds], [row.repeats[measure].mean], **looks[row.name] | {"linestyle": "none"})
    limits = axes.get_ylim()
    for row in cell.rows:
        if row not in points:
            axes.axhline(row.repeats[measure].mean, color=looks[row.name]["color"], linestyle=(0, (4, 2)), linewidth=1)
    if not is_log:
        axes.set_ylim(limits)  # random would leave no room for the differences between the others
    axes.set_xlabel("seconds per example")
    place = f"{shorten(short_name(cell.task))}  ·  {shorten(short_name(cell.model))}"
    place = shorten(cell.model) if cell.task == cell.model else place
    style.set_heading(axes, measure.name, f"{place}  ·  {measure.improves}")
