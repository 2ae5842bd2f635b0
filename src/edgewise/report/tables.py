"""Tables for the terminal: whatever its width, no number is cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE, Comparison, Curve, Measure, Resampled
from ..recipes.outcome import Outcome
from ..recipes.recipe import GREEDY
from .formatting import format_interval, format_number, safe_text

# A model whose correct answer beats the incorrect one less often hardly does a task.
LOW_ACCURACY = 0.6
# Sizes at which tables say how many edges were kept.
SHOWN = (0.01, 0.1, 0.5)
BEST, BETTER, SURE = "best", "+", "*"
LEGEND = (
    f"{BEST}: of this metric; {BETTER}: better than greedy; {SURE}: differs from greedy, paired over the examples, at "
    "95 %",
    "kept: edges that pruning left of those asked for, in %, at 1, 10 and 50 % of all edges",
)
# Names are folded to no less, as long as there is room for a column of numbers.
LEAST_NAME = 14
WIDTH = 80
# Between columns.
GAP = 2
INTERVAL = f"{CONFIDENCE:.0%} interval"


def area_table(chosen: Sequence[Outcome], measure: Measure, width: int = WIDTH) -> list[Table]:
    """The paper's ablation table for one metric, with marks as `LEGEND` has them; the best is also bold, and whatever
    beats greedy underlined. Intervals are over the evaluated examples."""
    sign = measure.better
    best = max(sign * row.area for row in chosen)
    areas = {row.name: row.resampled for row in chosen}
    greedy = areas.get(GREEDY.name)
    rows = []
    for row in chosen:
        beats = greedy is not None and sign * row.area > sign * greedy.estimate
        is_best, found = sign * row.area == best, areas[row.name].interval()
        marks = (BEST if is_best else "", BETTER * beats + SURE * _differs(areas[row.name], greedy))
        style = "bold " * is_best + "underline" * beats
        area = Text(format_number(row.area), style)
        rows.append(
            (row.name, area, " ".join(filter(None, marks)), format_interval(found.low, found.high), _kept(row.curve))
        )
    title = f"{measure.name}, {measure.improves} ({measure.rank} ranking)"
    heads = ("method", measure.name, "", INTERVAL, "kept")
    return number_tables(heads, rows, width, title, left=(2,))


def _differs(area: Resampled, greedy: Resampled | None) -> bool:
    return greedy is not None and greedy is not area and is_sure(area.minus(greedy))


def is_sure(found: Comparison) -> bool:
    """Whether the interval of a difference excludes 0."""
    return found.is_better or found.is_worse


def _kept(curve: Curve) -> str:
    """The share of the edges asked for that pruning left, at the sizes of `SHOWN`, in percent."""
    places = [curve.shares.index(share) for share in SHOWN if share in curve.shares]
    return ", ".join(f"{curve.kept[at] / max(curve.asked[at], 1):.0%}".rstrip("%") for at in places)


def short(name: str) -> str:
    """A model's or a task's name without its path, its owner or where its copy is."""
    known, equals, _ = name.partition("=")
    return known if equals or name.startswith("mib/") else Path(name).name


def method_words(record: Any) -> str:
    """A method of a record with its parameters, in a line: `eap-ig (steps 5)`."""
    if not isinstance(record, Mapping):
        return str(record)
    told = ", ".join(f"{name} {value}" for name, value in record.items() if name != "name")
    return f"{record['name']}{f' ({told})' * bool(told)}"


def number_tables(
    heads: Sequence[str | Text],
    rows: Sequence[Sequence[Any]],
    width: int,
    title: str = "",
    *,
    left: Collection[int] = (),
    ends: Collection[int] = (),
) -> list[Table]:
    """A table of a name and numbers per row for a terminal of some width: names are folded, numbers never.

    left  columns that begin at the left, unlike numbers
    ends  rows after which there is a line

    Columns that still have no room go into further tables, below the first, with the names again.
    """
    cells = [[one if isinstance(one, Text) else safe_text(one) for one in row] for row in (heads, *rows)]
    widths = [max(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True))
              for column in zip(*cells, strict=True)]  # fmt: skip
    least = min(widths[0], LEAST_NAME)

    def fits(columns: Sequence[int]) -> bool:
        return _room(width, [widths[column] for column in columns]) >= least

    parts: list[list[int]] = [[]]
    for column in range(1, len(heads)):
        if parts[-1] and not fits([*parts[-1], column]):
            parts.append([])
        parts[-1].append(column)
    found = []
    for place, part in enumerate(parts):
        table = Table(
            title=safe_text(title) if title and not place else None, title_justify="left", title_style="bold",
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0),
        )  # fmt: skip
        names = max(1, min(widths[0], _room(width, [widths[column] for column in part])))
        table.add_column(cells[0][0], width=names, overflow="fold")
        for column in part:
            side: Literal["left", "right"] = "left" if column in left else "right"
            table.add_column(cells[0][column], justify=side, no_wrap=True, overflow="fold")
        for at, row in enumerate(cells[1:]):
            table.add_row(*(row[column] for column in (0, *part)), end_section=at in ends)
        found.append(table)
    return found


def _room(width: int, others: Sequence[int]) -> int:
    """The room that columns leave for names."""
    return width - sum(one + GAP for one in others)


def key_value_table(title: str, rows: Mapping[str, Any]) -> Table:
    """A table of two columns; in a narrow terminal both are folded, at spaces."""
    table = Table(title=safe_text(title), title_justify="left", title_style="bold", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(safe_text(name), safe_text(value))
    return table


def list_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table of words, which are folded in a narrow terminal."""
    table = Table()
    for column in columns:
        table.add_column(safe_text(column), overflow="fold")
    for row in rows:
        table.add_row(*map(safe_text, row))
    return table
