"""A plot of faithfulness by circuit size for the terminal, in braille dots or ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .formatting import format_number, format_percent

HEIGHT = 8
# Columns of the terminal per size, if there is room.
STEP = 7
DIGITS = 2
# Dots of a braille character: [row][column], as bits above its base.
BASE, DOTS = 0x2800, ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def can_show(encoding: str) -> bool:
    """Return whether an encoding has the characters of a braille plot."""
    try:
        f"{chr(BASE)}●┄┤└─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def curve_lines(shares: Sequence[float], values: Sequence[float], width: int, braille: bool = True) -> list[str]:
    """Plot values by share of the edges, in lines of at most `width` characters.

    Sizes are evenly spaced. Lines at 0 and 1 guide the eye. Below the sizes are the values, if there is room.
    """
    low, high = min(values), max(values)
    if high - low < 10**-DIGITS:
        low, high = low - 0.5, high + 0.5
    tall, wide = (len(DOTS), len(DOTS[0])) if braille else (1, 1)

    def row_of(value: float) -> int:
        """Return the row of dots, counted from the top."""
        return int((high - value) / (high - low) * (HEIGHT * tall - 1) + 0.5)

    fixed = {row_of(value) // tall: format_number(value, digits=DIGITS) for value in (0.0, 1.0) if low <= value <= high}
    guides = {row_of(value) // tall: format_number(value, digits=DIGITS) for value in (low, high)} | fixed
    margin = max(map(len, guides.values()))
    columns = max(2, min(width - margin - 2, STEP * len(shares)))
    edge = columns // len(shares) // 2  # half a step to the left of the first and to the right of the last
    places = [edge + round(at * (columns - 1 - 2 * edge) / max(1, len(shares) - 1)) for at in range(len(shares))]
    points = [(place * wide, row_of(value)) for place, value in zip(places, values, strict=True)]
    dots = set(points)  # of a line through the points without gaps, as (column, row)
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        dots |= {(x + round((to_x - x) * n / steps), y + round((to_y - y) * n / steps)) for n in range(steps + 1)}
    marks = "●┄┤│└─" if braille else "*-+|+-"
    cells = {(x // wide, y // tall): 0 for x, y in dots}
    for x, y in dots:
        cells[x // wide, y // tall] |= DOTS[y % tall][x % wide]
    drawn = {cell: chr(BASE + bits) if braille else "." for cell, bits in cells.items()}
    drawn |= {(x // wide, y // tall): marks[0] for x, y in points}
    lines = []
    for row in range(HEIGHT):
        empty, axis = marks[1] if row in fixed else " ", marks[2] if row in guides else marks[3]
        line = "".join(drawn.get((column, row), empty) for column in range(columns))
        lines.append(f"{guides.get(row, ''):>{margin}} {axis}{line}".rstrip())
    lines.append(f"{'':>{margin}} {marks[4]}{marks[5] * columns}")
    lines.append(f"{'%':>{margin}}  {_labels(places, [format_percent(share) for share in shares], columns)}".rstrip())
    numbers = _labels(places, [format_number(value, digits=DIGITS) for value in values], columns)
    return [*lines, f"{'':>{margin}}  {numbers}".rstrip()] if len(numbers.split()) == len(values) else lines


def _labels(places: Sequence[int], labels: Sequence[str], columns: int) -> str:
    """Centre labels at their places, leaving out those that would touch the previous one."""
    line = ""
    for place, label in zip(places, labels, strict=True):
        start = min(max(0, place - len(label) // 2), columns - len(label))
        if start > len(line) or (not line and start >= 0):
            line = line.ljust(start) + label
    return line
