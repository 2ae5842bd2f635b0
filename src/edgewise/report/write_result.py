"""A run's folder, whole: its data, and what is derived from it."""

from __future__ import annotations

from pathlib import Path

from ..disk import whole_folder, write_text
from ..pipeline import Discovery
from ..results import RunRecord, fill_result, read_result
from ..results.result_folder import FILES
from .figures import write_figures
from .view import view_of
from .view_page import page_of


def write_result(found: Discovery, folder: str | Path, overwrite: bool = False) -> RunRecord:
    """Write all that a discovery found, with its figures, whole or not at all; gives its record.

    `edgewise report`, `compare`, `convert` and `select` read such a folder.
    """
    with whole_folder(Path(folder), overwrite, FILES) as draft:
        record = fill_result(draft, found)
        write_figures(draft / "figures", read_result(draft))
        write_text(draft / "viewer.html", page_of(view_of([draft])))
    return record
