"""edgewise check: check a submission to the MIB leaderboard."""

from __future__ import annotations

from pathlib import Path

import typer

from ..report.tables import list_table
from ..results import check_submission
from . import options
from .console import out, print_json, say


def command(
    *,
    folder: Path = typer.Argument(..., help="A submission: one folder per task and model, such as ioi_gpt2."),
    json: bool = options.JSON,
) -> None:
    """Check whether the MIB leaderboard would accept a submission, folder by folder.

    The exit code is 0 if all of it would be accepted, else 1. Circuits of edges are checked, not of neurons.
    """
    checked = check_submission(folder)
    if json:
        print_json(checked.record())
    else:
        rows = [
            (check.folder, check.layout or "-", "accepted" if check.accepted else "refused")
            for check in checked.folders
        ]
        if rows:
            out.print(list_table(["folder", "layout", "verdict"], rows))
        for check in checked.folders:
            for problem in check.problems:
                say(f"{check.folder}: {problem}")
        for problem in checked.problems:
            say(problem)
        say("the submission would be accepted" if checked.accepted else "the submission would be refused")
    if not checked.accepted:
        raise typer.Exit(1)
