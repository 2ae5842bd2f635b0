"""Shared look of all figures: matplotlib settings, colours, titles and captions, and reproducible rendering."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import TextPath
from numpy.typing import ArrayLike

from ..formatting import format_percent, with_minus_signs

DPI = 160
FILE_TYPES = ("png", "svg", "pdf")
LARGE = 11.0  # font size of titles in points
INK, FAINT, PALE = "#1a1a1a", "#6b6b6b", "#d4d4d4"
# Okabe and Ito's colours and some of Tol's, which colour-blind readers can distinguish, and a grey.
BLACK, BLUE, VERMILLION, GREY = "#000000", "#0072B2", "#D55E00", "#8f8f8f"
OTHER_COLOURS = ("#E69F00", "#56B4E9", "#990033", "#009E73", "#CC79A7", "#999933", "#332288", "#8C6D31", "#666666")
MAX_AXIS_VALUE = 1e300
PADDING = 0.06  # of an axis, as a share of its values' range

SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "edgewise", "text.usetex": False, "text.parse_math": False, "text.color": INK,
    "legend.frameon": False, "legend.borderaxespad": 0.5, "axes.titlelocation": "left", "axes.linewidth": 0.7,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "xtick.major.width": 0.7, "ytick.major.width": 0.7, "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text
}  # fmt: skip
NARROW = 5.0  # in inches: in narrower figures panels are below each other
HANDLE_WIDTH = 0.75  # in inches: of a line in a legend and the space around it


@dataclass(frozen=True)
class Page:
    """What a figure is drawn for: a screen, with a title and a caption, or a paper, which has its own.

    width          of the whole figure in inches
    small, normal  font sizes in points, of most texts and of headings
    """

    width: float = 11.0
    small: float = 7.0
    normal: float = 8.0
    is_paper: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether panels must be below each other."""
        return self.width < NARROW

    @property
    def row_height(self) -> float:
        """The height of a row of a dot plot or a legend in inches."""
        return 0.0286 * self.small


SCREEN = Page()


@contextmanager
def figure_settings(page: Page = SCREEN) -> Iterator[None]:
    """Use edgewise's matplotlib settings, whatever the user's are; names are never parsed as TeX."""
    small = dict.fromkeys(("axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), page.small)
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS | small | {"font.size": page.normal, "axes.titlesize": page.normal})
        matplotlib.rcParams["svg.fonttype"] = "none" if page.is_paper else "path"
        warnings.filterwarnings("ignore", message="Glyph.*missing")  # characters the font lacks are drawn as boxes
        yield


class NotebookFigure(Figure):
    """A figure that notebooks show without pyplot."""

    def _repr_png_(self) -> bytes:
        with figure_settings():
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=DPI)
        return image.getvalue()


def new_figure(height: float, title: str, caption: str, page: Page = SCREEN) -> Figure:
    """Return a figure, on a screen with a title above and a caption below; constrained layout makes room for both.

    The height, in inches, is without the title and the caption.
    """
    width = page.width
    if page.is_paper:
        return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04))
    titles, captions = textwrap.wrap(title, int(7 * width)), textwrap.wrap(caption, int(17.5 * width))
    whole_height = height + 0.15 + 0.21 * len(titles) + 0.15 * len(captions)
    figure = NotebookFigure(figsize=(width, whole_height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    figure.suptitle("\n".join(titles), x=0.1 / width, ha="left", size=LARGE)
    figure.supxlabel("\n".join(captions), x=0.1 / width, ha="left", size=page.small, color=FAINT)
    return figure


def set_heading(axes: Axes, name: str, text: str, page: Page, share: float = 1.0) -> None:
    """Write a bold name and a short explanation above axes that have a share of the page's width."""
    heading = axes.set_title(name, weight="bold")
    options: Any = {"xycoords": heading, "textcoords": "offset points", "size": page.small, "color": FAINT}
    text = fit_text(text, share * page.width - 1.2, page)
    axes.annotate(text, (1, 0.21), (6, 0), **options).set_in_layout(False)  # long names must not shrink the panel


def fit_text(text: str, width: float, page: Page) -> str:
    """Return a text, or its beginning and "…", so that it fits into a width in inches in a page's small font."""
    while len(text) > 1 and _text_width(text, page) > width:
        text = f"{text[: min(len(text) - 2, int(len(text) * width / _text_width(text, page)))]}…"
    return text


def _text_width(text: str, page: Page) -> float:
    """Return the width of a text in inches."""
    return float(TextPath((0, 0), text, size=page.small, usetex=False).get_extents().x1) / 72 if text.strip() else 0.0


def legend_columns(labels: Sequence[str], page: Page) -> int:
    """Return how many columns of a legend with these labels fit on a page."""
    longest = max((_text_width(fit_text(label, page.width - HANDLE_WIDTH, page), page) for label in labels), default=0)
    return max(1, int(page.width / (longest + HANDLE_WIDTH)))


def add_legend(part: FigureBase, handles: Sequence[Artist], labels: Sequence[str], page: Page, **options: Any) -> None:
    """Add a legend below a part of a figure, in as many columns as fit.

    It shows labels as they are: matplotlib would leave out those that begin with an underscore.
    """
    placeholders, columns = [str(number) for number in range(len(labels))], legend_columns(labels, page)
    legend = part.legend(list(handles), placeholders, loc="outside lower left", ncols=columns, **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(fit_text(label, page.width - HANDLE_WIDTH, page))


def padded_limits(values: ArrayLike) -> tuple[float, float]:
    """Return axis limits that hold 0 and all values, apart from those too large for matplotlib."""
    array = np.asarray(values, np.float64)
    array = array[np.abs(array) <= MAX_AXIS_VALUE]
    low, high = float(array.min(initial=0.0)), float(array.max(initial=0.0))
    margin = PADDING * (high - low) or max(abs(high), 1.0) * PADDING
    return low - margin, high + margin


def format_share(share: float) -> str:
    """Return a share in percent with at most three digits: `0.5 %`."""
    return with_minus_signs(f"{format_percent(share, 3)} %")


def render(figure: Figure, file_types: Sequence[str] = ("png", "svg"), dpi: int = DPI) -> dict[str, bytes]:
    """Return a figure's bytes by file type; equal figures give equal bytes."""
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is done; solving it again would take most of the time
    images = {}
    for file_type in file_types:
        image = io.BytesIO()
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(image, format=file_type, dpi=dpi, metadata=dates.get(file_type))
        images[file_type] = image.getvalue()
    return images


def draw_files(
    figures: Mapping[str, Callable[[Page], Figure]],
    page: Page = SCREEN,
    file_types: Sequence[str] = ("png", "svg"),
    dpi: int = DPI,
) -> dict[str, bytes]:
    """Return the content of each file, such as `scores.png`, of figures: name -> function that draws it for a page."""
    with figure_settings(page):
        images = {name: render(draw(page), file_types, dpi) for name, draw in figures.items()}
    return {f"{name}.{kind}": data for name, by_type in images.items() for kind, data in by_type.items()}
