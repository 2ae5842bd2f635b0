"""The error that a user can cause, the warning, and their texts."""

from __future__ import annotations

import contextlib
import difflib
import sys
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

MAX_DETAILS = 20
MAX_CHARACTERS = 2000


class InputError(ValueError):
    """Something that the user gave can't be used. The message says what was given, what was expected, what to do.

    The command line prints it in one line and exits with code 2.

    details  further lines, such as wrong rows of a file. The first twenty are shown.
    more     how many further details there are that aren't listed
    """

    def __init__(self, message: str, details: Sequence[str] = (), more: int = 0) -> None:
        self.message, self.details = _shorten(message), tuple(map(_shorten, details[:MAX_DETAILS]))
        more += len(details) - len(self.details)
        rest = [f"and {more:,} more"] if more else []
        super().__init__("\n  ".join([self.message, *self.details, *rest]))


class EdgewiseWarning(UserWarning):
    """A result will be computed, but it probably doesn't mean what the user expects. The message says what to do.

    The command line prints each message once.
    """


class SwappedWarning(EdgewiseWarning):
    """Correct and incorrect answers, or clean and corrupted prompts, may be swapped.

    Several stages notice it. The command line prints the first of these warnings only.
    """


def warn(message: str, category: type[EdgewiseWarning] = EdgewiseWarning) -> None:
    """Issue a warning at the line outside this package that led to it."""
    # Context managers that decorate functions of the package add frames of contextlib.
    inside, frame, level = (f"{Path(__file__).parent}/", contextlib.__file__), sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(_shorten(message), category, stacklevel=level)


def _shorten(text: str) -> str:
    """Remove the middle of a text that an untrusted file made very long."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS // 2]} ... {text[-MAX_CHARACTERS // 4 :]}"


def unknown_name(kind: str, name: str, known: Sequence[str]) -> InputError:
    """Return the error for a name that isn't among the known ones. It lists the choices, and names the nearest."""
    return InputError(f"unknown {kind} {name!r}; choose one of: {', '.join(known)}{did_you_mean(name, known)}")


def check_number(name: str, value: Any, whole: bool = False) -> None:
    """Raise InputError if a parameter is no number, such as text."""
    if not isinstance(value, Integral if whole else Real):
        raise InputError(f"{name} must be a {'whole ' * whole}number, not {value!r}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the known name nearest to `name`; "" if none is near."""
    by_lower = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(name[:MAX_CHARACTERS].lower(), by_lower, n=1)
    return f"; did you mean {by_lower[nearest[0]]!r}?" if nearest else ""


def visible(text: str) -> str:
    """Return text with its control characters escaped, so that a terminal can show text of an untrusted file."""
    return "".join(
        mark if mark == "\n" or mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text
    )
