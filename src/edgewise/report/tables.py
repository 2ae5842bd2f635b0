"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE, Benchmark, Curve, Resampled, resample
from ..results import ResultRow
from ..study import GREEDY
from .words import shown

# A model whose correct answer beats the incorrect one less often hardly does a task.
LOW_ACCURACY = 0.6
# Sizes at which tables say how many edges were kept.
SHOWN = (0.01, 0.1, 0.5)
LEGEND = (
    "bold: best; underlined: better than greedy; *: differs from greedy, paired over the examples, at 95 %",
    "edges kept of asked: at 1, 10 and 50 % of all edges",
)


def area_table(chosen: Sequence[ResultRow], benchmark: Benchmark) -> Table:
    """The paper's ablation table for one metric: the best is bold, whatever beats greedy is underlined.

    With an interval over the evaluated examples, and a star where the paired difference to greedy excludes 0.
    """
    sign = benchmark.better
    best = max(sign * row.area for row in chosen)
    areas = {row.name: resample(row.curve, benchmark) for row in chosen}
    greedy = areas.get(GREEDY.name)
    title = f"{benchmark.name}, {benchmark.improves} ({benchmark.rank} ranking)"
    table = Table(title=shown(title), title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    for name in (benchmark.name, f"{CONFIDENCE:.0%} interval", "edges kept of asked"):
        table.add_column(shown(name), justify="right", no_wrap=True)
    for row in chosen:
        beats = greedy is not None and sign * row.area > sign * greedy.estimate
        style = "bold " * (sign * row.area == best) + "underline" * beats
        interval = areas[row.name].interval()
        table.add_row(
            shown(row.name),
            Text(f"{row.area:.4f}", style) + _star(areas[row.name], greedy),
            f"{interval.low:.4f}-{interval.high:.4f}",
            _kept(row.curve),
        )
    return table


def _star(area: Resampled, greedy: Resampled | None) -> str:
    if greedy is None or greedy is area:
        return " "
    found = area.less(greedy)
    return "*" if found.is_better or found.is_worse else " "


def _kept(curve: Curve) -> str:
    """The share of the edges asked for that pruning left, at the sizes of `SHOWN`, in percent."""
    places = [curve.shares.index(share) for share in SHOWN if share in curve.shares]
    return ", ".join(f"{curve.kept[at] / max(curve.asked[at], 1):.0%}".rstrip("%") for at in places) + " %"


def short(name: str) -> str:
    """A model's or a task's name without its path, its owner or where its copy is."""
    known, equals, _ = name.partition("=")
    return known if equals or name.startswith("mib/") else Path(name).name


def method_name(record: Any) -> str:
    """The name of a method in a record: alone, or with its parameters."""
    return str(record["name"]) if isinstance(record, Mapping) else str(record)


def key_value_table(title: str, rows: Mapping[str, Any]) -> Table:
    """A table of two columns."""
    table = Table(title=shown(title), title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        table.add_row(shown(name), shown(value))
    return table


def list_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table."""
    table = Table()
    for column in columns:
        table.add_column(shown(column), overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    return table
