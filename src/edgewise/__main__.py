"""The command's door. It is open before anything heavy is imported, so that a stop is always told in a line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from threading import Timer
from types import FrameType
from typing import NoReturn

# These go on from where they were stopped; evaluate does, too, if it was told where to write.
RESUMING = ("run", "score", "study")
STOPS = ("SIGINT", "SIGTERM", "SIGHUP")
_received: list[signal.Signals] = []


def main() -> None:
    """Run the command line. A signal to stop ends in a line and in exit code 128 and its number: 130 for Ctrl-C."""
    for name in STOPS:
        number = getattr(signal, name, None)
        # What was told to ignore a signal, as nohup does, goes on ignoring it.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.unraisablehook = _again
    try:
        from .cli import main as run_command

        run_command()
    except SystemExit as end:
        if _received and end.code:
            _end()
        raise
    except BaseException:  # whatever an interrupted library made of the interruption
        if _received:
            _end()
        raise


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt the work, so that it tidies up; a second signal doesn't wait for that."""
    if _received:
        _end()
    _received.append(signal.Signals(number))
    raise KeyboardInterrupt


def resumes(words: Sequence[str]) -> bool:
    """Whether the command of these words goes on from where it was stopped."""
    kept = words[:1] == ["evaluate"] and any(word.startswith("--out") for word in words)
    return kept or words[:1] in [[name] for name in RESUMING]


def _again(what: sys.UnraisableHookArgs) -> None:
    """Interrupt once more where the interruption came in a place that lets nothing out, such as a destructor."""
    if _received and issubclass(what.exc_type, KeyboardInterrupt):
        Timer(0.05, os.kill, (os.getpid(), _received.pop())).start()  # by then, something else is going on
    else:
        sys.__unraisablehook__(what)


def _end() -> NoReturn:
    try:
        sys.stdout.flush()
        print("stopped" + "; the same command goes on" * resumes(sys.argv[1:]), file=sys.stderr, flush=True)
    except OSError:
        pass
    os._exit(128 + _received[0])  # half-imported libraries may not survive an orderly end


if __name__ == "__main__":
    main()
