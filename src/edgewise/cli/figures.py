"""edgewise figures: draw the figures of a run or a study for a paper."""

from __future__ import annotations

from pathlib import Path

from .. import study as studies
from ..io.atomic import check_file, write_bytes
from ..report.figures import figures_of, paper_figures
from ..results import read_result
from . import options
from .console import print_json, say
from .options import option


def command(
    *,
    folder: Path = options.FOLDER,
    file_types: str = option("pdf", "Output", "File types: pdf, svg, png, or several with commas.", "--format"),
    width: float = option(5.5, "Output", "Width in inches, for example the paper's text or column width."),
    out_folder: Path | None = option(
        None, "Output", "The folder to write to. Default: FOLDER-figures, beside the folder of the result.", "--out"
    ),
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
) -> None:
    """Draw the figures of a run or a study for a paper: without titles, with fonts of 8 and 9 points.

    Include them at their own width, so that the fonts keep their size. Text in pdf and svg files is text, not paths.
    The figures that a run writes itself have titles and captions.
    """
    whole = folder.resolve()  # Path(".").name is empty
    out_folder = out_folder or (folder.parent if folder.name else whole.parent) / f"{whole.name}-figures"
    result = studies.read_study(folder) if studies.is_study(folder) else read_result(folder)
    types = [name.strip().lower() for name in file_types.split(",") if name.strip()]
    for name in figures_of(result):
        for file_type in types:
            check_file(out_folder / f"{name}.{file_type}", overwrite, [folder])
    files = {out_folder / name: data for name, data in paper_figures(result, width, types).items()}
    for path, data in files.items():
        write_bytes(path, data)
    if json:
        print_json({"out": str(out_folder), "width": width, "files": [path.name for path in files]})
    else:
        say(f"{len(files)} figures, {width:g} inches wide, in {out_folder}: {', '.join(path.name for path in files)}")
