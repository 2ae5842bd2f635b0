"""Printing for the commands: results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from contextvars import ContextVar
from importlib.metadata import version
from logging import INFO, WARNING, Handler, LogRecord, getLogger
from threading import Event, Thread, current_thread
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.table import Table

from .. import models, runtime
from ..errors import EdgewiseWarning, InputError, SwappedWarning
from ..report.formatting import one_line, safe_text
from ..report.tables import number_tables
from ..runtime.progress import ignore_progress, progress_bars

if TYPE_CHECKING:
    from ..recipes.forecast import Forecast, Work

LIBRARIES = ("numpy", "torch", "transformers", "highspy", "matplotlib", "typer", "rich")
# The exit code after a broken pipe, as in rich and click.
BROKEN_PIPE = 1
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# How much a command prints beside its results.
QUIET, NORMAL, VERBOSE = range(3)
_verbosity = ContextVar("verbosity", default=NORMAL)


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


def is_quiet() -> bool:
    """Whether only results are printed."""
    return _verbosity.get() == QUIET


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
    except OSError as error:
        is_pipe = isinstance(error, BrokenPipeError)
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr) if is_pipe else (sys.stdout,):
            with suppress(OSError, ValueError):  # a stream without a file has nothing to discard
                os.dup2(null, stream.fileno())
        if is_pipe:
            sys.exit(BROKEN_PIPE)
        print(f"error: the output can't be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


class _WithoutRay:
    """A stream without what Ray's own threads print, such as the log of a process that was killed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if current_thread().name.startswith("ray_") else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redirect_prints() -> Iterator[None]:
    """Redirect libraries' stdout to stderr. Results still go to stdout."""
    out.file = out.file  # keep the present stdout: rich would follow the redirection
    try:
        with redirect_stdout(cast(TextIO, _WithoutRay(sys.stderr))):
            yield
    finally:
        out.file = None  # type: ignore[assignment]  # None follows sys.stdout


@contextmanager
def watch_ray(engine: runtime.Engine) -> Iterator[None]:
    """Exit with one line if a process of a Ray cluster that was started here is killed.

    Ray itself would end this process after seconds, with many lines. These are written to the file descriptor of
    stderr, which leads nowhere meanwhile, except with --verbose.
    """
    watch = getattr(engine, "watch", None)
    if watch is None:
        yield
        return
    finished, stderr, own_stderr = Event(), os.dup(2), sys.stderr

    def end(name: str) -> None:
        advice = "a command with --out resumes when you run it again"
        os.write(stderr, f"error: Ray's process {name} was killed, maybe for want of memory; {advice}\n".encode())
        os._exit(2)

    thread = Thread(target=watch, args=(end, finished), daemon=True)
    thread.start()
    try:
        if _verbosity.get() != VERBOSE:
            with suppress(OSError, ValueError):  # a stream without a file stays as it is
                if sys.stderr.fileno() == 2:
                    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
        yield
    finally:
        finished.set()
        thread.join()
        if sys.stderr is not own_stderr:
            sys.stderr.close()
            sys.stderr = own_stderr
        os.dup2(stderr, 2)
        os.close(stderr)


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


def print_json(data: Any) -> None:
    """Print data as JSON to stdout."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError as error:
        raise InputError(f"the result has a number that JSON can't represent: {error}") from None
    out.file.write(f"{text}\n")


def print_error_line(text: str) -> None:
    """Print one line to stderr."""
    err.print(safe_text(one_line(text)), soft_wrap=True)


def note(text: str) -> None:
    """Print a note to stderr; nothing with --quiet."""
    if not is_quiet():
        print_error_line(f"note: {text}")


def detail(text: str) -> None:
    """Print a line for bug reports to stderr, with --verbose only."""
    if _verbosity.get() == VERBOSE:
        print_error_line(text)


def status(text: str) -> AbstractContextManager[object]:
    """Return a context that shows a status line in a terminal; nothing with --quiet."""
    return nullcontext() if is_quiet() else err.status(safe_text(one_line(text)))


@contextmanager
def show_progress(session: runtime.Session) -> Iterator[runtime.Session]:
    """Return the session with progress on stderr; nothing with --quiet."""
    with nullcontext(ignore_progress) if is_quiet() else progress_bars() as progress:
        yield session.with_progress(progress)


class _LogPrinter(Handler):
    def emit(self, record: LogRecord) -> None:
        message = record.getMessage()
        print_error_line(f"warning: {message}") if record.levelno >= WARNING else note(message)


@contextmanager
def print_log() -> Iterator[None]:
    """Print what the library logs: information as notes, problems as warnings. Print each of its warnings once."""
    log, printer = getLogger("edgewise"), _LogPrinter()
    level = log.level
    log.addHandler(printer)
    log.setLevel(INFO)
    printed: set[str] = set()
    try:
        with warnings.catch_warnings():
            show_other = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
                if not issubclass(category, EdgewiseWarning):
                    show_other(message, category, *place, **more)
                elif not {str(message), category.__name__} & printed:
                    printed.update([str(message)] + [SwappedWarning.__name__] * issubclass(category, SwappedWarning))
                    print_error_line(f"warning: {message}")

            warnings.simplefilter("always", EdgewiseWarning)
            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(printer)
        log.setLevel(level)


def show_versions() -> None:
    """Print the versions of everything that results depend on, with --verbose only."""
    detail(f"edgewise {version('edgewise')}, Python {platform.python_version()}, {platform.platform()}")
    detail(", ".join(f"{name} {version(name)}" for name in LIBRARIES))


def show_forecast(
    model: models.Model, work: Sequence[Work], session: runtime.Session, dry_run: bool, as_json: bool, has_result: bool
) -> bool:
    """Print the expected cost of work: in full for a dry run, else in one line if it is long. Return `dry_run`.

    If the result is there already (`has_result`), only a dry run has a cost to print.
    """
    from ..recipes.forecast import forecast

    if has_result and not dry_run:
        return False
    plan = forecast(model, work, session.engine, exact=dry_run)
    if dry_run and as_json:
        print_json(plan.record())
    elif dry_run:
        print_forecast(plan)
    elif plan.is_long and not as_json:
        stages = ", ".join(f"{stage.name} {duration(stage.with_workers(plan.workers))}" for stage in plan.stages)
        explain(f"about {duration(plan.seconds or 0)} ({stages}); --dry-run says more", "plan")
    return dry_run


def print_forecast(forecast: Forecast) -> None:
    """Print the expected cost of a dry run in full."""
    heads = ("stage", "examples", "tokens", "batches of", "times", "memory", "about")
    rows = [
        (
            f"{stage.name} {stage.task}", f"{stage.examples:,}", stage.length or "",
            f"{stage.batches:,} x {stage.batch_size}" if stage.batches else "", f"{stage.passes:,}",
            amount(stage.need) if stage.need else "", duration(stage.with_workers(forecast.workers)),
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
    say(f"time: about {duration(forecast.seconds or 0)}{workers}, from a first batch; loading and writing come on top")
    explain("nothing was written: this was --dry-run")


def amount(n_bytes: float) -> str:
    """Return a number of bytes as text with a unit."""
    if n_bytes < 1e5:
        return f"{n_bytes / 1e3:.1f} kB"
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Return a duration as text with a unit."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 5 else "5 s or less"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
