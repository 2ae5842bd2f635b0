"""The entry point of the command. It handles signals before anything heavy is imported, so that Ctrl-C always works."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from threading import Timer
from types import FrameType
from typing import NoReturn

# Commands that resume stopped work: always, or if they have --out.
RESUMABLE = ("run", "score", "learn", "study")
RESUMABLE_WITH_OUT = ("evaluate", "knock-out", "verify")
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_received: list[signal.Signals] = []


def main() -> None:
    """Run the command line. A stop signal prints one line and exits with 128 plus its number (130 for Ctrl-C)."""
    for name in STOP_SIGNALS:
        number = getattr(signal, name, None)
        # Keep ignoring signals that the parent process ignores, as with nohup.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    try:
        os.getcwd()
    except FileNotFoundError:  # libraries would end the process with messages of their own
        print("error: the current folder was deleted; change to one that exists", file=sys.stderr)
        sys.exit(2)
    try:
        from .cli import main as run_command

        run_command()
    except BaseException as error:  # libraries may turn the interruption into another exception
        has_finished = isinstance(error, SystemExit) and not error.code
        if _received and not has_finished:
            _exit()
        raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that the work cleans up. On a second signal, exit at once."""
    if _received:
        _exit()
    _received.append(signal.Signals(number))
    raise KeyboardInterrupt


def is_resumable(arguments: Sequence[str]) -> bool:
    """Whether the command with these arguments can resume after a stop."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    has_output = any(argument.startswith("--out") for argument in arguments)
    return command in RESUMABLE or (command in RESUMABLE_WITH_OUT and has_output)


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send the signal again if it came where exceptions are dropped, such as in a destructor."""
    if _received and issubclass(unraisable.exc_type, KeyboardInterrupt):
        Timer(0.05, os.kill, (os.getpid(), _received.pop())).start()  # after the destructor has ended
    else:
        sys.__unraisablehook__(unraisable)


def _exit() -> NoReturn:
    try:
        sys.stdout.flush()
        advice = "; run the same command again to resume" if is_resumable(sys.argv[1:]) else ""
        print(f"stopped{advice}", file=sys.stderr, flush=True)
    except OSError:
        pass
    os._exit(128 + _received[0])  # an orderly exit can fail while libraries are half imported


if __name__ == "__main__":
    main()
