"""A plot of faithfulness by circuit size for the terminal, in braille dots or ASCII."""

from __future__ import annotations

from collections.abc import Sequence

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

    def height(value: float) -> int:
        return int((high - value) / (high - low) * (HEIGHT * tall - 1) + 0.5)

    fixed = {height(value) // tall: format_number(value, digits=DIGITS) for value in (0.0, 1.0) if low <= value <= high}
    ends = {height(value) // tall: format_number(value, digits=DIGITS) for value in (low, high)}
    guides = ends | fixed
    margin = max(map(len, guides.values()))
    columns = max(2, min(width - margin - 2, STEP * len(shares)))
    edge = columns // len(shares) // 2  # half a step to the left of the first and to the right of the last
    places = [edge + round(at * (columns - 1 - 2 * edge) / max(1, len(shares) - 1)) for at in range(len(shares))]
    points = {(place, height(value) // tall) for place, value in zip(places, values, strict=True)}
    dots = _line([place * wide for place in places], [height(value) for value in values])
    marks = "●┄┤│└─" if braille else "*-+|+-"
    lines = []
    for row in range(HEIGHT):
        guide = guides.get(row)
        empty = marks[1] if row in fixed else " "
        cells = [
            marks[0] if (column, row) in points else _cell(dots, column, row, tall, wide) or empty
            for column in range(columns)
        ]
        axis = marks[3] if guide is None else marks[2]
        lines.append(f"{guide or '':>{margin}} {axis}{''.join(cells)}".rstrip())
    lines.append(f"{'':>{margin}} {marks[4]}{marks[5] * columns}")
    lines.append(f"{'%':>{margin}}  {_labels(places, [format_percent(share) for share in shares], columns)}".rstrip())
    numbers = [format_number(value, digits=DIGITS) for value in values]
    if len(_labels(places, numbers, columns).split()) == len(numbers):
        lines.append(f"{'':>{margin}}  {_labels(places, numbers, columns)}".rstrip())
    return lines


def _line(places: Sequence[int], heights: Sequence[int]) -> set[tuple[int, int]]:
    """Return the dots (column, row) of a line through points, without gaps."""
    dots = {(places[0], heights[0])}
    for (x, y), (to_x, to_y) in zip(
        zip(places, heights, strict=True), zip(places[1:], heights[1:], strict=True), strict=False
    ):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            dots.add((x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)))
    return dots


def _cell(dots: set[tuple[int, int]], column: int, row: int, tall: int, wide: int) -> str:
    """Return the character of the dots at one place; empty if there are none."""
    if tall == 1:
        return "." if (column, row) in dots else ""
    bits = sum(DOTS[y][x] for y in range(tall) for x in range(wide) if (column * wide + x, row * tall + y) in dots)
    return chr(BASE + bits) if bits else ""


def _labels(places: Sequence[int], labels: Sequence[str], columns: int) -> str:
    """Centre labels at their places, leaving out those that would touch the previous one."""
    line = ""
    for place, label in zip(places, labels, strict=True):
        start = min(max(0, place - len(label) // 2), columns - len(label))
        if start > len(line) or (not line and start >= 0):
            line = line.ljust(start) + label
    return line
