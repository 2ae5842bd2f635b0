"""edgewise study: the paper's experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from . import options
from .console import note, open_workers, out, print_json, print_tables, say, warn_of_copies, watching
from .forecast import show_forecasts

if TYPE_CHECKING:
    from ..study import Study

NAME = "study"
Number = TypeVar("Number", int, float)


def command(
    model: Annotated[
        list[str] | None, typer.Option("--model", help="As in `run`; give several, or a list with commas.")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="As in `run`; give several, or a list with commas.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="How many: each draws other examples of a built-in task, and other resamples.")
    ] = 3,
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = None,
    metric: options.Metric = "logit-difference",
    ablation: options.Ablation = "patching",
    faithfulness: options.Faithfulness = "mib",
    pnr_grid: Annotated[str, typer.Option(help="Shares of PNR to try.")] = ".3,.4,.45,.5,.55,.6,.7,.8,.9",
    tau_grid: Annotated[str, typer.Option(help="Numbers of bootstrap resamples to try.")] = "5,10,15",
    kappa_grid: Annotated[
        str, typer.Option(help="Standard errors of shrinkage to try; '' for none, as in the paper.")
    ] = "0.5,1,2",
    interval: options.Interval = "paper",
    confidence: options.Confidence = 0.95,
    threshold: options.Threshold = 0.0,
    learned: Annotated[bool, typer.Option("--learned", help="Learn rankings too, on every draw of train.")] = False,
    learn_steps: options.LearnSteps = None,
    rate: options.LearnRate = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Repeat what the paper's public script does; each is named.")
    ] = False,
    fill: options.Fill = False,
    nested: options.Nested = False,
    time_limit: options.TimeLimit = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    bos: options.Bos = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    out_folder: Annotated[Path, typer.Option("--out", help="The study's folder.")] = Path("results/study"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew, rather than go on.")] = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Run the paper's experiments: every combination of methods, hyper-parameters and seeds, into the paper's tables.

    Scores edges on train, chooses combination and hyper-parameters on validation, reports on test. Finished work is
    kept in the folder: a study that was stopped goes on with the same command, and ends with the same tables.
    """
    from ..core.statistics import Bootstrap
    from ..recipes.settings import as_published as published
    from ..report.study_tables import write_study
    from ..runtime.engine import thread_count
    from ..runtime.session import Session
    from ..select import Greedy, Ilp, TopN
    from ..study import Grid, Plan, open_study, resume_study
    from ..study.forecast import study_forecasts
    from ..tasks import check_task, count_copies, has_splits, is_task_file

    resampling = Bootstrap(10, interval.lower(), confidence, threshold)
    settings = options.build_settings(
        method, steps, metric, ablation, faithfulness, resampling, fill, nested, batch_size, memory
    )
    solvers = (Greedy(), TopN(), Ilp(time_limit))
    grid = Grid(_numbers(tau_grid, int), _numbers(kappa_grid, float), _numbers(pnr_grid, float), solvers)
    tasks = _names(task or ["ioi"])
    for name in tasks:
        check_task(name)
    unsplit = tuple(name for name in tasks if is_task_file(name) and not has_splits(Path(name)))
    plan = Plan(
        _names(model or ["demo"]), tasks, seeds, examples, grid, published(settings) if as_published else settings,
        device, dtype, bos, unsplit, options.build_learner(learn_steps, rate, 0) if learned else None,
        trust_remote_code,
    )  # fmt: skip
    plan.check(not no_cache)  # what can't be loaded is found before anything is written
    for name in unsplit:
        note(f"{name} has no `split` column, so its rows are split into train, validation and test, a third each")
    for name in sorted(set(tasks) - set(unsplit)):  # a file without splits is split into distinct rows
        if is_task_file(name):
            warn_of_copies(*count_copies(Path(name)), f"rows of {name}")
    if time_limit is not None:
        note("with a time limit, circuits depend on the machine's speed, so the tables do")
    if dry_run:
        with open_workers(engine, address, workers) as where:
            forecasts = study_forecasts(plan, where, not no_cache)
        show_forecasts(forecasts, json)
        return
    with open_study(out_folder, plan, overwrite) as opened, open_workers(engine, address, workers) as where:
        if opened.resumes:
            note(f"going on with the study in {out_folder}")
        if opened.threads != thread_count():
            note(f"it was begun with {opened.threads} threads, so the last digits may differ from those of one go")
        with watching() as progress:
            study = resume_study(plan, opened, not no_cache, Session(engine=where, progress=progress))
        about = write_study(study, opened.folder)
    _show(out_folder, study, about, json)


def report_study(folder: Path, study: Study, json: bool) -> None:
    """Write a study's tables and figure into its folder, and print them with what they say."""
    from ..report.study_tables import write_study

    _show(folder, study, write_study(study, folder), json)


def _show(folder: Path, study: Study, about: Mapping[str, Any], json: bool) -> None:
    """Print a study's tables with what they say."""
    from ..report.formatting import safe_text
    from ..report.study_tables import TERMINAL_LEGEND, competence, sentence, terminal
    from ..study import study_tables

    if json:
        print_json({**about, "out": str(folder)})
        return
    for words in (about["as_published"] or {}).values():
        say(f"as published: {words}")
    for table in study_tables(study):
        out.print(safe_text(table.caption), style="bold")
        print_tables(terminal(table, out.width))
    for words in TERMINAL_LEGEND:
        say(words)
    for cell in about["cells"]:
        say(competence(cell))
    for verdict in about["verdicts"]:
        say(sentence(verdict))
    say(f"results in {folder}: tables.md, tables.csv, tables.tex, tables.json, curves.csv, figure.png, figure.svg")


def _names(given: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


def _numbers(text: str, kind: type[Number]) -> tuple[Number, ...]:
    from ..errors import InputError

    try:
        if "_" in text or not text.isascii():  # Python would read these, too
            raise ValueError
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{text[:80]!r} isn't a list of numbers, such as 0.3,0.5") from None
