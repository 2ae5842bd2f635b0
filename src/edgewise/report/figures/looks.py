"""How methods look: by colours that the colour-blind tell apart (Okabe and Ito's), lines and markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.lines import Line2D

BLACK, ORANGE, BLUE, VERMILLION, GREY = "#000000", "#E69F00", "#0072B2", "#D55E00", "#8f8f8f"
DASHES: tuple[Any, ...] = ((0, (1, 1.2)), (0, (4, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (7, 2)))
MARKERS = "vDPX<>phd*"


@dataclass(frozen=True)
class Look:
    """How a curve is drawn; `order` says what lies on top."""

    colour: str
    width: float
    style: Any
    marker: str
    is_filled: bool
    order: int

    def line(self, label: str = "", **more: Any) -> Line2D:
        """A line without points, for a legend, or with those given."""
        return Line2D(more.pop("x", []), more.pop("y", []), label=label, **self.arguments, **more)

    @property
    def arguments(self) -> dict[str, Any]:
        """As matplotlib has them."""
        return {
            "color": self.colour, "linewidth": self.width, "linestyle": self.style, "marker": self.marker,
            "markersize": 4 if self.is_filled else 3.6, "markerfacecolor": self.colour if self.is_filled else "white",
            "markeredgewidth": 0.8, "zorder": 2 + self.order,
        }  # fmt: skip


REFERENCE = Look(BLACK, 1.4, "-", "s", True, 2)
BEST = Look(BLUE, 2.2, "-", "o", True, 3)
EXPORTED = Look(VERMILLION, 1.6, (0, (3, 1.5)), "^", True, 4)


def looks(names: Sequence[str], reference: str, best: str, exported: str) -> dict[str, Look]:
    """The look of every method: three stand out, the others are thin and grey, each with its own marker and line."""
    found = {exported: EXPORTED} | {best: BEST} | {reference: REFERENCE}
    others = [name for name in names if name not in found]
    for at, name in enumerate(others):
        style = DASHES[at % len(DASHES)] if at % (len(DASHES) + 1) else "-"
        found[name] = Look(GREY, 0.8, style, MARKERS[at % len(MARKERS)], False, 1)
    return {name: found[name] for name in names}
