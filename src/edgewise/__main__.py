"""The command's door. It is open before anything heavy is imported, so that a stop is always told in a line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

# These go on from where they were stopped; evaluate does, too, if it was told where to write.
RESUMING = ("run", "score", "study")
STOPS = ("SIGINT", "SIGTERM", "SIGHUP")
_received: list[int] = []


def main() -> None:
    """Run the command line. A signal to stop ends in a line and in exit code 128 and its number: 130 for Ctrl-C."""
    for name in STOPS:
        number = getattr(signal, name, None)
        # What was told to ignore a signal, as nohup does, goes on ignoring it.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        from .cli import main as run_command

        run_command()
    except BaseException:  # whatever an interrupted library made of the interruption
        if _received:
            _end()
        raise
    if _received:
        _end()


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt the work, so that it tidies up; a second signal doesn't wait for that."""
    if _received:
        _end()
    _received.append(number)
    raise KeyboardInterrupt


def goes_on(words: Sequence[str]) -> bool:
    """Whether the command of these words goes on from where it was stopped."""
    kept = words[:1] == ["evaluate"] and any(word.startswith("--out") for word in words)
    return kept or words[:1] in [[name] for name in RESUMING]


def _end() -> NoReturn:
    try:
        sys.stdout.flush()
        print("stopped" + "; the same command goes on" * goes_on(sys.argv[1:]), file=sys.stderr, flush=True)
    except OSError:
        pass
    os._exit(128 + _received[0])  # half-imported libraries may not survive an orderly end


if __name__ == "__main__":
    main()
