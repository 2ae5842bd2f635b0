"""Words from outside, such as the names in a stranger's files, as terminals, pages and figures may show them."""

from __future__ import annotations

from rich.text import Text

from ..errors import visible

LONGEST_DRAWN = 60


def shown(words: object) -> Text:
    """Words for rich, as they are: no markup, no emoji codes, and nothing that steers the terminal."""
    return Text(visible(str(words)))


def one_line(words: object) -> str:
    """Words without anything that steers a terminal, not even to its next line."""
    return visible(str(words)).replace("\n", r"\n")


def drawn(words: object, longest: int = LONGEST_DRAWN) -> str:
    """Words for a figure: one line, cut in the middle if it is very long."""
    line = one_line(words)
    half = (longest - 1) // 2
    return line if len(line) <= longest else f"{line[:half]}…{line[-half:]}"
