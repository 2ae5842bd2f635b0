"""edgewise report: rebuild what is derived from a result folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from .console import out, print_json, say
from .run import show_areas
from .study import report_study

NAME = "report"


def command(
    folder: Annotated[Path, typer.Argument(help="A folder made by `edgewise run` or `edgewise study`.")],
    json: options.Json = False,
) -> None:
    """Show the tables of a run or a study again, and make its figures (and a study's table files) anew."""
    from ..formats.study_folder import is_study
    from ..study import read_study

    if is_study(folder):
        report_study(folder, read_study(folder), json)
    else:
        _report_run(folder, json)


def _report_run(folder: Path, json: bool) -> None:
    from ..formats.result_folder import read_result
    from ..report.figures import write_figures
    from ..report.tables import key_value_table

    result = read_result(folder)
    (folder / "figures").mkdir(exist_ok=True)
    figures = write_figures(folder / "figures", result)
    if json:
        print_json({"run": dict(result.run), "figures": [str(path) for path in figures]})
        return
    out.print(key_value_table(str(folder), _facts(folder, result.run)))
    for words in (result.run.get("as_published") or {}).values():
        say(f"as published: {words}")
    show_areas(result)
    say(f"figures: {', '.join(str(path) for path in figures)}")


def _facts(folder: Path, run: Mapping[str, Any]) -> dict[str, str]:
    """What a run was, in words."""
    from ..errors import InputError
    from ..report.tables import short

    try:
        train, test, settings = run["train"], run["test"], run["settings"]
        return {
            "model": f"{short(run['model'])} ({run['graph']['edges']:,} edges)",
            "task": f"{short(run['task'])}, {test['examples']} examples of {test['split']}",
            "accuracy": f"{run['accuracy']['top-1']:.1%}",
            "scored by": f"{settings['method']} on {train['examples']} examples of {train['split']}",
            "ablation": settings["ablation"],
            "sign instability": f"{run['sign_instability']:.1%}",
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'run.json'} isn't whole: {error}; run it again") from None
