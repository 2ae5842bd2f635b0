"""How far the work is: verbs report (stage, done, total), and whoever wants to shows it.

A stage is a name, or a name and what there is to say of it: "learn: loss 0.0123".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Shows nothing."""


@contextmanager
def showing(progress: Progress | None) -> Iterator[Progress]:
    """What to report to: what was given, or else bars in a terminal or a notebook, and nothing elsewhere."""
    if progress is not None:
        yield progress
    elif sys.stderr.isatty() or "ipykernel" in sys.modules:
        with bars() as shown:
            yield shown
    else:
        yield silent


@contextmanager
def bars() -> Iterator[Progress]:
    """A bar per stage, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<9}", markup=False), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[detail]}", markup=False),
    )  # fmt: skip
    with Bars(*columns, console=Console(stderr=True)) as shown:
        known: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            name, _, detail = stage.partition(": ")
            if name not in known:
                # A stage reports its start, so that the clock counts from there.
                known[name] = shown.add_task(name, total=total, detail=detail)
            shown.update(known[name], completed=done, total=total, detail=detail)

        yield update
