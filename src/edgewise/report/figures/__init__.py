"""Figures of a run and of a study; each is a function from results to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from ...errors import InputError
from ...io.atomic import write_bytes
from ...recipes.discovery import Discovery
from .circuit import circuit_figure
from .curves import faithfulness_figure
from .dots import differences_figure, scores_figure
from .style import figure_settings, render

FIGURES: Mapping[str, Callable[[Discovery], Figure]] = {
    "faithfulness": faithfulness_figure,
    "differences": differences_figure,
    "circuit": circuit_figure,
    "scores": scores_figure,
}


def write_figures(folder: Path, discovery: Discovery) -> list[Path]:
    """Write all figures of a run into a folder as PNG and SVG; return their paths. Equal results give equal files."""
    if folder.is_symlink():  # figures must not be written outside the result folder
        raise InputError(f"{folder} is a link, not a folder; remove it first")
    images: dict[Path, bytes] = {}
    with figure_settings():
        for name, make_figure in FIGURES.items():
            images |= {folder / f"{name}.{kind}": data for kind, data in render(make_figure(discovery)).items()}
    for path, data in images.items():
        write_bytes(path, data)
    return list(images)
