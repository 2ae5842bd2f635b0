"""Figures of a run and of a study, one file for each kind; every one is a function from what was found to a Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from ...errors import InputError
from ...io.atomic import write_bytes
from ..findings import Findings
from .agreement import agreement_figure
from .circuit import circuit_figure
from .differences import differences_figure
from .faithfulness import faithfulness_figure
from .intervals import intervals_figure
from .scores import scores_figure
from .sheet import KINDS, drawing, rendered

FIGURES: Mapping[str, Callable[[Findings], Figure]] = {
    "faithfulness": faithfulness_figure,
    "differences": differences_figure,
    "circuit": circuit_figure,
    "scores": scores_figure,
    "intervals": intervals_figure,
    "agreement": agreement_figure,
}


def write_figures(folder: Path, found: Findings) -> list[Path]:
    """Write every figure of a run into a folder, as PNG and SVG; it is made if it isn't there.

    Equal results give equal files.
    """
    if folder.is_symlink():  # figures go into the result itself, not to elsewhere
        raise InputError(f"{folder} is a link, not a folder; remove it first")
    images: dict[Path, bytes] = {}
    with drawing():
        for name, make in FIGURES.items():
            figure = make(found)
            images |= {folder / f"{name}.{kind}": rendered(figure, kind) for kind in KINDS}
    for path, image in images.items():
        write_bytes(path, image)
    return list(images)
