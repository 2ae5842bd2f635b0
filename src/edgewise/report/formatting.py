"""Text for tables, figures and pages: numbers in one notation, and names from untrusted files made harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from ..errors import visible
from ..models.model_files import UNTRAINED
from ..tasks.known import PREFIX

DIGITS = 4
# From here on, numbers are written with an exponent.
MAX_FIXED = 1e6
# Smaller differences are rounding errors, and written as 0.
ROUNDING = 1e-9
MINUS = "\N{MINUS SIGN}"
MAX_FIGURE_TEXT, MAX_CODE = 30, 200


def format_number(value: float, signed: bool = False, digits: int = DIGITS) -> str:
    """Return a number with `digits` decimals; from MAX_FIXED on, `digits` significant digits and an exponent.

    It is never -0.0000. `signed` puts a plus before numbers that aren't negative.
    """
    kind = "f" if abs(value) < MAX_FIXED else "g"
    return f"{round(value, digits) + 0.0:{'+' * signed}.{digits}{kind}}"


def format_interval(low: float, high: float, signed: bool = False, digits: int = DIGITS) -> str:
    """Return an interval: `[low, high]`.

    With `signed`, an end that would be rounded to 0 has one significant digit, so that it shows on which side of 0 it
    lies.
    """
    ends = [
        f"{end:+.0e}" if signed and ROUNDING < abs(end) < 0.5 * 10**-digits else format_number(end, signed, digits)
        for end in (low, high)
    ]
    return f"[{ends[0]}, {ends[1]}]"


def format_score(score: float, signed: bool = True) -> str:
    """Return a score, of any magnitude, with three digits."""
    return f"{score:{'+' * signed}#.3g}".rstrip(".") if score else "0"


def format_percent(share: float, digits: int = 6) -> str:
    """Return a share in percent, without the percent sign: 0.1, 5, 100."""
    return f"{100 * share:.{digits}g}"


def with_minus_signs(text: str) -> str:
    """Replace hyphens by minus signs, for numbers that people read."""
    return text.replace("-", MINUS)


def safe_text(value: object) -> Text:
    """Return text for rich without markup, emoji codes or control characters."""
    return Text(visible(str(value)))


def one_line(value: object) -> str:
    r"""Return text without control characters, line breaks as `\n`."""
    return visible(str(value)).replace("\n", r"\n")


def shorten(value: object, longest: int = MAX_FIGURE_TEXT) -> str:
    """Return text in one line for a figure, cut in the middle if it is long."""
    line = one_line(value)
    half = (longest - 1) // 2
    return line if len(line) <= longest else f"{line[:half]}…{line[-half:]}"


def markdown_code(value: object, longest: int = MAX_CODE) -> str:
    """Return text as inline code of a Markdown page: one line in which no character has a special meaning."""
    line = shorten(value, longest).strip() or "(empty)"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " * (line.startswith("`") or line.endswith("`"))
    return f"{fence}{space}{line}{space}{fence}"


def markdown_cell(text: str) -> str:
    """Escape text for a Markdown table: a bar would end a cell, and < would begin HTML."""
    return one_line(text).replace("<", "&lt;").replace("|", r"\|")


def short_name(name: str) -> str:
    """Return a model's or a task's name without its path, its owner or the location of its copy.

    Names of embedded models and MIB's tasks stay whole, so that they can be given to a command again.
    """
    if name.startswith(UNTRAINED):
        return f"{UNTRAINED}{short_name(name.removeprefix(UNTRAINED))}"
    known, equals, _ = name.partition("=")
    return known if equals or name.startswith(("mib/", PREFIX)) else Path(name).name


def describe_method(record: Any) -> str:
    """Return the method that a record describes, with its parameters in one line: `eap-ig (steps 5)`."""
    if not isinstance(record, Mapping):
        return str(record)
    parameters = ", ".join(f"{name} {value}" for name, value in record.items() if name != "name")
    return f"{record['name']} ({parameters})" if parameters else str(record["name"])
