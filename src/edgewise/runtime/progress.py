"""How far the work is: verbs report (stage, done, total), and whoever wants to shows it.

A stage is a name, or a name and what there is to say of it: "learn: loss 0.0123". It reports its start, with 0 done;
one that starts again is another stage of the same name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

Progress = Callable[[str, int, int], None]
# Lines: no more often than this many seconds within a stage, and no more seldom than that many while it reports.
LEAST_WAIT, LONGEST_WAIT = 10.0, 300.0


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Shows nothing."""


@contextmanager
def default_progress(progress: Progress | None) -> Iterator[Progress]:
    """What to report to: what was given, or else bars in a terminal or a notebook, and nothing elsewhere."""
    if progress is not None:
        yield progress
    elif _can_draw():
        with progress_bars() as shown:
            yield shown
    else:
        yield ignore_progress


def _can_draw() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar per stage on stderr, with the time that is left; lines where nothing can be drawn, as in a log."""
    if not _can_draw():
        yield ProgressLines(sys.stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<9}", markup=False), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[detail]}", markup=False),
    )  # fmt: skip
    with Bars(*columns, console=Console(stderr=True)) as shown:
        known: dict[str, Any] = {}
        before: dict[str, int] = {}

        def update(stage: str, done: int, total: int) -> None:
            name, _, detail = stage.partition(": ")
            if name not in known:
                # A stage reports its start, so that the clock counts from there.
                known[name] = shown.add_task(name, total=total, detail=detail)
            elif done < before[name]:  # another stage of the same name
                shown.reset(known[name], total=total, detail=detail)
            before[name] = done
            shown.update(known[name], completed=done, total=total, detail=detail)

        yield update


@dataclass
class _Stage:
    """What was said of a stage: since when it runs, from where, when and at which quarter its last line was, and how
    much was done by then."""

    since: float
    first: int
    told_at: float
    quarter: int
    done: int


class ProgressLines:
    """Progress as lines: the start and the end of every stage, and between them its quarters with the time left."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._stages: dict[str, _Stage] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage is, if it is time to."""
        name, _, detail = stage.partition(": ")
        known, now, more = self._stages.get(name), self._clock(), f", {detail}" * bool(detail)
        quarter = 4 * done // max(total, 1)
        if known is None or done < known.done:
            self._stages[name] = known = _Stage(now, done, now, quarter, -1)
            if done < total:
                self._say(f"{name}: {done:,} of {total:,}{more}")
        elapsed, wait, before, known.done = now - known.since, now - known.told_at, known.done, done
        if done >= total:
            if before < done:  # an end may be told twice
                self._say(f"{name}: {done:,} of {total:,} in {_time(elapsed)}{more}")
        elif wait >= LEAST_WAIT and (quarter > known.quarter or wait >= LONGEST_WAIT):
            known.told_at, known.quarter = now, quarter
            left = elapsed * (total - done) / max(done - known.first, 1)
            self._say(f"{name}: {done:,} of {total:,} after {_time(elapsed)}, about {_time(left)} left{more}")

    def _say(self, words: str) -> None:
        print(words, file=self._file, flush=True)


def _time(seconds: float) -> str:
    """A duration for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60:02} min" if hours else f"{rest // 60} min {rest % 60:02} s"
