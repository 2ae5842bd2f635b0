"""edgewise study: the paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .. import runtime, study as studies
from ..errors import InputError
from ..report.formatting import safe_text
from ..report.study_tables import TERMINAL_LEGEND, describe_cell, sentence, terminal, write_study
from ..select import Greedy, Ilp, TopN
from ..tasks import check_task, count_copies, has_splits, is_task_file
from . import options
from .console import note, out, print_json, print_tables, say, show_forecasts, show_progress, warn_of_copies
from .options import option

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class GridOptions:
    """The hyper-parameters to try."""

    pnr_grid: str = option(".3,.4,.45,.5,.55,.6,.7,.8,.9", "Selection", "Values of PNR to try.")
    resamples_grid: str = option("5,10,15", "Selection", "Numbers of bootstrap resamples to try.")
    kappa_grid: str = option(
        "0.5,1,2", "Selection", "Standard errors of shrinkage to try; '' for none, as in the paper."
    )


@dataclass(frozen=True)
class StudyModelOptions(options.ModelOptions):
    """Which models to load, and how."""

    model: list[str] | None = option(  # type: ignore[assignment]
        None, "Model", "As in `run`; several, or a list with commas. Default: demo."
    )


def command(
    *,
    model: StudyModelOptions,
    scoring: options.ScorerOptions,
    grid: GridOptions,
    intervals: options.IntervalOptions,
    solver: options.SolverOptions,
    learning: options.LearningOptions,
    evaluation: options.EvaluationOptions,
    machine: options.MachineOptions,
    task: list[str] | None = option(None, "Task", "As in `run`; several, or a list with commas. Default: ioi."),
    seeds: int = option(3, "Task", "Number of seeds. Each draws other examples and other resamples."),
    examples: int | None = options.EXAMPLES,
    as_published: bool = options.AS_PUBLISHED,
    batch_size: int | None = options.BATCH_SIZE,
    out_folder: Path = option(Path("results/study"), "Output", "The study's folder.", "--out"),
    overwrite: bool = option(
        False, "Output", "Start again instead of resuming the study in the folder.", "--overwrite"
    ),
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Run the paper's experiments: all recipes, hyper-parameters and seeds, into the paper's tables.

    Scores edges on train, chooses recipes and hyper-parameters on validation, reports on test. Run the same command
    again to resume a stopped study; the tables are the same.
    """
    bootstrap = intervals.bootstrap(10)
    settings = options.build_settings(scoring, evaluation, bootstrap, solver, machine, batch_size, as_published)
    solvers = (Greedy(), TopN(), Ilp(solver.time_limit))
    resamples, kappas = _numbers(grid.resamples_grid, int), _numbers(grid.kappa_grid, float)
    learning.check_used(bool(learning.learned))
    learner = learning.build(seed=0) if learning.learned else None
    tasks = _names(task or ["ioi"])
    for name in tasks:
        check_task(name)
    unsplit = tuple(name for name in tasks if is_task_file(name) and not has_splits(Path(name)))
    plan = studies.Plan(
        _names(model.model or ["demo"]), tasks, seeds, examples,
        studies.Grid(resamples, kappas, _numbers(grid.pnr_grid, float), solvers), settings,
        model.device, model.dtype, model.bos, unsplit, learner, model.trust_remote_code,
    )  # fmt: skip
    uses_cache = not model.no_cache
    plan.check(uses_cache)  # before anything is written
    _show_notes(plan, solver.time_limit)
    if dry_run:
        with machine.session() as session:
            forecasts = studies.study_forecasts(plan, session.engine, uses_cache)
        show_forecasts(forecasts, json)
        return
    with studies.open_study(out_folder, plan, overwrite) as opened, machine.session() as session:
        if opened.resumes:
            note(f"resuming the study in {out_folder}")
        if opened.threads != runtime.thread_count():
            note(f"it was started with {opened.threads} threads, so the last digits may differ")
        with show_progress(session) as session:
            study = studies.resume_study(plan, opened, uses_cache, session)
        report_study(out_folder, study, json)


def _show_notes(plan: studies.Plan, time_limit: float | None) -> None:
    """Print notes on what the tables will depend on."""
    for name in plan.unsplit:
        note(f"{name} has no `split` column, so its rows are split into train, validation and test, a third each")
    for name in sorted(set(plan.tasks) - set(plan.unsplit)):  # rows of unsplit files are made distinct
        if is_task_file(name):
            warn_of_copies(*count_copies(Path(name)), f"rows of {name}")
    if time_limit is not None:
        note("with a time limit, circuits and tables depend on the speed of the machine")


def report_study(folder: Path, study: studies.Study, json: bool) -> None:
    """Write a study's tables and figure into its folder, and print them."""
    summary = write_study(study, folder)
    if json:
        print_json({**summary, "out": str(folder)})
        return
    for difference in (summary["as_published"] or {}).values():
        say(f"as published: {difference}")
    for table in studies.study_tables(study):
        out.print(safe_text(table.caption), style="bold")
        print_tables(terminal(table, out.width))
    for line in TERMINAL_LEGEND:
        say(line)
    for cell in summary["cells"]:
        say(describe_cell(cell))
    for verdict in summary["verdicts"]:
        say(sentence(verdict))
    say(f"results in {folder}: tables.md, tables.csv, tables.tex, tables.json, curves.csv, figure.png, figure.svg")


def _names(texts: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _numbers(text: str, kind: type[Number]) -> tuple[Number, ...]:
    try:
        if "_" in text or not text.isascii():  # int() and float() accept these
            raise ValueError
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{text[:80]!r} isn't a list of numbers, such as 0.3,0.5") from None
