"""Shared look of all figures: matplotlib settings, colours, titles and captions, and reproducible rendering."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import ArrayLike

from ..formatting import format_percent, with_minus_signs

DPI = 160
FILE_TYPES = ("png", "svg")
SMALL, NORMAL, LARGE = 7.0, 8.0, 11.0  # font sizes in points
INK, FAINT, PALE = "#1a1a1a", "#6b6b6b", "#d4d4d4"
# Okabe and Ito's colours, which colour-blind readers can distinguish, a grey and a brown.
BLACK, BLUE, VERMILLION, GREY = "#000000", "#0072B2", "#D55E00", "#8f8f8f"
OTHER_COLOURS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31")
MAX_AXIS_VALUE = 1e300

SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "edgewise", "text.usetex": False, "text.parse_math": False, "text.color": INK,
    "font.size": NORMAL, "axes.titlesize": NORMAL, "axes.labelsize": SMALL, "legend.fontsize": SMALL,
    "legend.frameon": False, "legend.borderaxespad": 0.0, "axes.titlelocation": "left", "axes.linewidth": 0.7,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "hatch.linewidth": 0.6,
}  # fmt: skip


@contextmanager
def figure_settings() -> Iterator[None]:
    """Use edgewise's matplotlib settings, whatever the user's are; names are never parsed as TeX."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph.*missing")  # characters the font lacks are drawn as boxes
        yield


def new_figure(width: float, height: float, title: str, caption: str) -> Figure:
    """Return a figure with a title above and a caption below; constrained layout makes room for both.

    Width and height, in inches, are without the title and the caption.
    """
    titles, captions = textwrap.wrap(title, int(7 * width)), textwrap.wrap(caption, int(17.5 * width))
    whole_height = height + 0.15 + 0.21 * len(titles) + 0.15 * len(captions)
    figure = Figure(figsize=(width, whole_height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    figure.suptitle("\n".join(titles), x=0.1 / width, ha="left", size=LARGE)
    figure.supxlabel("\n".join(captions), x=0.1 / width, ha="left", size=SMALL, color=FAINT)
    return figure


def set_heading(axes: Axes, name: str, text: str) -> None:
    """Write a bold name and a short explanation above axes."""
    heading = axes.set_title(name, weight="bold")
    options: Any = {"xycoords": heading, "textcoords": "offset points", "size": SMALL, "color": FAINT}
    axes.annotate(text, (1, 0.21), (6, 0), **options).set_in_layout(False)  # long names must not shrink the panel


def add_legend(parent: Axes | Figure, handles: Sequence[Artist], labels: Sequence[str], **options: Any) -> None:
    """Add a legend that shows labels as they are: matplotlib would leave out those that begin with an underscore."""
    legend = parent.legend(list(handles), [str(number) for number in range(len(labels))], **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)


def padded_limits(values: ArrayLike, padding: float = 0.06) -> tuple[float, float]:
    """Return axis limits that hold 0 and all values, apart from those too large for matplotlib."""
    array = np.asarray(values, np.float64)
    array = array[np.abs(array) <= MAX_AXIS_VALUE]
    low, high = float(array.min(initial=0.0)), float(array.max(initial=0.0))
    margin = padding * (high - low) or max(abs(high), 1.0) * padding
    return low - margin, high + margin


def format_share(share: float) -> str:
    """Return a share in percent with at most three digits: `0.5 %`."""
    return with_minus_signs(f"{format_percent(share, 3)} %")


def render(figure: Figure) -> dict[str, bytes]:
    """Return a figure's bytes as PNG and as SVG; equal figures give equal bytes."""
    figure.set_dpi(DPI)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is done; solving it again would take most of the time
    images = {}
    for file_type in FILE_TYPES:
        image = io.BytesIO()
        figure.savefig(image, format=file_type, dpi=DPI, metadata={"Date": None} if file_type == "svg" else None)
        images[file_type] = image.getvalue()
    return images
