"""Numbers as all tables have them: one notation for differences, for intervals and for scores."""

from __future__ import annotations

DIGITS = 4


def number(value: float, signed: bool = False, digits: int = DIGITS) -> str:
    """A number with a fixed number of digits, with a plus in front if it is a difference; nothing is -0.0000."""
    return f"{round(value, digits) + 0.0:{'+' * signed}.{digits}f}"


def interval(low: float, high: float, signed: bool = False, digits: int = DIGITS) -> str:
    """An interval: `[low, high]`."""
    return f"[{number(low, signed, digits)}, {number(high, signed, digits)}]"


def score_text(score: float, signed: bool = True) -> str:
    """A score, which may be of any magnitude, with three digits."""
    return f"{score:{'+' * signed}#.3g}".rstrip(".") if score else "0"


def percent(share: float) -> str:
    """A share of the edges in percent, without the sign: 0.1, 5, 100."""
    return f"{100 * share:.6g}"
