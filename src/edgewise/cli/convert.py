"""edgewise convert: convert between file formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from ..errors import InputError
from ..evaluate.measures import MEASURES
from ..io.atomic import MARKERS, tree_digest
from ..method import choose
from ..results import Conversion, convert, convert_to_submission
from . import options
from .console import print_json, say
from .options import option


def command(
    *,
    source: Path = typer.Argument(
        ..., help="A score folder, a result folder, a file (npz, EAP-IG json or pt), or a folder of circuits."
    ),
    target: Path = typer.Argument(
        ..., help="Output: a .json, .pt or .npz file, or a new folder (with --submission: the submission's folder)."
    ),
    submission: str | None = option(
        None, "Submission", "Write a folder of a MIB submission.", choices=("importances", "circuits")
    ),
    task: str | None = option(None, "Submission", "MIB's name of the task, such as ioi."),
    model: str | None = option(None, "Submission", "MIB's name of the model, such as gpt2."),
    measure: str | None = option(
        None, "Submission", "Circuits of a result folder: for which measure (default: CMD).", choices=MEASURES
    ),
    recipe: str | None = option(
        None, "Submission", "Circuits of a result folder: of which recipe (default: the chosen one, if not by test)."
    ),
    file_format: str | None = option(
        None,
        "Output",
        "File format of a submission (default: pt) or of a folder (default: json).",
        "--format",
        choices=("pt", "json"),
    ),
    level: str | None = options.FILE_LEVEL,
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
) -> None:
    """Convert scores and circuits between score folders, EAP-IG / MIB json and pt, and MIB submissions.

    json and pt hold all scores and members exactly. An npz holds a circuit and the scores of its edges only. A folder
    of circuits, such as circuits/ of a run, becomes a folder of EAP-IG's files. Files have no example axis, so the
    scores of a score folder are averaged. `edgewise check` tells whether a submission would be accepted.
    """
    if submission is None:
        submission_options = {"--task": task, "--model": model, "--measure": measure, "--recipe": recipe}
        unused = [name for name, value in submission_options.items() if value is not None]
        if unused:
            raise InputError(f"{options.join_names(unused)} needs --submission")
        if file_format is not None and target.suffix not in ("", f".{file_format}"):
            raise InputError(f"{target} ends in {target.suffix}, but --format is {file_format}; omit --format")
        done = _convert(source, target, overwrite, f".{file_format or 'json'}", level)
    elif overwrite:
        raise InputError("a folder of a submission is never replaced; remove it first, and omit --overwrite")
    elif task is None or model is None:
        raise InputError(
            "a submission has one folder per task and model; give --task and --model, such as ioi and gpt2"
        )
    else:
        suffix, chosen = f".{file_format or 'pt'}", choose("measure", MEASURES, measure or "CMD")
        done = convert_to_submission(source, target, submission, task, model, suffix, chosen, recipe, level)
    if json:
        print_json(done.record())
        return
    for path in done.written:
        say(f"wrote {path}")
    for note in done.notes:
        say(f"note: {note}")


def _convert(source: Path, target: Path, overwrite: bool, suffix: str, level: str | None) -> Conversion:
    """Convert a file or folder. If the target is in place already and would be the same, leave it as it is."""
    if target.exists() and target.resolve() == source.resolve():
        raise InputError(f"{target} is an input of this command; choose another file to write to")
    if overwrite or not target.exists():
        return convert(source, target, overwrite, suffix, level)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / target.name
        done = convert(source, draft, False, suffix, level)
        if tree_digest(draft) != tree_digest(target):
            is_replaceable = target.is_file() or any((target / name).is_file() for name in MARKERS)
            advice = ", or replace it: --overwrite" if is_replaceable else "; folders of circuits are never replaced"
            raise InputError(f"{target} exists already, with other content; choose another{advice}")
        return replace(done, written=tuple(target / path.relative_to(draft) for path in done.written))
