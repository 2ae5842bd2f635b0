"""edgewise report: print a run or a study, and rebuild what is derived from its data."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from .. import study as studies
from ..recipes.discovery import Discovery
from ..recipes.settings import Settings, published_words
from ..report.circuit_summary import open_run_circuit
from ..report.formatting import format_interval, format_number, safe_text
from ..report.overview import run_facts
from ..report.study_tables import describe_cell, legend, summarise_study, terminal, write_tables
from ..report.tables import area_table, kept_legend, key_value_table, marks_legend
from ..report.write_result import write_derived
from ..results import read_result, result_summary
from . import options
from .console import explain, out, print_json, print_tables, say
from .show import show_open

# Files that people open first.
FIRST_FILES = ("viewer.html", "README.md", "figures/", "circuits/")


def command(*, folder: Path = options.FOLDER, json: bool = options.JSON) -> None:
    """Print the tables of a run or a study, and rebuild what is derived from its data.

    That is a run's figures, viewer.html and README.md; a study's figures, table files and README.md.
    """
    if studies.is_study(folder):
        study = studies.read_study(folder)
        write_tables(study, folder)
        show_study(folder, study, json)
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


def show_published(settings: Settings) -> None:
    """Print how a run or a study with --as-published differs from others."""
    for difference in (published_words(settings) or {}).values():
        say(f"as published: {difference}")


def show_areas(result: Discovery) -> None:
    """Print the areas of all recipes, with a legend."""
    for measure in result.measures:
        print_tables(area_table(result.of(measure), measure, out.width))
    faithfulness = f"faithfulness: {result.settings.faithfulness.summary}"
    for line in filter(None, (marks_legend("greedy"), kept_legend(result.outcomes), faithfulness)):
        explain(line)


def show_run(folder: Path, result: Discovery) -> None:
    """Print the result of a run that was written to `folder`."""
    record, accuracy = result_summary(result), result.run.accuracy
    beats = "" if accuracy.beats is None else f"; the correct answer beats the incorrect in {accuracy.beats:.1%}"
    say(f"accuracy: the top answer is right in {accuracy.top:.1%}{beats}")
    show_areas(result)
    for measure, overlaps in record["overlap"].items():
        means = ", ".join(f"{name} {overlap['mean']:.2f}" for name, overlap in overlaps.items())
        say(f"overlap of {measure} circuits over resamples of the training examples, mean over sizes: {means}")
    say(
        f"{result.statistics.sign_instability:.1%} of the {result.run.graph.units} of non-negligible mean changed sign "
        "between bootstrap resamples"
    )
    exported = (f"{name}: {row['recipe']}, {row['choice']}" for name, row in record["circuits"].items())
    say(f"circuits/ has the circuits of {'; '.join(exported)}")
    for measure, best in record["tuning"]["chosen"].items() if record["tuning"] else ():
        parameters = record["circuits"][measure]["parameters"]
        greedy, lead = record["tuning"]["candidates"][measure][0]["area"], best["against_greedy"]
        tuned = f"{best['recipe']}{f' ({parameters})' * bool(parameters)}, {format_number(best['area'])}"
        interval = format_interval(lead["low"], lead["high"], signed=True)
        say(
            f"Tuned {measure}: {tuned} against greedy's {format_number(greedy)} on held-out examples of "
            f"{record['train']['split']}: {format_number(lead['difference'], signed=True)} {interval}"
        )
    units = result.run.graph.units
    for measure, choices in record["portfolio"].items():
        # In a small graph, some sizes have no edges; all recipes are equal there.
        sizes = [(share, name) for share, name in choices.items() if int(float(share) * result.run.graph.n_edges)]
        ranges = []
        for name, same in groupby(sizes, lambda size: size[1]):
            shares = [share for share, _ in same]
            ranges.append(f"{shares[0]} {name}" if len(shares) == 1 else f"{shares[0]}-{shares[-1]} {name}")
        used = f"{sizes[0][1]} at every size" if len(ranges) == 1 else f"by share of the {units}, {'; '.join(ranges)}"
        say(f"Portfolio for {measure}: {used}")
    show_open(open_run_circuit(result))
    files = sorted(f"{path.name}{'/' * path.is_dir()}" for path in folder.iterdir())
    say(f"results in {folder}: {', '.join(sorted(files, key=lambda name: (*FIRST_FILES, name).index(name)))}")
    explain(f"circuits found and evaluated in {result.run.seconds['total']:.0f} s")
    others = [f"edgewise show {folder} --measure {measure}" for measure in list(record["circuits"])[1:]]
    explain(f"next: {'; '.join((f'edgewise view {folder}', f'edgewise compare {folder}', *others))}")


def show_study(folder: Path, study: studies.Study, json: bool) -> None:
    """Print a study that is in a folder."""
    if json:
        print_json(summarise_study(study) | {"out": str(folder)})
        return
    show_published(study.plan.settings)
    for table in studies.study_tables(study):
        out.print(safe_text(table.caption), style="bold")
        print_tables(terminal(table, out.width))
    cells = (describe_cell(cell, study.plan) for cell in study.cells)
    for line in (*legend(study), *cells):
        say(line)
    costs = ", costs.png, costs.svg" * bool(study.plan.scorers)
    say(f"results in {folder}: tables.md, tables.csv, tables.json, curves.csv, figure.png, figure.svg{costs}")
