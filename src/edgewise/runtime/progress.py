"""Progress: bars in a terminal, lines in a log.

Functions report (stage, done, total). A stage is a name, or a name and a detail: "learn: loss 0.0123". It reports its
start with 0 done. A stage whose `done` falls has started again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

Progress = Callable[[str, int, int], None]
# Seconds between two lines of a stage: at least, and at most while it reports.
MIN_WAIT, MAX_WAIT = 10.0, 300.0


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def can_draw() -> bool:
    """Return whether bars can be drawn: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar per stage on stderr, or lines if stderr is no terminal."""
    if not can_draw():
        yield ProgressLines(sys.stderr)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress as RichProgress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<9}", markup=False), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[detail]}", markup=False),
    )  # fmt: skip
    with RichProgress(*columns, console=Console(stderr=True)) as display:
        bars: dict[str, Any] = {}
        last_done: dict[str, int] = {}

        def update(stage: str, done: int, total: int) -> None:
            name, _, detail = stage.partition(": ")
            if name not in bars:
                bars[name] = display.add_task(name, total=total, detail=detail)
            elif done < last_done[name]:
                display.reset(bars[name], total=total, detail=detail)
            last_done[name] = done
            display.update(bars[name], completed=done, total=total, detail=detail)

        yield update


@dataclass
class _Stage:
    """A stage of `ProgressLines`: its label, its start, and its last line."""

    label: str
    runs: int
    started: float
    first_done: int
    last_line: float
    quarter: int
    done: int = -1


class ProgressLines:
    """Shows progress as lines: the start and the end of every stage, and its quarters with the time left.

    A stage that starts again gets a new label, such as "evaluate (2)". So the numbers of a label never fall.
    """

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._stages: dict[str, _Stage] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Print a line, if it is time to."""
        name, _, detail = stage.partition(": ")
        now, quarter, line = self._clock(), 4 * done // max(total, 1), ""
        known = self._stages.get(name)
        if known is None or done < known.done:
            runs = 1 if known is None else known.runs + 1
            label = name if runs == 1 else f"{name} ({runs})"
            self._stages[name] = known = _Stage(label, runs, now, done, now, quarter)
            line = f"{done:,} of {total:,}"
        elapsed, wait, last_done, known.done = now - known.started, now - known.last_line, known.done, done
        if done >= total:
            line = f"{done:,} of {total:,} in {_format_seconds(elapsed)}" if last_done < done else ""
        elif wait >= MIN_WAIT and (quarter > known.quarter or wait >= MAX_WAIT):
            known.last_line, known.quarter = now, quarter
            left = _format_seconds(elapsed * (total - done) / max(done - known.first_done, 1))
            line = f"{done:,} of {total:,} after {_format_seconds(elapsed)}, about {left} left"
        if line:
            print(f"{known.label}: {line}" + (f", {detail}" if detail else ""), file=self._file, flush=True)


def _format_seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60:02} min" if hours else f"{rest // 60} min {rest % 60:02} s"
