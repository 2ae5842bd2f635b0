"""A dot plot: a row for each number, with its interval and its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .sheet import FAINT, INK, PALE, SMALL, number_ticks, padded, text_width

# In inches: a row, and the room of the numbers below.
ROW, BELOW = 0.2, 0.5


@dataclass(frozen=True)
class Dot:
    """A number with its interval, what it is of, and words that stand at the end of its row.

    is_filled  whether it is sure, in the sense that the figure gives to it
    """

    label: str
    value: float
    low: float
    high: float
    colour: str
    is_filled: bool
    marker: str = "o"
    words: str = ""

    @property
    def look(self) -> dict[str, Any]:
        """The marker, as matplotlib has it."""
        face = self.colour if self.is_filled else "white"
        return {"marker": self.marker, "markersize": 4.5, "markerfacecolor": face, "markeredgecolor": self.colour,
                "markeredgewidth": 1.0}  # fmt: skip


def dots_height(dots: Sequence[Dot]) -> float:
    """The inches that the rows take, with the numbers below."""
    return max(1, len(dots)) * ROW + BELOW


def labels_width(dots: Sequence[Dot]) -> float:
    """The inches that the names take, at the left."""
    return max((text_width(dot.label, SMALL) for dot in dots), default=0) + 0.12


def words_width(dots: Sequence[Dot]) -> float:
    """The inches that the words take, at the right."""
    return max((text_width(dot.words, SMALL) for dot in dots), default=0) + 0.12


def draw_dots(axis: Axes, dots: Sequence[Dot], words: str) -> None:
    """The first on top; 0 is in sight. `words` say what the numbers are."""
    low, high = padded([*(end for dot in dots for end in (dot.low, dot.high))])
    axis.set_xlim(low, high)
    axis.set_ylim(max(1, len(dots)) - 0.5, -0.5)
    axis.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    axis.hlines(range(len(dots)), low, high, color=PALE, linewidth=0.5, linestyle=(0, (1, 2)), zorder=0.5)
    axis.hlines(range(len(dots)), [d.low for d in dots], [d.high for d in dots], colors=[d.colour for d in dots],
                linewidth=1.3, zorder=2)  # fmt: skip
    look: dict[str, Any] = {"size": SMALL, "va": "center_baseline", "parse_math": False, "color": INK}
    look["transform"] = axis.get_yaxis_transform()
    for row, dot in enumerate(dots):
        axis.add_line(Line2D([dot.value], [row], linestyle="none", zorder=3, **dot.look))
        axis.text(-0.012, row, dot.label, ha="right", **look)
        if dot.words:
            axis.text(1.012, row, dot.words, ha="left", **look)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_xticks(*number_ticks(low, high, 5))
    axis.set_xlabel(words, fontsize=SMALL)
