"""Read an input with limits on time and memory, and judge the outcome."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

from edgewise import InputError

from .inputs import ACCEPT, REFUSE, Input

SECONDS = 2.0  # of computing
DRAWING = 4.0  # of computing more, for an input that also draws all figures
PATIENCE = 120.0  # by the clock, which runs on while other processes compute
MEMORY = 500 * 2**20
# Hostile code sets this variable if it runs.
RAN = "EDGEWISE_FUZZ_CODE_RAN"
MAX_SHOWN = 2000


class TooLongError(BaseException):
    """The time is up. Not an `Exception`, so that no reader takes it for an error of the file."""


class FailedError(AssertionError):
    """A reader broke a promise."""


def watch(read: Callable[[Path, Input], Any], given: Input, folder: Path) -> bool:
    """Write an input into a folder, read it, and return whether it was accepted.

    If a promise is broken, raise FailedError and keep the folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    given.write(folder)
    os.environ.pop(RAN, None)
    allowed = SECONDS + DRAWING * given.draws
    error: BaseException | None = None
    before = time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # restarts the measurement of the highest use of memory
    held = _status("VmRSS")
    try:
        with _limited(allowed):
            read(folder, given)
    except (Exception, TooLongError, SystemExit, KeyboardInterrupt) as raised:
        error = raised
    seconds = time.process_time() - before
    memory = max(0, _status("VmHWM") - held)
    if failure := _find_failure(given, error, seconds > allowed, memory):
        raise FailedError(f"{failure}\n  {given.words}\n  files: {folder}") from error
    shutil.rmtree(folder, ignore_errors=True)
    return error is None


def _find_failure(given: Input, error: BaseException | None, is_late: bool, memory: int) -> str:
    """Return what went wrong; nothing if the reader kept its promises."""
    if os.environ.get(RAN):
        return "code of the file was run"
    if isinstance(error, TooLongError):
        return "too long"
    if _lacked_memory(error):
        return "too much memory"
    if error is not None and not isinstance(error, InputError):
        return f"{type(error).__name__}: {str(error)[:MAX_SHOWN]}"
    if is_late:
        return "too long"
    if memory > MEMORY:
        return f"too much memory: {memory / 2**20:,.0f} MB"
    if error is None and given.verdict == REFUSE:
        return "accepted: a strict reader refuses this"
    if error is not None and given.verdict == ACCEPT:
        return f"refused: this is a valid file: {error}"
    return ""


def _lacked_memory(error: BaseException | None) -> bool:
    """Return whether a reader ran into the limit, even if it raised another error then."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Limit computing, the clock and memory; answer every question at the prompt with yes."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds * 1.5)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    stdin, sys.stdin = sys.stdin, StringIO("y\n" * 20)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdin = stdin
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _status(name: str) -> int:
    """Return a number of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))
