"""What a command will cost, shown before it is begun, or in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .console import aside, out, print_json, print_tables, say

if TYPE_CHECKING:
    from ..recipes.forecast import Forecast


def show_forecast(found: Forecast, dry_run: bool, json: bool) -> bool:
    """Whether that was all, as with --dry-run: then in full, and else in a line before a long run."""
    if dry_run and json:
        print_json(found.record())
    elif dry_run:
        _show(found)
    elif found.is_long and not json:
        stages = ", ".join(f"{one.name} {duration(one.with_workers(found.workers))}" for one in found.stages)
        aside(f"about {duration(found.seconds or 0)} ({stages}); --dry-run says more", "plan")
    return dry_run


def show_forecasts(some: Sequence[Forecast], json: bool) -> None:
    """In full, one after the other."""
    if json:
        print_json({"forecasts": [one.record() for one in some], "seconds": sum(one.seconds or 0 for one in some)})
        return
    for one in some:
        _show(one)
    if len(some) > 1:
        say(f"in all: about {duration(sum(one.seconds or 0 for one in some))}")


def _show(found: Forecast) -> None:
    from ..report.tables import number_tables

    heads = ("stage", "examples", "tokens", "batches of", "times", "memory", "about")
    rows = [
        (
            f"{one.name} {one.task}", f"{one.examples:,}", one.length, f"{one.batches:,} x {one.batch_size}",
            f"{one.passes:,}", amount(one.need), duration(one.with_workers(found.workers)),
        )
        for one in found.stages
    ]  # fmt: skip
    print_tables(number_tables(heads, rows, out.width, f"plan for {found.model}, {found.edges:,} edges"))
    free = ", ".join(f"{name} {amount(left)}" for name, left in found.available.items()) or "unknown"
    most = max(one.need for one in found.stages)
    say(f"memory: {amount(found.weights)} of weights, up to {amount(most)} beside them; free: {free}")
    if found.disk:
        say(f"disk: {amount(found.disk)} of scores, example by example")
    workers = f" with {found.workers} workers" if found.workers > 1 else ""
    say(f"time: about {duration(found.seconds or 0)}{workers}, from a first batch; circuits that are alike run once")
    aside("no result was written: this was --dry-run")


def amount(size: float) -> str:
    """Bytes for people."""
    if size < 1e5:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
