"""What goes wrong, in words: every error that a user can cause is a `ValueError` that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 20
LONGEST = 2000


class InputError(ValueError):
    """Something that was given can't be used. The message says what was given, what was expected, what to do.

    The command line prints it as one line and exits with code 2; `details`, such as rows of a file that can't be used,
    follow on lines of their own: the first twenty, and how many there are `more`.
    """

    def __init__(self, message: str, details: Sequence[str] = (), more: int = 0) -> None:
        self.message, self.details = _shortened(message), tuple(map(_shortened, details[:SHOWN]))
        more += len(details) - len(self.details)
        rest = [f"and {more:,} more"] if more else []
        super().__init__("\n  ".join([self.message, *self.details, *rest]))


def _shortened(words: str) -> str:
    """Words without their middle if a stranger's file made them endless."""
    return words if len(words) <= LONGEST else f"{words[: LONGEST // 2]} ... {words[-LONGEST // 4 :]}"


def unknown_name(kind: str, name: str, known: Sequence[str]) -> InputError:
    """The error for a `name` that isn't among the `known` ones: it lists the choices."""
    return InputError(f"unknown {kind} {name!r}; choose one of: {', '.join(known)}")


def visible(text: str) -> str:
    """Text from a stranger's file as a terminal may show it: what would steer the terminal is spelled out."""
    return "".join(mark if mark == "\n" or mark.isprintable() else _spelled(mark) for mark in text)


def _spelled(mark: str) -> str:
    return mark.encode("unicode_escape").decode("ascii")
