"""Progress: bars in a terminal or a notebook, lines in a log or a notebook without ipywidgets.

Functions report (stage, done, total). A stage is a name, or a name and a detail: "learn: loss 0.0123". It reports its
start with 0 done. A stage whose `done` falls has started again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from importlib.util import find_spec

Progress = Callable[[str, int, int], None]
# Between two lines of a stage in a log are at least this many seconds, and at least this share of its time so far.
MIN_WAIT, MIN_WAIT_SHARE = 10.0, 0.25


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def is_watched() -> bool:
    """Return whether somebody sees progress: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def can_draw() -> bool:
    """Return whether bars can be drawn: in a terminal, or in a notebook that has ipywidgets."""
    return is_watched() and ("ipykernel" not in sys.modules or find_spec("ipywidgets") is not None)


@contextmanager
def progress_bars(clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Show a bar per stage on stderr, or lines if bars can't be drawn: its start, its end, and some in between."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description:<9}", markup=False), bars.BarColumn(30), bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[detail]}", markup=False),
    )  # fmt: skip
    draws = can_draw()
    # The speed is that of the last ten minutes: an item of a large model may take minutes.
    display = bars.Progress(*columns, console=Console(stderr=True), get_time=clock, speed_estimate_period=600)
    stages: dict[str, bars.TaskID] = {}
    line_times: dict[str, float] = {}

    def update(stage: str, done: int, total: int) -> None:
        name, _, detail = stage.partition(": ")
        is_start = name not in stages
        if is_start:
            stages[name] = display.add_task(name, total=total, detail=detail)
        task = display.tasks[stages[name]]
        if done < task.completed:
            display.reset(task.id, total=total)
            is_start = True
        is_end = done >= total > task.completed
        display.update(task.id, completed=done, total=total, detail=detail)
        elapsed, now = task.elapsed or 0.0, clock()
        wait = now - line_times.get(name, now)
        if draws or not (is_start or is_end or wait >= max(MIN_WAIT, MIN_WAIT_SHARE * elapsed)):
            return
        line_times[name] = now
        times = "" if is_start else f" in {timedelta(seconds=round(elapsed))}"
        if not is_end and task.time_remaining is not None:
            times += f", about {timedelta(seconds=round(task.time_remaining))} left"
        print(f"{name}: {done:,} of {total:,}{times}" + f", {detail}" * bool(detail), file=sys.stderr, flush=True)

    with display if draws else nullcontext():
        yield update
