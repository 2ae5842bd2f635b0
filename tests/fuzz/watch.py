"""A reader reads an input under watch: time, memory and what comes out are limited here, not by trust."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import edgewise
from edgewise import InputError

from .inputs import ACCEPT, REFUSE, Input

SECONDS = 2.0  # of computing
DRAWING = 4.0  # of computing more, for who also draws all figures
PATIENCE = 60.0  # by the clock, which runs on while other processes compute
MEMORY = 500 * 2**20
# What a hostile file sets if its code runs.
RAN = "EDGEWISE_FUZZ_CODE_RAN"
SHOWN = 2000


class TooLongError(BaseException):
    """The time is up. Not an `Exception`, so that no reader takes it for a fault of the file."""


class FailedError(AssertionError):
    """A reader did what it mustn't; `signature` tells one such failure from another."""

    def __init__(self, words: str, signature: str) -> None:
        super().__init__(words)
        self.signature = signature


@dataclass(frozen=True)
class Seen:
    """What was seen of one reading: `seconds` of computing, `memory` beyond what the process held before, in bytes."""

    accepted: bool
    seconds: float
    memory: int


def watch(read: Callable[[Path, Input], Any], given: Input, folder: Path) -> Seen:
    """Write an input into a folder, read it, and say what happened; raises `FailedError` for what mustn't happen.

    The folder is gone afterwards, unless the process died.
    """
    given.write(folder)
    os.environ.pop(RAN, None)
    error: BaseException | None = None
    before = time.process_time()
    held = _prepare_memory()
    try:
        with _limited(_allowed(given)), _stdin():
            read(folder, given)
    except (Exception, TooLongError, SystemExit, KeyboardInterrupt) as raised:
        error = raised
    seconds = time.process_time() - before
    memory = max(0, _status("VmHWM") - held)
    try:
        _judge(given, error, seconds, memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Seen(error is None, seconds, memory)


def _judge(given: Input, error: BaseException | None, seconds: float, memory: int) -> None:
    def failed(what: str, where: str = "") -> FailedError:
        shown = "" if error is None else "".join(traceback.format_exception(error))
        return FailedError(f"{what}\n  {given.words}\n{shown[-SHOWN * 3 :]}", f"{what.split(':')[0]} {where}".strip())

    if os.environ.get(RAN):
        raise failed("code of the file was run")
    if isinstance(error, TooLongError):
        raise failed("too long", place(error))
    if error is not None and _lacked_memory(error):
        raise failed("too much memory", place(error))
    if isinstance(error, FailedError):
        raise failed(f"wrong: {error}", error.signature)
    if error is not None and not isinstance(error, InputError):
        raise failed(f"{type(error).__name__}: {str(error)[:SHOWN]}", place(error))
    if seconds > _allowed(given):
        raise failed(f"too long: {seconds:.1f} s of computing")
    if memory > MEMORY:
        raise failed(f"too much memory: {memory / 2**20:,.0f} MB")
    if error is None and given.verdict == REFUSE:
        raise failed("accepted: a strict reader refuses this", given.words.split(":")[0])
    if error is not None and given.verdict == ACCEPT:
        raise failed("refused: this is a valid file", str(error)[:80])


def place(error: BaseException) -> str:
    """Where an error was raised: the last line of the package's own, and the last of all but these here."""
    here, package = str(Path(__file__).parent), str(Path(edgewise.__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(here)]
    own = [frame for frame in frames if frame.filename.startswith(package)]
    return " ".join(dict.fromkeys(f"{Path(one.filename).name}:{one.lineno}" for one in (*own[-1:], *frames[-1:])))


def _lacked_memory(error: BaseException) -> bool:
    """Whether a reader ran into the limit, even if it turned that into words."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        words = str(one)
        if isinstance(one, MemoryError) or "can't allocate memory" in words or "Cannot allocate memory" in words:
            return True
        one = one.__cause__ or one.__context__
    return False


def _allowed(given: Input) -> float:
    """How many seconds of computing an input may take."""
    return SECONDS + DRAWING * given.draws


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """At most so many seconds of computing, `PATIENCE` by the clock and `MEMORY` beyond what is in use."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds * 1.5)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _stdin() -> Iterator[None]:
    """Whoever asks is told yes: code that runs only if the user agrees runs here, and is seen."""
    before = sys.stdin
    sys.stdin = StringIO("y\n" * 20)
    try:
        yield
    finally:
        sys.stdin = before


def _prepare_memory() -> int:
    """Let the kernel measure the highest use from now on; gives the present one, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))
