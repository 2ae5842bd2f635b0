"""Numbers as all tables and figures have them: one notation for differences, for intervals and for scores."""

from __future__ import annotations

DIGITS = 4
HUGE = 1e6
MINUS = "\N{MINUS SIGN}"


def number(value: float, signed: bool = False, digits: int = DIGITS) -> str:
    """A number with a fixed number of digits, with a plus in front if it is a difference; nothing is -0.0000, and what
    is huge is short."""
    kind = "f" if abs(value) < HUGE else "g"
    return f"{round(value, digits) + 0.0:{'+' * signed}.{digits}{kind}}"


def interval(low: float, high: float, signed: bool = False, digits: int = DIGITS) -> str:
    """An interval: `[low, high]`."""
    return f"[{number(low, signed, digits)}, {number(high, signed, digits)}]"


def score_text(score: float, signed: bool = True) -> str:
    """A score, which may be of any magnitude, with three digits."""
    return f"{score:{'+' * signed}#.3g}".rstrip(".") if score else "0"


def percent(share: float, digits: int = 6) -> str:
    """A share in percent, without the sign: 0.1, 5, 100; of more digits the first."""
    return f"{100 * share:.{digits}g}"


def minus(text: str) -> str:
    """Numbers with true minus signs, for what is printed or drawn rather than read by machines."""
    return text.replace("-", MINUS)
