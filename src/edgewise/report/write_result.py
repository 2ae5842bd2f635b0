"""Write a result folder: the data of a run, its figures, viewer page and README."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EdgewiseWarning, warn
from ..io.atomic import atomic_folder, write_json, write_text
from ..results import write_run_data
from ..results.result_folder import FILE_PATTERN
from .figures import write_figures
from .readme import result_page, write_readme
from .verification import RECORD, read_verification, verification_page
from .viewer.view import page_of, plain_view, view_of_run

if TYPE_CHECKING:
    from ..recipes.discovery import Discovery


class NotShownWarning(EdgewiseWarning):
    """A result was written, but its figures, page or README were not."""


def write_result(
    result: Discovery,
    folder: str | Path,
    overwrite: bool = False,
    verification: Mapping[str, Any] | None = None,
) -> None:
    """Write a run and its figures, viewer page and README into a folder, atomically.

    If a figure or the page fails, the data are written all the same, with a `NotShownWarning`.

    Parameters
    ----------
    result
        What `discover` returned.
    folder
        The folder to write.
    overwrite
        Whether an earlier result in the folder is replaced.
    verification
        The record of `verify_circuit`, to be written too.
    """
    problem: Exception | None = None
    with atomic_folder(Path(folder), overwrite, FILE_PATTERN) as draft:
        write_run_data(draft, result)
        if verification is not None:
            write_json(draft / RECORD, verification)
            write_text(draft / "verification.html", verification_page(verification, str(verification["circuit"])))
        try:
            write_derived(draft, result)
        except Exception as error:  # a failed picture must not lose hours of work
            if isinstance(error, OSError) or isinstance(error.__context__, OSError):
                raise  # a full disk would lose the data too
            problem = error
    if problem is not None:
        text = f"{folder} has all data, but its figures, page or README failed ({problem})"
        warn(f"{text}; try `edgewise report {folder}`", NotShownWarning)


def viewer_page(result: Discovery, verification: Mapping[str, Any] | None = None) -> str:
    """Return the viewer page of a run as text, with the tests of its circuit if there are any."""
    return page_of(plain_view(view_of_run(result, verification)))


def write_derived(folder: Path, result: Discovery) -> list[Path]:
    """Write the figures, the viewer page and the README of a result folder; return their paths."""
    page, text = folder / "viewer.html", viewer_page(result, read_verification(folder))
    figures = write_figures(folder / "figures", result)
    write_text(page, text)
    return [*figures, page, *write_readme(folder, result_page(result, folder))]  # last: it lists all files
