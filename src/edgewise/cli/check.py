"""edgewise check: would the benchmark accept this submission?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, print_json, say

NAME = "check"


def command(
    folder: Annotated[Path, typer.Argument(help="A submission: one folder per task and model, such as ioi_gpt2.")],
    json: options.Json = False,
) -> None:
    """Check a submission to the MIB leaderboard, folder by folder.

    Exits with 0 if all of it would be accepted, and with 1 if not. Circuits of edges are checked, not of neurons.
    """

    from ..report.tables import list_table
    from ..results import check_submission

    found = check_submission(folder)
    if json:
        print_json(found.record())
    else:
        rows = [
            (check.folder, check.layout or "-", "accepted" if check.accepted else "refused") for check in found.folders
        ]
        if rows:
            out.print(list_table(["folder", "layout", "verdict"], rows))
        for check in found.folders:
            for problem in check.problems:
                say(f"{check.folder}: {problem}")
        for problem in found.problems:
            say(problem)
        say("the submission would be accepted" if found.accepted else "the submission would be refused")
    if not found.accepted:
        raise typer.Exit(1)
