"""Print what a command will cost: before a long run, or instead of it with --dry-run."""

from __future__ import annotations

from collections.abc import Sequence

from .. import recipes
from ..report.tables import number_tables
from .console import explain, out, print_json, print_tables, say


def show_forecast(forecast: recipes.Forecast, dry_run: bool, json: bool) -> bool:
    """Print a forecast: in full for a dry run, else in one line before a long run. Return `dry_run`."""
    if dry_run and json:
        print_json(forecast.record())
    elif dry_run:
        _show(forecast)
    elif forecast.is_long and not json:
        stages = ", ".join(
            f"{stage.name} {duration(stage.with_workers(forecast.workers))}" for stage in forecast.stages
        )
        explain(f"about {duration(forecast.seconds or 0)} ({stages}); --dry-run says more", "plan")
    return dry_run


def show_forecasts(forecasts: Sequence[recipes.Forecast], json: bool) -> None:
    """Print several forecasts in full, and their sum."""
    seconds = sum(forecast.seconds or 0 for forecast in forecasts)
    if json:
        print_json({"forecasts": [forecast.record() for forecast in forecasts], "seconds": seconds})
        return
    for forecast in forecasts:
        _show(forecast)
    if len(forecasts) > 1:
        say(f"in all: about {duration(seconds)}")


def _show(forecast: recipes.Forecast) -> None:

    heads = ("stage", "examples", "tokens", "batches of", "times", "memory", "about")
    rows = [
        (
            f"{stage.name} {stage.task}", f"{stage.examples:,}", stage.length,
            f"{stage.batches:,} x {stage.batch_size}", f"{stage.passes:,}", amount(stage.need),
            duration(stage.with_workers(forecast.workers)),
        )
        for stage in forecast.stages
    ]  # fmt: skip
    print_tables(number_tables(heads, rows, out.width, f"plan for {forecast.model}, {forecast.edges:,} edges"))
    free = ", ".join(f"{name} {amount(left)}" for name, left in forecast.available.items()) or "unknown"
    most = max(stage.need for stage in forecast.stages)
    say(f"memory: {amount(forecast.weights)} of weights, up to {amount(most)} beside them; free: {free}")
    if forecast.disk:
        say(f"disk: {amount(forecast.disk)} of scores, which are stored per example")
    workers = f" with {forecast.workers} workers" if forecast.workers > 1 else ""
    say(f"time: about {duration(forecast.seconds or 0)}{workers}, from a first batch; equal circuits run once")
    explain("nothing was written: this was --dry-run")


def amount(n_bytes: float) -> str:
    """Return a number of bytes as text with a unit."""
    if n_bytes < 1e5:
        return f"{n_bytes / 1e3:.1f} kB"
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Return a duration as text with a unit."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
