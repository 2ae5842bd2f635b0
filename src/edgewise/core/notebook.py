"""How values are shown in notebooks: data frames, short tables, figures, and pages in frames.

Figures and pages are made by report/, which is later in the order of imports and reads these values. It is imported
when one of them is first shown.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import InputError, visible
from ..graph import BaseGraph, NodeGraph, SpanGraph

if TYPE_CHECKING:
    from pandas import DataFrame

# Rows of the tables that notebooks show for a value.
MAX_ROWS = 10


def data_frame(columns: Mapping[str, Any]) -> DataFrame:
    """Return columns as a pandas DataFrame. Raise InputError if pandas isn't installed."""
    try:
        import pandas
    except ImportError:
        raise InputError("to_frame() needs pandas; install it: pip install 'edgewise[pandas]'") from None
    return pandas.DataFrame(dict(columns))


def edge_columns(graph: BaseGraph, edges: Iterable[int]) -> dict[str, list[Any]]:
    """Return the names of edges, of their sources and destinations, and the input (q, k, v or none) that they feed.

    Pairs also have their span. Nodes have their name only, and neurons also their node and dimension.
    """
    names = [graph.edge_name(edge) for edge in edges]
    if isinstance(graph, NodeGraph):
        parts = [name.partition(":")[::2] for name in names]
        more: dict[str, list[Any]] = {
            "node": [node for node, _ in parts],
            "dimension": [int(number) for _, number in parts if number],
        }
        return {graph.unit: names} | (more if graph.width > 1 else {})
    parts = [name.partition("@")[::2] for name in names]
    ends = [name.partition("->")[::2] for name, _ in parts]
    heads = [destination.partition("<") for _, destination in ends]
    columns: dict[str, list[Any]] = {
        "edge": names,
        "source": [source for source, _ in ends],
        "destination": [head for head, _, _ in heads],
        "input": [letter.rstrip(">") for _, _, letter in heads],
    }
    return columns | ({"span": [span for _, span in parts]} if isinstance(graph, SpanGraph) else {})


def html_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]], n_rows: int) -> str:
    """Return a short HTML table. `n_rows` is the number of rows that there are, of which `rows` are the first."""

    def cells(values: Sequence[object], tag: str) -> str:
        texts = (f"{value:.4g}" if isinstance(value, float) else visible(str(value)) for value in values)
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    body = "".join(cells(row, "td") for row in rows)
    more = f"<p>and {n_rows - len(rows):,} more</p>" if n_rows > len(rows) else ""
    return f"<p>{html.escape(visible(caption))}</p><table>{cells(heads, 'th')}{body}</table>{more}"


def from_report(module: str, name: str) -> Callable[..., Any]:
    """Return a function of report/."""
    function: Callable[..., Any] = getattr(import_module(f"edgewise.report.{module}"), name)
    return function


@dataclass(frozen=True)
class Frame:
    """A page that a notebook shows in a frame. The page can run its own scripts and nothing else."""

    page: str = field(repr=False)
    height: int = 720

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )
