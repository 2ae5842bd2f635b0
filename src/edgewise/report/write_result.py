"""A run's folder, whole: its data, and what is derived from it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ..io.atomic import atomic_folder, write_text
from ..io.formats import NPZ
from ..results import fill_result
from ..results.result_folder import FILES
from .figures import write_figures
from .readme import write_result_readme
from .viewer.page import page_of
from .viewer.view import view_of_run

if TYPE_CHECKING:
    from ..recipes.discovery import Discovery


class NotShownWarning(UserWarning):
    """A result is written, but what it is shown by isn't."""


def write_result(found: Discovery, folder: str | Path, overwrite: bool = False, eap_ig_json: bool = False) -> None:
    """Write all that a discovery found, with its figures, whole or not at all.

    eap_ig_json  whether the files in circuits/ are in EAP-IG's json: of a large graph these are many megabytes each

    `edgewise report`, `view`, `compare`, `convert` and `select` read such a folder. Should a figure or the page fail,
    the data are written all the same, and a warning says so.
    """
    problem: Exception | None = None
    with atomic_folder(Path(folder), overwrite, FILES) as draft:
        fill_result(draft, found, ".json" if eap_ig_json else NPZ)
        try:
            write_derived(draft, found)
        except Exception as error:  # hours of work aren't lost for a picture
            if isinstance(error, OSError) or isinstance(error.__context__, OSError):
                raise  # a full disk holds the data no more than the pictures
            problem = error
    if problem is not None:
        words = f"{folder} has all that was found, but figures, page or README failed ({problem})"
        warnings.warn(f"{words}; try `edgewise report {folder}`", NotShownWarning, stacklevel=2)


def write_derived(folder: Path, found: Discovery) -> list[Path]:
    """Write what a result folder's data are shown by: figures, the viewer's page, a README; gives their files."""
    page, text = folder / "viewer.html", page_of(view_of_run(found))
    figures = write_figures(folder / "figures", found)
    write_text(page, text)
    return [*figures, page, *write_result_readme(folder, found)]  # the last names every file
