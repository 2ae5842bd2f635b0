"""edgewise report: rebuild what is derived from a result folder."""

from __future__ import annotations

from pathlib import Path

import typer

from ..recipes.discovery import Discovery
from ..report.formatting import short_name
from ..report.tables import key_value_table
from ..report.write_result import write_derived
from ..results import read_result, result_summary
from ..study import is_study, read_study
from . import options
from .console import out, print_json, say
from .run import show_areas, show_published
from .study import report_study


def command(
    *,
    folder: Path = typer.Argument(..., help="A folder made by `edgewise run` or `edgewise study`."),
    json: bool = options.JSON,
) -> None:
    """Print the tables of a run or a study, and rebuild what is derived from its data.

    That is a run's figures, viewer.html and README.md; a study's figure, table files and README.md.
    """
    if is_study(folder):
        report_study(folder, read_study(folder), json)
        return
    result = read_result(folder)
    written = write_derived(folder, result)
    if json:
        print_json({"run": result_summary(result), "written": [str(path) for path in written]})
        return
    out.print(key_value_table(str(folder), run_facts(result)))
    show_published(result.settings)
    show_areas(result)
    say(f"rebuilt: {', '.join(str(path) for path in written)}")


def run_facts(result: Discovery) -> dict[str, str]:
    """Return what a run did, as rows of a table."""
    run, settings = result.run, result.settings
    return {
        "model": f"{short_name(run.model)} ({run.graph.n_edges:,} edges)",
        "task": f"{short_name(run.task)}, {run.test.examples} examples of {run.test.split}",
        "accuracy": f"{run.accuracy.top:.1%}",
        "scored by": f"{settings.scorer.name} on {run.train.examples} examples of {run.train.split}",
        "ablation": settings.ablation.name,
        "sign instability": f"{result.statistics.sign_instability:.1%}",
    }
