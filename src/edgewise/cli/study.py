"""edgewise study: the paper's experiments, or with --scorers a comparison of scorers and learners."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import recipes, study as studies
from ..errors import InputError
from ..io.atomic import check_folder
from ..learn import LEARNERS, Learner
from ..method import parameters
from ..models.model_files import UNTRAINED
from ..report.study_tables import write_study
from ..score import Scorer
from ..select import Greedy, Ilp, TopN
from ..study.folder import FILE_PATTERN
from ..tasks import check_task, count_copies, has_splits, is_task_file
from ..tasks.data_sets import parse_columns
from . import options
from .console import duration, note, print_forecast, print_json, say, status
from .options import option, parse_numbers
from .repeat import check_same, made_from, resume
from .report import show_study


@dataclass(frozen=True)
class StudyModelOptions(options.ModelOptions):
    """Which models to load, and how."""

    model: list[str] | None = option(  # type: ignore[assignment]
        None, "Model", "As in `run`; several, or a list with commas. Default: demo."
    )


@dataclass(frozen=True)
class PromptOptions:
    """How the examples of all tasks are read."""

    spans: str | None = options.SPANS
    chat: bool = options.CHAT
    skip_bad: bool = options.SKIP_BAD
    columns: str | None = options.COLUMNS


@dataclass(frozen=True)
class GridOptions:
    """The hyper-parameters that a study tries."""

    pnr_grid: str = option(".3,.4,.45,.5,.55,.6,.7,.8,.9", "Selection", "Values of PNR to try.")
    resamples_grid: str = option("5,10,15", "Selection", "Numbers of bootstrap resamples to try.")
    kappa_grid: str = option(
        "0.5,1,2", "Selection", "Standard errors of shrinkage to try; '' for none, as in the paper."
    )

    def build(self, time_limit: float | None) -> studies.Grid:
        """Return the grid."""
        return studies.Grid(
            parse_numbers("--resamples-grid", self.resamples_grid, int, "5,10"),
            parse_numbers("--kappa-grid", self.kappa_grid, float, "0.5,1"),
            parse_numbers("--pnr-grid", self.pnr_grid, float, "0.3,0.5"),
            (Greedy(), TopN(), Ilp(time_limit)),
        )


def command(
    *,
    model: StudyModelOptions,
    common: options.RunOptions,
    task: list[str] | None = option(None, "Task", "As in `run`; several, or a list with commas. Default: as in `run`."),
    seeds: int = option(3, "Task", "Number of seeds. Each draws other examples and other resamples."),
    examples: int | None = options.EXAMPLES,
    prompts: PromptOptions,
    scorers: str | None = option(
        None,
        "Scoring",
        "Compare these scorers and learners instead, in one table: names with commas, such as eap-ig,eap,learned; all: "
        f"every scorer that the metric and the size of the graph allow. Learners: {', '.join(LEARNERS)}.",
    ),
    truth: str | None = option(
        None,
        "Evaluation",
        "With --scorers: the true circuit, a circuit file or known/NAME. Default: that of known/NAME models.",
    ),
    control: str | None = option(
        None,
        "Model",
        "untrained: also study the same architecture with random weights. Circuits there are suspicious.",
        choices=("untrained",),
    ),
    grids: GridOptions,
    out_folder: Path | None = option(
        None, "Output", "The study's folder. Default: results/study, with --scorers results/scorers.", "--out"
    ),
    overwrite: bool = option(False, "Output", "Replace an earlier study in the folder."),
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Run the paper's experiments: all recipes, hyper-parameters and seeds, into the paper's tables.

    Scores edges on train, chooses recipes and hyper-parameters on validation, reports on test. Two rows show what
    chance achieves: random circuits, and greedy's circuits with other heads of the same layers. Run the same command
    again to resume a stopped study; the tables are the same, except for seconds.

    With --scorers, it compares scorers and learners instead: a row for each, with CPR, CMD, their differences from
    EAP-IG, seconds, memory and, if the circuit is known, AUROC and precision. One integer program
    selects circuits of equal size. --steps and --learn-steps are for the methods that have steps.
    """
    common.check_kind(prompts.spans)
    if scorers is None:
        common.check_learning("" if common.learned else "without --learned")
    names = _names(model.model or ["demo"])
    tasks = _names(task or list(dict.fromkeys(map(options.default_task, names))))
    for name in tasks:
        check_task(name)
    if control is not None:
        names = tuple(dict.fromkeys((*names, *(f"{UNTRAINED}{name.removeprefix(UNTRAINED)}" for name in names))))
    settings = common.build_settings(common.build_bootstrap(10))
    columns = None if prompts.columns is None else parse_columns(prompts.columns)
    plan = studies.Plan(
        models=names,
        tasks=tasks,
        seeds=seeds,
        examples=examples,
        grid=grids.build(common.time_limit),
        settings=settings,
        device=model.device,
        dtype=model.dtype,
        bos=model.bos,
        unsplit=tuple(name for name in tasks if is_task_file(name) and not has_splits(Path(name), columns=columns)),
        learner=common.build_learner(seed=0) if common.learned else None,
        trust_remote_code=model.trust_remote_code,
        baselines=not common.as_published,
        spans=prompts.spans,
        chat=prompts.chat,
        skip_bad=prompts.skip_bad,
        columns=tuple((columns or {}).items()),
        **({} if scorers is None else _choose_scorers(_names([scorers]), settings, common, grids)),
        truth=truth,
    )
    plan.check()  # before anything is written
    folder = out_folder or Path("results/study" if scorers is None else "results/scorers")
    has_result = not overwrite and studies.is_study(folder)
    earlier = studies.read_study(folder) if has_result else None  # raises if it is a study of another version
    check_folder(folder, overwrite or has_result, FILE_PATTERN)
    _show_notes(plan, common.time_limit)
    with common.session(folder, dry_run) as session:
        if dry_run:
            forecasts = studies.study_forecasts(plan, session.engine)
            seconds = sum(forecast.seconds or 0 for forecast in forecasts)
            if json:
                print_json({"forecasts": [forecast.record() for forecast in forecasts], "seconds": seconds})
                return
            for forecast in forecasts:
                print_forecast(forecast)
            if len(forecasts) > 1:
                say(f"in all: about {duration(seconds)}")
            return
        inputs = made_from(plan=plan.record(), files=plan.files())
        if earlier is not None:
            check_same(folder, earlier.made_from or None, inputs)
            show_study(folder, earlier, json)
            return
        with resume(session) as session:
            study = replace(studies.run_study(plan, session), made_from=inputs)
        with status("writing tables and the figure"):
            write_study(study, folder, overwrite)
    show_study(folder, study, json)


def _choose_scorers(
    names: tuple[str, ...], settings: recipes.Settings, common: options.RunOptions, grids: GridOptions
) -> dict[str, Any]:
    """Return the part of a plan that says which scorers and learners are compared."""
    # The attributes of the class are typer's options, which have the default values.
    changed = [name for name, value in asdict(grids).items() if value != getattr(GridOptions, name).default]
    unused = [
        *changed, *(name for name in ("learned", "as_published", "fill") if getattr(common, name)),
        *common.given_intervals, *["scorer"] * (common.scorer != "eap-ig"),
    ]  # fmt: skip
    if unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise InputError(f"{flags} would have no effect with --scorers, which compares scorers and learners by name")
    learning = {"steps": common.learn_steps, "rate": common.learning_rate}
    scorers, left_out = studies.choose_scorers(names, settings, {"steps": common.steps}, learning)
    learnable = {name for scorer in scorers if isinstance(scorer, Learner) for name in parameters(type(scorer))}
    for flag, name in (("--learn-steps", "steps"), ("--learning-rate", "rate")):
        if learning[name] is not None and name not in learnable:
            raise InputError(f"{flag} needs a learner in --scorers that has it, such as learned")
    for name, reason in left_out.items():
        note(f"without {name}: {reason}")
    named = {name.lower() for name in names}
    is_large = any(isinstance(scorer, Scorer) and scorer.max_edges and scorer.name in named for scorer in scorers)
    return {"scorers": scorers, "skip_large": studies.ALL in named and not is_large}


def _show_notes(plan: studies.Plan, time_limit: float | None) -> None:
    """Print notes on what the tables will depend on."""
    for name in plan.unsplit:
        note(f"{name} has no `split` column, so its rows are split into train, validation and test, a third each")
    for name in sorted(set(plan.tasks) - set(plan.unsplit)):  # rows of unsplit files are made distinct
        if is_task_file(name):
            copies, rows = count_copies(Path(name), dict(plan.columns) or None)
            if copies:
                note(f"{copies:,} of the {rows:,} rows of {name} are copies of others; intervals are too narrow")
    if time_limit is not None:
        note("with a time limit, circuits and tables depend on the speed of the machine")


def _names(texts: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
