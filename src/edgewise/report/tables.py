"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from ..evaluate.curve import Curve
from ..formats.result_folder import ResultRow

BETTER = {"CPR": 1, "CMD": -1}
TITLES = {"CMD": "CMD, lower is better (absolute ranking)", "CPR": "CPR, higher is better (signed ranking)"}


def area_table(rows: Sequence[ResultRow], benchmark: str) -> Table:
    """The paper's ablation table for one metric: the best is bold, whatever beats greedy is underlined."""
    chosen = [row for row in rows if row.benchmark == benchmark]
    sign = BETTER[benchmark]
    best = max(sign * row.area for row in chosen)
    greedy = next((row.area for row in chosen if row.name == "Greedy"), None)
    table = Table(title=TITLES[benchmark], title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column(benchmark, justify="right", no_wrap=True)
    table.add_column("edges kept at 1 / 10 / 50 %", justify="right", no_wrap=True)
    for row in chosen:
        style = "bold " * (sign * row.area == best) + "underline" * (
            greedy is not None and sign * row.area > sign * greedy
        )
        text = f"{row.area:.4f}"
        table.add_row(row.name, f"[{style}]{text}[/]" if style else text, _kept(row.curve))
    return table


def _kept(curve: Curve) -> str:
    shown = []
    for share in (0.01, 0.1, 0.5):
        if share in curve.shares:
            at = curve.shares.index(share)
            asked, kept = curve.asked[at], curve.kept[at]
            shown.append(str(kept) if kept == asked else f"{kept} of {asked}")
    return ", ".join(shown)


def key_value_table(title: str, rows: Mapping[str, Any]) -> Table:
    """A table of two columns."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def list_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table."""
    table = Table()
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    return table
