"""edgewise convert: from one file format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..evaluate import MEASURES
from . import options
from .console import print_json, say

NAME = "convert"


def command(
    source: Annotated[
        Path,
        typer.Argument(
            help="A score folder, a result folder, a file (npz, EAP-IG json or pt), or a folder of circuits."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(help="FILE.json, .pt or .npz, a new folder, or with --submission its folder.")
    ],
    submission: Annotated[
        str | None, typer.Option(help="Write a folder of a MIB submission: importances or circuits.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="With --submission: MIB's name of the task, such as ioi.")] = None,
    model: Annotated[str | None, typer.Option(help="With --submission: MIB's name of the model, such as gpt2.")] = None,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="With --submission (default pt), or of a folder of circuits (json): pt or json."),
    ] = None,
    measure: Annotated[
        str,
        typer.Option(help=f"With --submission circuits from a result folder: for {options.names(MEASURES)}."),
    ] = "CMD",
    method: Annotated[
        str | None,
        typer.Option(
            help="With --submission circuits from a result folder: whose circuits; default: the tuned method's."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Convert scores and circuits between score folders, EAP-IG / MIB json and pt, and MIB submissions.

    Between json and pt all scores and members are kept exactly; a npz is a circuit, with scores of the edges inside
    only. A folder of circuits, such as circuits/ of a run, becomes a folder of EAP-IG's files. A file has no example
    axis, so a score folder's scores are averaged on the way to one. `edgewise check` says whether a submission would be
    accepted.
    """

    from ..errors import InputError
    from ..method import choose
    from ..results import convert, convert_to_submission

    if submission is None:
        if task is not None or model is not None:
            raise InputError("--task and --model name a folder of a submission; give --submission, too, or neither")
        done = convert(source, target, overwrite, f".{file_format or 'json'}".lower())
    elif overwrite:
        raise InputError("a folder of a submission is never written over; remove it first, and leave --overwrite out")
    elif task is None or model is None:
        raise InputError(
            "a submission has one folder per task and model; give --task and --model, such as ioi and gpt2"
        )
    else:
        done = convert_to_submission(
            source,
            target,
            submission.lower(),
            task,
            model,
            f".{file_format or 'pt'}".lower(),
            choose("benchmark", MEASURES, measure),
            method,
        )
    if json:
        print_json(done.record())
        return
    for path in done.written:
        say(f"wrote {path}")
    for note in done.notes:
        say(f"note: {note}")
