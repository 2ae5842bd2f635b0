"""Words from outside, such as the names in a stranger's files, as terminals, pages and figures may show them."""

from __future__ import annotations

import re

from rich.text import Text

from ..errors import visible

LONGEST_DRAWN, LONGEST_CODE = 60, 200


def shown(words: object) -> Text:
    """Words for rich, as they are: no markup, no emoji codes, and nothing that steers the terminal."""
    return Text(visible(str(words)))


def one_line(words: object) -> str:
    """Words without anything that steers a terminal, not even to its next line."""
    return visible(str(words)).replace("\n", r"\n")


def code(words: object, longest: int = LONGEST_CODE) -> str:
    """Words for a Markdown page, as code: one line, in which no mark means anything; cut if it is very long."""
    line = drawn(words, longest).strip() or "(empty)"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " * (line.startswith("`") or line.endswith("`"))
    return f"{fence}{space}{line}{space}{fence}"


def drawn(words: object, longest: int = LONGEST_DRAWN) -> str:
    """Words for a figure: one line, cut in the middle if it is very long."""
    line = one_line(words)
    half = (longest - 1) // 2
    return line if len(line) <= longest else f"{line[:half]}…{line[-half:]}"
