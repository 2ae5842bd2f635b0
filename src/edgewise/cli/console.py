"""What the commands print with: results to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from logging import INFO, WARNING, Handler, LogRecord, getLogger
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import InputError
from ..report.formatting import one_line, safe_text
from ..runtime.progress import Progress, ignore_progress, progress_bars

if TYPE_CHECKING:
    from rich.table import Table

    from ..core.ranking import Ranking
    from ..models import Model, ModelSource
    from ..runtime.engine import Engine

# With fewer examples than this, a bootstrap over examples says little.
FEW = 10
# A loss that rises by more than this share diverges, rather than wavers.
DIVERGED = 0.5
LIBRARIES = ("numpy", "torch", "transformers", "highspy", "matplotlib", "typer", "rich")
# How a command ends whose output nobody reads any more, as rich and click end it.
BROKEN_PIPE = 1
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Loudness:
    """How much a command says beyond its results and what is wrong."""

    quiet: bool = False
    verbose: bool = False


NORMAL = Loudness()
LOUDNESS: ContextVar[Loudness] = ContextVar("LOUDNESS", default=NORMAL)


@contextmanager
def loudness(quiet: bool, verbose: bool) -> Iterator[None]:
    """What is printed within is as loud as asked for; what isn't asked for stays as it was."""
    if quiet and verbose:
        raise InputError("--quiet and --verbose ask for opposites; give one of them")
    before = LOUDNESS.get()
    token = LOUDNESS.set(Loudness(quiet or (before.quiet and not verbose), verbose or (before.verbose and not quiet)))
    try:
        yield
    finally:
        LOUDNESS.reset(token)


@contextmanager
def watching() -> Iterator[Progress]:
    """What verbs report their progress to: bars or lines on stderr, nothing with --quiet; with --verbose also how long
    every stage took, and how much it did at once."""
    loud = LOUDNESS.get()
    if loud.quiet:
        yield ignore_progress
        return
    with progress_bars() as shown:
        if not loud.verbose:
            yield shown
            return
        stages: dict[str, StageTime] = {}

        def update(stage: str, done: int, total: int) -> None:
            name, now = stage.partition(": ")[0], time.perf_counter()
            known = stages.get(name) or StageTime(0.0, now, done, 0)
            took = now - known.last if done else 0.0  # one that starts again wasn't at work meanwhile
            stages[name] = StageTime(known.seconds + took, now, done, max(known.most, done - known.done))
            shown(stage, done, total)

        yield update
    for name, stage in stages.items():
        detail(f"{name}: {stage.seconds:.2f} s, at most {stage.most:,} at once")


@dataclass(frozen=True)
class StageTime:
    """How long a stage took until it last reported, how much was done by then, and the most that was done in one go."""

    seconds: float
    last: float
    done: int
    most: int


@contextmanager
def printing() -> Iterator[None]:
    """Whatever is printed within has gone out at the end, what the terminal's encoding lacks spelled out.

    A pipe that nobody reads any more ends the command without a word, as it ends others.
    """
    sys.stdout = sys.stdout or io.StringIO()  # closed from the start: there is nobody to tell anything
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # else Python would, at its very end, and complain in its own words
    except BrokenPipeError:
        _hear_no_more()
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        _hear_no_more()
        print(f"error: the output can't be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _hear_no_more() -> None:
    """What is still held back goes nowhere."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a stream without a file behind it has nothing to lose
            try:
                stream.flush()
            except OSError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def check_words(words: Sequence[str]) -> None:
    """Refuse a command's words that aren't text: bytes that the locale's encoding doesn't know."""
    for number, word in enumerate(words, start=1):
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            encoding = sys.getfilesystemencoding()
            raise InputError(
                f"word {number} of the command, {one_line(word)}, isn't text in the encoding {encoding}; give names in "
                "UTF-8 (LANG=C.UTF-8 sets it)"
            ) from None


def say(text: str, heading: str = "") -> None:
    """A line for people, behind a bold heading if there is one; the terminal wraps it, a pipe doesn't."""
    if heading:
        out.print(safe_text(one_line(heading)), end=": ", style="bold", soft_wrap=True)
    out.print(safe_text(one_line(text)), soft_wrap=True)


def aside(text: str, heading: str = "") -> None:
    """A line that explains results, rather than being one; none with --quiet."""
    if not LOUDNESS.get().quiet:
        say(text, heading)


def print_tables(tables: Sequence[Table]) -> None:
    """Tables below each other, each with an empty line behind it."""
    for table in tables:
        out.print(table)
        out.print()


def warn(text: str) -> None:
    """A line for people that is no result."""
    err.print(safe_text(one_line(text)), soft_wrap=True)


def note(text: str) -> None:
    """A line that is good to know; none with --quiet."""
    if not LOUDNESS.get().quiet:
        warn(f"note: {text}")


def detail(text: str) -> None:
    """A line for a report of a bug; with --verbose only."""
    if LOUDNESS.get().verbose:
        warn(text)


@contextmanager
def telling() -> Iterator[None]:
    """What the library logs within is told: as a note what is good to know, and as a warning what went wrong."""
    log, teller = getLogger("edgewise"), _Teller()
    before = log.level
    log.addHandler(teller)
    log.setLevel(INFO)
    try:
        yield
    finally:
        log.removeHandler(teller)
        log.setLevel(before)


class _Teller(Handler):
    def emit(self, record: LogRecord) -> None:
        words = record.getMessage()
        warn(f"warning: {words}") if record.levelno >= WARNING else note(words)


def show_versions() -> None:
    """With --verbose, what the command runs on."""
    if LOUDNESS.get().verbose:
        import platform
        from importlib.metadata import version

        detail(f"edgewise {version('edgewise')}, Python {platform.python_version()}, {platform.platform()}")
        detail(", ".join(f"{name} {version(name)}" for name in LIBRARIES))


def warn_of_few(examples: int) -> None:
    """Say so where error bars come from next to no examples."""
    if examples < FEW:
        note(f"intervals from few examples ({examples}) are too narrow; they need about {FEW} or more")


def warn_of_copies(copies: int, rows: int, of: str = "examples") -> None:
    """Say so where error bars come from examples that repeat others."""
    if copies:
        note(f"{copies:,} of the {rows:,} {of} are copies of others; intervals are too narrow")


def warn_of_trend(goal: str, ranking: Ranking) -> None:
    """Say so where a loss rose rather than fell."""
    trend = ranking.origin["trend"]
    if trend > DIVERGED:
        warn(f"warning: the loss for {goal} rose by {trend:.0%} while learning; try a smaller --rate, or more steps")


def print_json(data: Any) -> None:
    """Data for machines, on stdout, alone."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError as error:
        raise InputError(f"the outcome has a number that JSON can't hold: {error}") from None
    out.file.write(f"{text}\n")


@contextmanager
def open_workers(engine: str, address: str | None, workers: int | None) -> Iterator[Engine]:
    """Where a command's work runs. What a cluster has to say meanwhile is no result, so that it goes to stderr."""
    from ..runtime import open_engine

    is_local = engine.lower() == "local"
    with nullcontext() if LOUDNESS.get().quiet or is_local else err.status("starting workers"):
        opened = open_engine(engine, address, workers)
    with opened, nullcontext() if is_local else _results_alone():
        yield opened


@contextmanager
def _results_alone() -> Iterator[None]:
    """Only what is printed here goes to stdout, whatever others print."""
    before = out.file
    with redirect_stdout(sys.stderr):
        out.file = before
        try:
            yield
        finally:
            out.file = None  # type: ignore[assignment]  # whatever stdout is


def open_model(source: ModelSource) -> Model:
    """Load a model, and show that it is being loaded."""
    began = time.perf_counter()
    with nullcontext() if LOUDNESS.get().quiet else err.status(safe_text(one_line(f"loading {source.name}"))):
        from ..models import load_source
        from ..runtime.engine import thread_count

        model = load_source(source)
    transformer = model.transformer
    where = f"on {transformer.device_names}, {transformer.dtype}, {thread_count()} threads"
    detail(f"loaded {source.name} in {time.perf_counter() - began:.2f} s {where}: {model.graph}")
    return model
