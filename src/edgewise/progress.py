"""How far the work is: verbs report (stage, done, total), and whoever wants to shows it."""

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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True)) as shown:
        known: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in known:
                # A stage reports its start, so that the clock counts from there.
                known[stage] = shown.add_task(stage, total=total)
            shown.update(known[stage], completed=done, total=total)

        yield update
