"""edgewise report: rebuild what is derived from a result folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, print_json, say
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
    from ..report.tables import area_table, key_value_table

    result = read_result(folder)
    (folder / "figures").mkdir(exist_ok=True)
    figures = write_figures(folder / "figures", result)
    if json:
        print_json({"run": dict(result.run), "figures": [str(path) for path in figures]})
        return
    run = result.run
    facts = {
        "model": f"{run['model']} ({run['graph']['edges']:,} edges)",
        "task": f"{run['task']}, {run['test']['examples']} examples of {run['test']['split']}",
        "accuracy": f"{run['accuracy']['top-1']:.1%}",
        "scored by": f"{run['settings']['method']} on {run['train']['examples']} examples of {run['train']['split']}",
        "ablation": run["settings"]["ablation"],
        "faithfulness": run["settings"]["faithfulness"],
        "sign instability": f"{run['sign_instability']:.1%}",
    }
    out.print(key_value_table(str(folder), facts))
    for benchmark in ("CMD", "CPR"):
        out.print(area_table(result.rows, benchmark))
    say(f"figures: {', '.join(str(path) for path in figures)}")
