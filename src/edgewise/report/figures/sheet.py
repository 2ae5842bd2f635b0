"""The sheet that a figure is drawn on: places in inches, text as it is, and the same bytes every time.

Places are worked out here, from the widths of texts, rather than by matplotlib's solver, which takes most of a second
per figure and may put a legend on a curve.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from ..formatting import format_percent, with_minus_signs

DPI = 160
KINDS = ("png", "svg")
# Font sizes in points.
SMALL, NORMAL, LARGE = 7.0, 8.0, 11.0
INK, FAINT, PALE = "#1a1a1a", "#6b6b6b", "#d4d4d4"
# In inches: around the sheet, and from one line of text to the next, per point of its size.
MARGIN, LINE = 0.2, 1.35 / 72
# Letters of a PNG are put on whole pixels, which takes some more room.
ROOM = 1.06
# The largest number that an axis can hold.
FARTHEST = 1e300


@contextmanager
def drawing() -> Iterator[None]:
    """Figures that are drawn within come out the same every time, and no name is handed to TeX."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        settings: dict[Any, Any] = {
            "svg.hashsalt": "edgewise", "text.usetex": False, "font.size": NORMAL, "text.color": INK,
            "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.linewidth": 0.7, "axes.labelsize": NORMAL,
            "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
            "xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
            "hatch.linewidth": 0.6,
        }  # fmt: skip
        matplotlib.rcParams.update(settings)
        warnings.simplefilter("ignore")  # of characters that the font lacks: they are drawn as boxes
        yield


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of a PNG or SVG."""
    image = io.BytesIO()
    figure.savefig(image, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    return image.getvalue()


@lru_cache(maxsize=10_000)
def text_width(text: str, size: float) -> float:
    """How wide a line of text is drawn at most, in inches."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return ROOM * float(width) / 72


def lines_of(text: str, size: float, width: float) -> list[str]:
    """Text in lines that fit into a width, broken between words."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True, eq=False)
class Sheet:
    """A figure with a title above and a caption below what is drawn; `top` is where that begins.

    width, height  in inches, of what is drawn; places are inches from its left and its top
    """

    figure: Figure
    width: float
    height: float
    top: float

    @classmethod
    def make(cls, width: float, height: float, title: str, caption: str) -> Sheet:
        """A sheet with room for what is drawn, and for as many lines of text as there are; wider for a long word."""
        width = max(width, *(text_width(word, LARGE) for word in title.split(" ")))
        above, below = lines_of(title, LARGE, width), lines_of(caption, SMALL, width)
        top = MARGIN + len(above) * LARGE * LINE + 0.12
        ends = top + height + 0.12
        whole = ends + len(below) * SMALL * LINE + MARGIN
        sheet = cls(Figure(figsize=(width + 2 * MARGIN, whole)), width, height, top)
        sheet.words(0, MARGIN - top, "\n".join(above), size=LARGE)
        sheet.words(0, ends - top, "\n".join(below), size=SMALL, color=FAINT)
        return sheet

    def _place(self, left: float, top: float) -> tuple[float, float]:
        width, height = self.figure.get_size_inches()
        return (MARGIN + left) / width, 1 - (self.top + top) / height

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes with lines at the left and below."""
        x, y = self._place(left, top + height)
        whole = self.figure.get_size_inches()
        axes = self.figure.add_axes((x, y, width / whole[0], height / whole[1]))
        axes.spines[["top", "right"]].set_visible(False)
        return axes

    def words(self, left: float, top: float, text: str, size: float = NORMAL, **look: Any) -> Text:
        """Text whose upper left corner is at a place, as it is."""
        look = {"va": "top", "linespacing": 1.25, "size": size, "parse_math": False, **look}
        return self.figure.text(*self._place(left, top), text, **look)

    def heading(self, left: float, top: float, name: str, words: str) -> None:
        """What a part of the sheet is about: a name, and some words on it, on one line."""
        below = top + NORMAL / 72
        self.words(left, below, name, weight="bold", va="baseline")
        self.words(left + _bold_width(name) + 0.1, below, words, SMALL, color=FAINT, va="baseline")

    def legend(self, left: float, top: float, lines: Sequence[Line2D], columns: int = 1, **look: Any) -> None:
        """The labels of lines as they are, from an upper left corner on."""
        look = {
            "loc": "upper left", "bbox_to_anchor": self._place(left, top), "ncols": columns, "borderaxespad": 0.0,
            "borderpad": 0.0, "frameon": False, "fontsize": SMALL, "handlelength": 3.2, "labelspacing": 0.5,
            "columnspacing": 1.6, **look,
        }  # fmt: skip
        # matplotlib would typeset some labels, and leave out those that begin with _.
        legend = self.figure.legend(lines, [f"line {number}" for number in range(len(lines))], **look)
        for text, line in zip(legend.get_texts(), lines, strict=True):
            text.set(text=line.get_label(), parse_math=False)


def heading_width(name: str, words: str) -> float:
    """The inches that a heading takes."""
    return _bold_width(name) + 0.1 + text_width(words, SMALL)


def _bold_width(name: str) -> float:
    return 1.15 * text_width(name, NORMAL)  # bold letters are about a sixth wider


def legend_height(lines: int) -> float:
    """The inches that a legend of one column takes."""
    return lines * SMALL * (1.25 + 0.5) / 72


def legend_width(labels: Sequence[str]) -> float:
    """The inches that a legend of one column takes."""
    return max(text_width(label, SMALL) for label in labels) + SMALL * (3.2 + 0.8) / 72 + 0.05


def number_ticks(low: float, high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """Round numbers within a range, and their labels."""
    locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
    ticks = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
    return ticks, [with_minus_signs(f"{0.0 if abs(tick) < 1e-12 * (high - low) else tick:.6g}") for tick in ticks]


def share_words(share: float) -> str:
    """A share in percent, in at most three digits, with the sign."""
    return with_minus_signs(f"{format_percent(share, 3)} %")


def padded(values: Sequence[float] | np.ndarray, by: float = 0.06) -> tuple[float, float]:
    """The range of values with some room on both sides; what no axis can hold is left out."""
    known = np.asarray(values, np.float64)
    known = known[np.abs(known) <= FARTHEST]
    low, high = float(known.min(initial=0.0)), float(known.max(initial=0.0))
    room = by * (high - low) or max(abs(high), 1.0) * by
    return low - room, high + room
