"""Printing for the commands: results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from logging import INFO, WARNING, Handler, LogRecord, getLogger
from typing import Any

from rich.console import Console
from rich.table import Table

from .. import models, recipes, runtime
from ..core.ranking import Ranking
from ..errors import InputError
from ..report.formatting import one_line, safe_text
from ..report.tables import number_tables
from ..runtime.progress import ignore_progress, progress_bars

# With fewer examples than this, bootstrap intervals are too narrow.
FEW_EXAMPLES = 10
# A loss that rises by more than this share diverges.
DIVERGED = 0.5
LIBRARIES = ("numpy", "torch", "transformers", "highspy", "matplotlib", "typer", "rich")
# The exit code after a broken pipe, as in rich and click.
BROKEN_PIPE = 1
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


# How much a command prints beside its results.
QUIET, NORMAL, VERBOSE = range(3)
_verbosity = ContextVar("verbosity", default=NORMAL)


def is_quiet() -> bool:
    """Whether only results are printed."""
    return _verbosity.get() == QUIET


@contextmanager
def verbosity(quiet: bool, verbose: bool) -> Iterator[None]:
    """Print as much as the options --quiet and --verbose ask for; without either, as much as before."""
    if quiet and verbose:
        raise InputError("--quiet and --verbose are opposites; give one of them")
    token = _verbosity.set(QUIET if quiet else VERBOSE if verbose else _verbosity.get())
    try:
        yield
    finally:
        _verbosity.reset(token)


@contextmanager
def show_progress(session: runtime.Session) -> Iterator[runtime.Session]:
    """Return the session with progress on stderr: bars or lines, nothing with --quiet.

    With --verbose, print how long each stage took and how much it did at once.
    """
    if is_quiet():
        yield replace(session, progress=ignore_progress)
        return
    # By stage: seconds so far, time of the last report, items done by then, most items between two reports.
    stages: dict[str, tuple[float, float, int, int]] = {}
    with progress_bars() as show:

        def update(stage: str, done: int, total: int) -> None:
            name, now = stage.partition(": ")[0], time.perf_counter()
            seconds, last, before, most = stages.get(name, (0.0, now, done, 0))
            elapsed = now - last if done else 0.0  # a stage that restarts was idle until now
            stages[name] = (seconds + elapsed, now, done, max(most, done - before))
            show(stage, done, total)

        yield replace(session, progress=update)
    for name, (seconds, _, _, most) in stages.items():
        detail(f"{name}: {seconds:.2f} s, at most {most:,} at once")


@contextmanager
def flush_output() -> Iterator[None]:
    """Flush all output at the end, and escape characters that the terminal's encoding lacks.

    A closed pipe ends the command silently.
    """
    sys.stdout = sys.stdout or io.StringIO()  # None if the stream was closed before the start
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, because errors of Python's own flush at exit can't be caught
    except BrokenPipeError:
        _discard_output()
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        _discard_output()
        print(f"error: the output can't be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _discard_output() -> None:
    """Send what is still buffered to the null device."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a stream without a file has nothing to discard
            try:
                stream.flush()
            except OSError:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise InputError if an argument of the command isn't text in the locale's encoding."""
    for number, argument in enumerate(arguments, start=1):
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(
                f"argument {number}, {one_line(argument)}, isn't text in the encoding {sys.getfilesystemencoding()}; "
                "give names in UTF-8 (LANG=C.UTF-8 sets it)"
            ) from None


def say(text: str, heading: str = "") -> None:
    """Print a line, after a bold heading if there is one.

    Line breaks are left to the terminal, so piped output stays on one line.
    """
    if heading:
        out.print(safe_text(one_line(heading)), end=": ", style="bold", soft_wrap=True)
    out.print(safe_text(one_line(text)), soft_wrap=True)


def explain(text: str, heading: str = "") -> None:
    """Print a line that explains results; nothing with --quiet."""
    if not is_quiet():
        say(text, heading)


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables, each followed by an empty line."""
    for table in tables:
        out.print(table)
        out.print()


def warn(text: str) -> None:
    """Print any line to stderr, not only warnings; `note` and `detail` use it."""
    err.print(safe_text(one_line(text)), soft_wrap=True)


def note(text: str) -> None:
    """Print a note to stderr; nothing with --quiet."""
    if not is_quiet():
        warn(f"note: {text}")


def detail(text: str) -> None:
    """Print a line for bug reports to stderr, with --verbose only."""
    if _verbosity.get() == VERBOSE:
        warn(text)


class _LogPrinter(Handler):
    def emit(self, record: LogRecord) -> None:
        message = record.getMessage()
        warn(f"warning: {message}") if record.levelno >= WARNING else note(message)


@contextmanager
def print_log() -> Iterator[None]:
    """Print what the library logs: information as notes, problems as warnings."""
    log, printer = getLogger("edgewise"), _LogPrinter()
    level = log.level
    log.addHandler(printer)
    log.setLevel(INFO)
    try:
        yield
    finally:
        log.removeHandler(printer)
        log.setLevel(level)


def show_versions() -> None:
    """Print the versions of everything that results depend on, with --verbose only."""
    detail(f"edgewise {version('edgewise')}, Python {platform.python_version()}, {platform.platform()}")
    detail(", ".join(f"{name} {version(name)}" for name in LIBRARIES))


def warn_of_few(n_examples: int) -> None:
    """Print a note if intervals come from few examples."""
    if n_examples < FEW_EXAMPLES:
        note(f"intervals from few examples ({n_examples}) are too narrow; use {FEW_EXAMPLES} or more")


def warn_of_copies(copies: int, rows: int, kind: str = "examples") -> None:
    """Print a note if examples repeat others."""
    if copies:
        note(f"{copies:,} of the {rows:,} {kind} are copies of others; intervals are too narrow")


def warn_of_trend(measure: str, ranking: Ranking) -> None:
    """Print a warning if the loss rose while learning."""
    trend = ranking.origin["trend"]
    if trend > DIVERGED:
        warn(
            f"warning: the loss for {measure} rose by {trend:.0%} while learning; try a smaller --learning-rate, or "
            "more steps"
        )


def print_json(data: Any) -> None:
    """Print data as JSON to stdout."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError as error:
        raise InputError(f"the result has a number that JSON can't represent: {error}") from None
    out.file.write(f"{text}\n")


@contextmanager
def open_engine(name: str, address: str | None, workers: int | None) -> Iterator[runtime.Engine]:
    """Open the engine that runs the work. What a cluster prints meanwhile goes to stderr."""
    if name == "local":
        with runtime.open_engine(name, address, workers) as engine:
            yield engine
        return
    with nullcontext() if is_quiet() else err.status("starting workers"):
        engine = runtime.open_engine(name, address, workers)
    stdout = out.file
    with engine, redirect_stdout(sys.stderr):
        out.file = stdout
        try:
            yield engine
        finally:
            out.file = None  # type: ignore[assignment]  # None follows sys.stdout


def open_model(source: models.ModelSource) -> models.Model:
    """Load a model, with a status line."""
    began = time.perf_counter()
    with nullcontext() if is_quiet() else err.status(safe_text(one_line(f"loading {source.name}"))):
        model = models.load_source(source)
    where = f"on {model.transformer.device_names}, {model.transformer.dtype}, {runtime.thread_count()} threads"
    detail(f"loaded {source.name} in {time.perf_counter() - began:.2f} s {where}: {model.graph}")
    return model


def show_forecast(forecast: recipes.Forecast, dry_run: bool, as_json: bool) -> bool:
    """Print a forecast: in full for a dry run, else in one line before a long run. Return `dry_run`."""
    if dry_run and as_json:
        print_json(forecast.record())
    elif dry_run:
        _show_forecast(forecast)
    elif forecast.is_long and not as_json:
        stages = ", ".join(
            f"{stage.name} {duration(stage.with_workers(forecast.workers))}" for stage in forecast.stages
        )
        explain(f"about {duration(forecast.seconds or 0)} ({stages}); --dry-run says more", "plan")
    return dry_run


def show_forecasts(forecasts: Sequence[recipes.Forecast], as_json: bool) -> None:
    """Print several forecasts in full, and their sum."""
    seconds = sum(forecast.seconds or 0 for forecast in forecasts)
    if as_json:
        print_json({"forecasts": [forecast.record() for forecast in forecasts], "seconds": seconds})
        return
    for forecast in forecasts:
        _show_forecast(forecast)
    if len(forecasts) > 1:
        say(f"in all: about {duration(seconds)}")


def _show_forecast(forecast: recipes.Forecast) -> None:
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
