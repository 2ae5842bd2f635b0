"""Figures of a run and of a study; each is a function from results to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from ...errors import InputError
from ...evaluate import Curve
from ...io.atomic import write_bytes
from ...method import as_known
from ...recipes.discovery import Discovery, Outcome
from ...study import Study
from ..formatting import format_number, shorten, with_minus_signs
from .circuit import circuit_figure
from .curves import costs_figure, curve_figure, faithfulness_figure, study_figure
from .dots import differences_figure, scores_figure
from .style import FILE_TYPES, SCREEN, Page, draw_files, figure_settings

PAPER_DPI = 300
MIN_WIDTH, MAX_WIDTH = 3.0, 20.0  # in inches
FIGURES: Mapping[str, Callable[[Discovery, Page], Figure]] = {
    "faithfulness": faithfulness_figure,
    "differences": differences_figure,
    "circuit": circuit_figure,
    "scores": scores_figure,
}


def plot_discovery(discovery: Discovery, name: str = "faithfulness") -> Figure:
    """Return a figure of a run by its name."""
    with figure_settings():
        return FIGURES[as_known("figure", name, FIGURES)](discovery, SCREEN)


def plot_outcome(outcome: Outcome) -> Figure:
    """Return the curve of one recipe, with the area of its measure."""
    area = f"{outcome.measure.name} {with_minus_signs(format_number(outcome.area))}"
    with figure_settings():
        return curve_figure(outcome.curve, f"{shorten(outcome.name)}: {area}", outcome.measure)


def plot_curve(curve: Curve, title: str = "") -> Figure:
    """Return a figure of one curve."""
    with figure_settings():
        return curve_figure(curve, shorten(title))


def write_figures(folder: Path, discovery: Discovery) -> list[Path]:
    """Write all figures of a run into a folder as PNG and SVG; return their paths. Equal results give equal files."""
    if folder.is_symlink():  # figures must not be written outside the result folder
        raise InputError(f"{folder} is a link, not a folder; remove it first")
    images = draw_files(figures_of(discovery))
    for name, data in images.items():
        write_bytes(folder / name, data)
    return [folder / name for name in images]


def figures_of(result: Discovery | Study) -> dict[str, Callable[[Page], Figure]]:
    """Return the figures of a run or a study: name -> function that draws it for a page."""
    if isinstance(result, Study):
        costs = {"costs": partial(costs_figure, result)} if result.plan.scorers else {}
        return {"study": partial(study_figure, result), **costs}
    return {name: partial(draw, result) for name, draw in FIGURES.items()}


def paper_figures(result: Discovery | Study, width: float, file_types: Sequence[str]) -> dict[str, bytes]:
    """Draw the figures of a run or a study for a paper: without titles and captions, fonts of 8 and 9 points.

    Parameters
    ----------
    result
        What `read_result` or `read_study` returned.
    width
        Width of the paper's text or column in inches.
    file_types
        Some of "pdf", "svg" and "png". Text in pdf and svg files is text, not paths.

    Returns
    -------
    dict of str to bytes
        Content of each file by its name, such as "faithfulness.pdf". Equal results give equal bytes.

    Raises
    ------
    InputError
        If a file type is unknown, or figures of this width can not be drawn.
    """
    if not file_types or any(file_type not in FILE_TYPES for file_type in file_types):
        raise InputError(f"file types {','.join(file_types)!r}: expected one or more of {', '.join(FILE_TYPES)}")
    if not MIN_WIDTH <= width <= MAX_WIDTH:
        raise InputError(f"width {width:g}: expected {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, such as 3.25 for a column")
    page = Page(width, small=8.0, normal=9.0, is_paper=True)
    return draw_files(figures_of(result), page, tuple(dict.fromkeys(file_types)), PAPER_DPI)
