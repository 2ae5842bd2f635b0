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

    The exit code is 0 if all of it would be accepted, else 1. Scores and circuits may be of edges, nodes or neurons.
    """
    checked = check_submission(folder)
    if json:
        print_json(checked.record())
    else:
        verdicts = {True: "accepted", False: "refused"}
        rows = [(check.folder, check.layout or "-", verdicts[check.accepted]) for check in checked.folders]
        if rows:
            out.print(list_table(["folder", "layout", "verdict"], rows))
        problems = (f"{check.folder}: {problem}" for check in checked.folders for problem in check.problems)
        for problem in (*problems, *checked.problems):
            say(problem)
        say(f"the submission would be {verdicts[checked.accepted]}")
    if not checked.accepted:
        raise typer.Exit(1)
