"""edgewise run: score, select, evaluate and report. `load_command` in cli/__init__.py calls `command`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import models
from ..errors import InputError
from ..io.atomic import check_folder
from ..recipes.discovery import Discovery
from ..recipes.recipe import (
    Recipes,
    calibrated_recipes,
    learned_recipes,
    list_recipes,
    merge_recipes,
    paper_recipes,
    shrinkage_recipes,
)
from ..recipes.settings import LEARN_MINUTES, Settings
from ..report.verification import read_verification, summarise_tests
from ..report.write_result import write_result
from ..results import is_result, read_result, read_start, result_summary
from ..results.result_folder import FILE_PATTERN
from ..tasks import SPLITS, Task, is_task_file
from . import options
from .console import duration, explain, note, print_json, show_forecast, show_progress
from .options import option
from .repeat import check_same, made_from, note_resumed
from .report import show_published, show_run
from .verify import forecast_tests, show_verdicts, verify_run

if TYPE_CHECKING:
    from ..learn import TopKLearner
    from ..recipes.forecast import Work
    from ..runtime.session import Session

MOST_RESAMPLES = 1000


def command(
    *,
    model: options.ModelOptions,
    task: options.TaskOptions,
    common: options.RunOptions,
    split: str = option("test", "Task", "The split to evaluate on. Edges are scored on train."),
    resamples: int = option(10, "Selection", "Number of bootstrap resamples."),
    pnr: float = option(
        0.5,
        "Selection",
        "PNR (positive-negative ratio): the least share of edges with a positive score, from 0 to 1, in recipes with "
        "PNR.",
    ),
    kappa: float | None = options.KAPPA,
    tune: bool = option(
        False, "Selection", "Also choose a solver, a filter and a PNR by cross-validation, without test."
    ),
    learn_budget: float | None = option(
        None, "Learning", f"Minutes for learned rankings (default: {LEARN_MINUTES:g}; 0: none).", min=0
    ),
    learn_from: Path | None = options.LEARN_FROM,
    stability: int = option(
        5,
        "Evaluation",
        "How many times to resample train, to measure how much the selected circuits overlap; 0: don't.",
    ),
    verify: bool | None = option(
        None,
        "Evaluation",
        "Test the chosen circuit as `edgewise verify` does, into verification.html. Default: a short version, only if "
        "it takes a few seconds. --verify: the full version; --no-verify: none.",
        "--verify/--no-verify",
    ),
    out_folder: Path | None = option(None, "Output", "The result folder; by default results/MODEL-TASK.", "--out"),
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Find circuits with every recipe of the paper, for both measures, and evaluate how faithful they are.

    The measures are CMD, the integrated circuit-model distance (the area between faithfulness and 1: lower is better),
    and CPR, the integrated circuit performance ratio (the area below faithfulness: higher is better).

    Scores edges on train, selects circuits of ten sizes by each recipe (greedy or ILP, with and without bootstrapping
    and PNR), and evaluates them on test. Run the same command again to resume a stopped run.

    The recipe whose circuits are written to circuits/ is chosen on validation if the task has it, else on test, and so
    is the size that is shown first. With --tune, train and validation are joined: edges are scored there, and one more
    recipe is chosen there by cross-validation. The size shown first is then chosen on test.
    With --kappa, there are also recipes on shrunk scores. If they can be learned within --learn-budget, there are also
    rankings that are learned on train, and a portfolio of recipes that are chosen, for every size, on validation. If
    learning takes too long, the scores are calibrated for CMD instead.

    If that takes only a few seconds, as for the embedded models, the chosen circuit is also tested: does it beat random
    circuits, are edges superfluous, and so on (verification.html).
    """
    from ..pipeline import discover
    from ..recipes.forecast import EvaluateWork, LearnWork, ScoreWork, SelectWork
    from ..recipes.tuning import tuning_recipes, tuning_task

    folder = out_folder or Path("results") / f"{_short_name(model.model)}-{_short_name(task.task)}"
    has_result = not overwrite and is_result(folder)
    check_folder(folder, overwrite or has_result, FILE_PATTERN)
    _check_options(common, task.spans, tune, learn_budget, verify, stability)
    settings = common.build_settings(common.build_bootstrap(resamples, task.seed))
    without_learning = paper_recipes(settings.bootstrap, pnr, common.time_limit)
    if kappa is not None:
        without_learning = merge_recipes(without_learning, shrinkage_recipes(kappa, pnr, common.time_limit))
    minutes = LEARN_MINUTES if learn_budget is None else learn_budget
    learns = settings.can_learn and minutes > 0 if common.learned is None else common.learned
    why_not = "" if learns else _why_nothing_is_learned(common, settings)
    common.check_learning(why_not)
    learner = common.build_learner(task.seed) if learns else None
    has_budget = learns and common.learned is None  # --learned takes as long as it takes
    by_learning = {} if learner is None else learned_recipes(learner, common.time_limit)
    if learn_from is not None and learner is None:
        raise InputError(f"--learn-from changes learning, but this command learns nothing ({why_not}); leave it out")
    start = None if learn_from is None else read_start(learn_from)
    candidates = None
    if tune:
        tuned = tuning_recipes(settings.bootstrap, common.time_limit)
        candidates = merge_recipes(tuned, by_learning if common.learned else {})
    with common.session(folder, dry_run) as session:
        loaded = model.load()
        train, test, validation = _load_splits(loaded, task, split, tune, common.as_published)
        settings = replace(settings, metric=settings.metric.for_task(train.join(test, validation)))
        if tune and validation is not None:  # edges are scored on validation too, so recipes can't be compared there
            train, validation = tuning_task(train, validation, test), None
        splits = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
        inputs = made_from(
            model=loaded.digest, task=task.task, seed=task.seed, stability=stability, settings=settings,
            examples={name: len(examples) for name, examples in splits.items()},
            prompts={f"{name} ({examples.split})": examples.digest for name, examples in splits.items()},
            # What is planned within the budget depends on the clock, so it isn't compared.
            recipes=list_recipes(merge_recipes(without_learning, by_learning)),
            learn_budget=minutes if has_budget else None,
            learn_from=None if start is None else [ranking.digest for ranking in start.values()],
            tuned_among=None if candidates is None else [(m, r) for m, listed in candidates.items() for r in listed],
            positions=[train.span_digest, test.span_digest] if common.positions else None,
            chat=task.chat or None, spans=task.spans, skip_bad=task.skip_bad or None, columns=task.columns,
            verify=verify,  # by default, whether the circuit is tested depends on nothing but the other inputs
        )  # fmt: skip
        if has_result and not dry_run:
            try:
                discovery = read_result(folder)
            except InputError as error:
                raise InputError(f"{error}, with --overwrite") from None
            check_same(folder, discovery.run.made_from or None, inputs)
            _show(folder, discovery, read_verification(folder), json)
            return
        if not dry_run:
            note_resumed(session)  # before the plan of learning is stored
        if learner is not None and has_budget:
            by_learning = _plan_within(minutes, loaded, train, settings, learner, common.time_limit, session)
        recipes = merge_recipes(without_learning, by_learning)
        pairs = tuple(list_recipes(recipes))
        learners = dict.fromkeys(recipe.learner for _, recipe in pairs if recipe.learner)
        selected = SelectWork(train, settings, pairs)
        work: list[Work] = [
            ScoreWork(train, settings),
            *(LearnWork(train, settings, learner) for learner in learners),
            selected,
            *(EvaluateWork(splits[name], settings, selected=selected) for name in splits if name != "train"),
        ]
        if verify is not False:
            work += forecast_tests(loaded, test, settings, task.seed, is_forced=verify is True)
        if show_forecast(loaded, work, session, dry_run, json, has_result=False):
            if tune:
                note("the plan doesn't include tuning, which evaluates every recipe on every fold")
            return
        if not json:
            graph = settings.graph(loaded.graph, train)
            explain(f"{graph}, {graph.count(graph.n_edges)}", _short_name(loaded.name))
            counts = f"{len(train)} pairs to score on ({train.split}), {len(test)} to evaluate on ({test.split})"
            explain(counts, train.name)
            show_published(settings)
        with show_progress(session) as session:
            discovery = discover(
                loaded, train, test, settings, recipes, tune_among=candidates, validation=validation, learn_from=start,
                stability=stability, seed=task.seed, made_from=inputs, session=session,
            )  # fmt: skip
            tested = None
            if verify is not False:
                tested = verify_run(loaded, test, discovery, task.seed, verify is True, session)
        write_result(discovery, folder, overwrite, tested)
    _show(folder, discovery, tested, json)


def _check_options(
    common: options.RunOptions,
    spans: str | None,
    tune: bool,
    learn_budget: float | None,
    verify: bool | None,
    stability: int,
) -> None:
    """Raise InputError for options that exclude each other, or that are out of range."""
    if tune and common.as_published:
        raise InputError("--tune doesn't look at test examples, but --as-published does; give one of them")
    common.check_kind(spans)
    if verify and common.level != "edge":
        raise InputError(f"--verify tests circuits of edges; give one of --verify and --level {common.level}")
    if common.learned and common.as_published:
        raise InputError("the paper's script learns nothing; give one of --learned and --as-published")
    if common.learned is not None and learn_budget is not None:
        flag = "--learned" if common.learned else "--no-learned"
        raise InputError(f"{flag} decides without a time budget; give one of {flag} and --learn-budget")
    if stability < 0 or stability == 1 or stability > MOST_RESAMPLES:
        raise InputError(f"--stability must be 2 to {MOST_RESAMPLES} resamples, or 0 for no overlap, not {stability}")


def _why_nothing_is_learned(common: options.RunOptions, settings: Settings) -> str:
    """Return the option that turns learning off."""
    if common.learned is False:
        return "--no-learned"
    if settings.can_learn:
        return "--learn-budget 0"
    if common.as_published:
        return "--as-published"
    return "--level neuron" if common.level == "neuron" else f"--metric {settings.metric.name} has no gradient"


def _show(folder: Path, discovery: Discovery, tested: dict[str, Any] | None, json: bool) -> None:
    """Print a run, and the tests of its circuit if there are any."""
    if json:
        verdicts = None if tested is None else summarise_tests(tested)
        print_json(result_summary(discovery) | {"verification": verdicts, "out": str(folder)})
        return
    show_run(folder, discovery)
    if tested is not None:
        show_verdicts(tested)


def _plan_within(
    minutes: float,
    model: models.Model,
    train: Task,
    settings: Settings,
    learner: TopKLearner,
    time_limit: float | None,
    session: Session,
) -> Recipes:
    """Return recipes on rankings that can be learned within a number of minutes; if none can, on calibrated scores."""
    from ..recipes.forecast import plan_learning

    plan = plan_learning(model, train, settings, learner, minutes, session)
    if plan.learner is None:
        if math.isinf(plan.seconds):
            why, more = "learning from a single example doesn't fit into memory", "use shorter prompts"
        else:
            why = f"learning would take about {duration(plan.seconds)}"
            more = f"--learn-budget {max(1, math.ceil(plan.seconds / 60))} allows it"
        note(f"rankings for CMD are calibrated, not learned: {why}; {more}")
        return calibrated_recipes(time_limit)
    if plan.learner.steps != learner.steps:
        steps = f"{plan.learner.steps} steps instead of {learner.steps}"
        note(f"rankings are learned in {steps}, to take about {minutes:g} min or less; --learn-budget allows more")
    return learned_recipes(plan.learner, time_limit)


def _load_splits(
    model: models.Model, task: options.TaskOptions, split: str, tune: bool, as_published: bool
) -> tuple[Task, Task, Task | None]:
    """Return the examples to score on, those to evaluate on, and those to choose recipes on, if there are others.

    A file without splits is split, if it has enough distinct rows.
    """
    name, whole = task.task, task.load_whole(model)
    is_file = is_task_file(name)
    load = partial(task.load_split, whole, model)
    train, test, validation = load("train"), load(split), None
    if whole is not None:
        note(f"{name} has no splits, so a third of its rows each is used for {', '.join(SPLITS)}")
    if len(train) < 2:
        raise InputError(f"{name} has {len(train)} example to score on, but the bootstrap needs at least 2")
    if tune:
        return train, test, load("validation")
    if not as_published and split != "validation":  # the paper's script chooses on test
        if whole is not None or not is_file or task.has_splits("validation"):
            validation = load("validation")
        elif task.has_splits():
            note(f"{name} has no rows of split validation, so recipes are chosen on {split}; --tune uses train")
    return train, test, validation


def _short_name(name: str) -> str:
    path = Path(name)
    return path.stem if is_task_file(name) else path.name
