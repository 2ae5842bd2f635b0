"""Tables, as heads and rows, for the terminal and as Markdown and CSV. In a terminal of any width no number is cut."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE, Measure
from ..evaluate.intervals import NOT_SIGNIFICANT
from ..recipes.discovery import Outcome
from ..recipes.recipe import GREEDY
from .formatting import format_interval, format_number, format_percent, safe_text

# Sizes at which tables show the share of kept edges.
KEPT_SIZES = (0.01, 0.1, 0.5)
BEST = "best"
SIGNIFICANT = ("better", "worse")  # verdicts that tables show
# The legend of all comparisons.
MARKS_LEGEND = (
    f"better, worse: a significant difference (its {CONFIDENCE:.0%} interval excludes 0); no mark: {NOT_SIGNIFICANT}"
)
MIN_NAME_WIDTH = 14
DEFAULT_WIDTH = 80
COLUMN_GAP = 2
INTERVAL = f"{CONFIDENCE:.0%} interval"
# Characters of the longest bar of a curve, and of the columns before it.
MAX_BAR, CURVE_COLUMNS = 40, 24


def area_table(outcomes: Sequence[Outcome], measure: Measure, width: int = DEFAULT_WIDTH) -> list[Table]:
    """Return the areas of all recipes of a measure, with marks (see `marks_legend`)."""
    areas = [measure.better * outcome.area for outcome in outcomes]
    best = max(areas) if max(areas) > min(areas) else None  # none, if all are equal
    greedy = next((outcome for outcome in outcomes if outcome.name == GREEDY.name), None)
    rows = []
    for outcome in outcomes:
        area, is_best = outcome.resampled, measure.better * outcome.area == best
        verdict = "" if greedy is None or outcome is greedy else area.minus(greedy.resampled).verdict
        interval, curve = area.interval(), outcome.curve
        places = [curve.shares.index(size) for size in KEPT_SIZES if size in curve.shares]
        counts = [(curve.n_kept[place], curve.n_requested[place]) for place in places]
        shares_kept = [f"{100 * n_kept / n_requested:.0f}" if n_requested else "-" for n_kept, n_requested in counts]
        area_text, marks = Text(format_number(outcome.area), "bold" * is_best), mark_words(is_best, verdict)
        row = [outcome.name, area_text, marks, format_interval(interval.low, interval.high)]
        rows.append(row + [", ".join(shares_kept)] * bool(shares_kept))
    title = f"{measure.name}, {measure.improves} ({measure.rank} ranking)"
    heads = ["recipe", measure.name, "", INTERVAL, "kept"]
    return number_tables(heads[: len(rows[0])], rows, width, title, left=(2,))


def kept_legend(outcomes: Sequence[Outcome]) -> str:
    """Return what the column `kept` of `area_table` has; empty if there is no such column."""
    shares, units = outcomes[0].curve.shares, outcomes[0].circuits[0].graph.units
    sizes = ", ".join(format_percent(size) for size in KEPT_SIZES if size in shares)
    return f"kept: % of the requested {units} left after pruning, at {sizes} % of all {units}" if sizes else ""


def marks_legend(reference: str) -> str:
    """Return what the marks of areas mean, which are compared with those of `reference`."""
    return (
        f"{BEST}: of this measure on these examples, none if all are equal; compared with {reference} on the same "
        f"ones, {MARKS_LEGEND}"
    )


def mark_words(is_best: bool, verdict: str) -> str:
    """Return the words that mark a number in every table, as explained by `marks_legend`."""
    return " ".join(filter(None, (BEST * is_best, verdict * (verdict in SIGNIFICANT))))


def number_tables(
    heads: Sequence[str | Text],
    rows: Sequence[Sequence[Any]],
    width: int,
    title: str = "",
    *,
    left: Collection[int] = (),
    ends: Collection[int] = (),
) -> list[Table]:
    """Return a table of a name and numbers per row for a terminal: names are folded, numbers never.

    Columns without room go into further tables, below the first, with the names repeated. Names are folded to no less
    than `MIN_NAME_WIDTH`, as long as there is room for a column of numbers. `left` are the columns that are aligned at
    the left, unlike numbers; `ends` are the rows after which there is a line.
    """
    cells = [[cell if isinstance(cell, Text) else safe_text(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True))
              for column in zip(*cells, strict=True)]  # fmt: skip

    def name_width(columns: Sequence[int]) -> int:
        """Return the width that columns leave for names."""
        return width - sum(widths[column] + COLUMN_GAP for column in columns)

    parts: list[list[int]] = [[]]
    for column in range(1, len(heads)):
        if parts[-1] and name_width([*parts[-1], column]) < min(widths[0], MIN_NAME_WIDTH):
            parts.append([])
        parts[-1].append(column)
    tables: list[Table] = []
    for part in parts:
        table = Table(
            title=safe_text(title) if title and not tables else None, title_justify="left", title_style="bold",
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, COLUMN_GAP - 1, 0, 0),
        )  # fmt: skip
        table.add_column(cells[0][0], width=max(1, min(widths[0], name_width(part))), overflow="fold")
        for column in part:
            side: Literal["left", "right"] = "left" if column in left else "right"
            table.add_column(cells[0][column], justify=side, no_wrap=True, overflow="fold")
        for place, row in enumerate(cells[1:]):
            table.add_row(*(row[column] for column in (0, *part)), end_section=place in ends)
        tables.append(table)
    return tables


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of a name and numbers per row as Markdown; the cells are Markdown already."""
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return records of the same keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def list_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table of text, folded in a narrow terminal."""
    table = Table()
    for column in columns:
        table.add_column(safe_text(column), overflow="fold")
    for row in rows:
        table.add_row(*map(safe_text, row))
    return table


def key_value_table(title: str, rows: Mapping[str, Any]) -> Table:
    """Return a table of two columns without heads, both folded in a narrow terminal."""
    table = list_table(("", ""), rows.items())
    table.title, table.title_justify, table.title_style, table.show_header = safe_text(title), "left", "bold", False
    return table


def curve_tables(shares: Sequence[float], values: Sequence[float], width: int) -> list[Table]:
    """Return values by share of the edges, with a bar for each."""
    unit = max(1.0, *values) / max(1, min(MAX_BAR, width - CURVE_COLUMNS))
    rows = [
        (f"{format_percent(share)} %", format_number(value, digits=2), "#" * round(max(0.0, value) / unit))
        for share, value in zip(shares, values, strict=True)
    ]
    return number_tables(("size", "faithfulness", ""), rows, width, left=(2,))
