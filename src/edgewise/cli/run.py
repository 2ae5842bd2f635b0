"""edgewise run: score, select, evaluate and report.

`load_command` in cli/__init__.py calls `command`, with its option groups filled in by `options.expand`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import models
from ..errors import InputError
from ..evaluate.ablations import ABLATIONS
from ..io.atomic import check_folder
from ..recipes.discovery import Discovery
from ..recipes.recipe import Recipes, learned_recipes, list_recipes, merge_recipes, paper_recipes, shrinkage_recipes
from ..recipes.settings import LEARN_MINUTES, Settings
from ..report.circuit_summary import open_run_circuit
from ..report.verification import read_verification
from ..report.write_result import write_result
from ..results.result_folder import FILE_PATTERN, is_result, read_result, read_start, result_summary
from ..runtime.unit_keys import custom_digests
from ..tasks import SPLITS, Task, has_splits, is_task_file, split_task
from ..tasks.metrics import METRICS
from . import options
from .console import duration, explain, note, print_json, show_forecast, show_progress
from .options import option
from .repeat import check_same, describe_positions, describe_prompts, made_from
from .report import show_published, show_run
from .verify import show_verdicts

if TYPE_CHECKING:
    from ..learn import TopKLearner
    from ..recipes.forecast import Work
    from ..runtime.session import Session
    from ..verify.verify_circuit import VerificationPlan

MOST_RESAMPLES = 1000
# A file without splits is split if it has at least this many distinct rows.
LEAST_SPLIT = 30
# Tests of the circuit by default: with 60 draws and 80 examples every test can reach significance. So many operations
# take about ten seconds on two cores.
QUICK_CIRCUITS, QUICK_EXAMPLES, QUICK_OPERATIONS = 60, 80, 1e12


def command(
    *,
    model: options.ModelOptions,
    task: options.TaskOptions,
    common: options.RunOptions,
    split: str = option("test", "Task", "The split to evaluate on. Edges are scored on train."),
    resamples: int = option(10, "Selection", "Number of bootstrap resamples."),
    pnr: float = option(0.5, "Selection", "Recipes with PNR: the least share of positive edges, from 0 to 1."),
    kappa: float | None = options.KAPPA,
    tune: bool = option(
        False, "Selection", "Also choose a solver, a filter and a PNR by cross-validation, without test."
    ),
    learn_budget: float | None = option(
        None, "Learning", f"Minutes for learned rankings (default: {LEARN_MINUTES:g}; 0: none).", min=0
    ),
    learn_from: Path | None = options.LEARN_FROM,
    stability: int = option(5, "Evaluation", "Resamples of train for the overlap of circuits; 0 for no overlap."),
    verify: bool | None = option(
        None,
        "Evaluation",
        "Test the chosen circuit as `edgewise verify` does, into verification.html. Default: with fewer circuits and "
        "examples, if that takes seconds.",
        "--verify/--no-verify",
    ),
    out_folder: Path | None = option(None, "Output", "The result folder; by default results/MODEL-TASK.", "--out"),
    eap_ig_json: bool = option(False, "Output", "Write circuits/ as EAP-IG's json; these files are large."),
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Find circuits with every recipe of the paper, for both measures, and evaluate how faithful they are.

    The measures are CMD, the integrated circuit-model distance (the area between faithfulness and 1: lower is better),
    and CPR, the integrated circuit performance ratio (the area below faithfulness: higher is better).

    Scores edges on train, selects circuits of ten sizes by each recipe (greedy or ILP, with and without bootstrapping
    and PNR), and evaluates them on test. Run the same command again to resume a stopped run.

    The recipe whose circuits are written to circuits/ is chosen on validation if the task has it, else on test. With
    --tune, edges are scored on train and validation, and one more recipe is chosen there by cross-validation.
    With --kappa, there are also recipes on shrunk scores. If they can be learned within --learn-budget, there are also
    rankings that are learned on train, and a portfolio of recipes that are chosen, for every size, on validation.

    If it takes seconds, as for the embedded models, the chosen circuit is also tested: does it beat random circuits,
    are edges superfluous, and so on (verification.html).
    """
    from ..pipeline import discover
    from ..recipes.tuning import tuning_recipes, tuning_task
    from ..score.run_scorer import has_partial_scores

    folder = out_folder or Path("results") / f"{_short_name(model.model)}-{_short_name(task.task)}"
    is_made = not overwrite and is_result(folder)
    check_folder(folder, overwrite or is_made, FILE_PATTERN)
    _check_options(common, tune, learn_budget, verify, eap_ig_json, stability)
    bootstrap, limit = common.build_bootstrap(resamples, task.seed), common.time_limit
    settings = common.build_settings(bootstrap)
    recipes = paper_recipes(settings.bootstrap, pnr, limit)
    if kappa is not None:
        recipes = merge_recipes(recipes, shrinkage_recipes(kappa, pnr, limit))
    learner, minutes = common.build_learner(task.seed), LEARN_MINUTES if learn_budget is None else learn_budget
    by_learning = learned_recipes(learner, limit)
    can_learn = minutes > 0 and settings.metric.differentiable
    can_learn = can_learn and not common.as_published and not common.positions and common.level != "neuron"
    may_learn = can_learn if common.learned is None else common.learned
    common.check_learning(may_learn)
    if learn_from is not None and not may_learn:
        raise InputError("--learn-from needs learning: nothing would be learned")
    start = None if learn_from is None else read_start(learn_from)
    candidates = merge_recipes(tuning_recipes(bootstrap, limit), by_learning if common.learned else {})
    with common.session(folder, dry_run) as session:
        loaded = model.load()
        train, test = _load_tasks(loaded, task, split)
        settings = replace(settings, metric=settings.metric.for_task(train))
        if tune:
            train = tuning_task(train, task.load(loaded, "validation"), test)
        # --tune scores on validation too, so recipes can't be compared there. The paper's script chooses on test.
        validation = None if tune or common.as_published else _load_validation(loaded, task, split)
        splits = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
        inputs = made_from(
            model=loaded.digest, task=task.task, seed=task.seed, stability=stability, settings=settings,
            examples={name: len(examples) for name, examples in splits.items()},
            prompts={f"{name} ({examples.split})": examples.digest for name, examples in splits.items()},
            # What is planned within the budget depends on the clock, so it isn't compared.
            recipes=list_recipes(merge_recipes(recipes, by_learning if may_learn else {})),
            learn_budget=minutes if may_learn and common.learned is None else None,
            learn_from=None if start is None else [ranking.digest for ranking in start.values()],
            tuned_among=[(m, r) for m, listed in candidates.items() for r in listed] if tune else None,
            eap_ig_json=eap_ig_json, custom=custom_digests([settings.scorer]) or None,
            **describe_positions(common.positions, train, test), **describe_prompts(task.chat, task.spans),
            # By default, whether the circuit is tested depends on nothing but the other inputs.
            **({} if verify is None else {"verify": verify}),
        )  # fmt: skip
        if is_made and not dry_run:
            discovery = _read_made(folder, inputs)
            _show(folder, discovery, read_verification(folder), json)
            return
        if may_learn and common.learned is None:
            by_learning = _plan_within(minutes, loaded, train, settings, learner, limit, session)
        if may_learn:
            recipes = merge_recipes(recipes, by_learning)
        if show_forecast(loaded, _list_work(recipes, settings, train, test, validation), session, dry_run, json):
            if tune:
                note("the plan doesn't include tuning, which evaluates every recipe on every fold")
            return
        if not json:
            graph = settings.graph(loaded.graph, train)
            explain(f"{graph}, {graph.count(graph.n_edges)}", _short_name(loaded.name))
            pairs = f"{len(train)} pairs to score on ({train.split}), {len(test)} to evaluate on ({test.split})"
            explain(pairs, train.name)
            show_published(settings)
        scored_by = (settings.scorer, settings.metric, settings.batch_size, settings.memory)
        scoring = (*scored_by, settings.positions, settings.level)
        if has_partial_scores(session, loaded, train, *scoring):
            note("resuming a stopped run")
        with show_progress(session) as session:
            discovery = discover(
                loaded, train, test, settings, recipes, tune_among=candidates if tune else None,
                validation=validation, learn_from=start, stability=stability, seed=task.seed, made_from=inputs,
                session=session,
            )  # fmt: skip
            tested = None if verify is False else _verify(loaded, test, discovery, task.seed, verify is True, session)
        write_result(discovery, folder, overwrite, eap_ig_json, tested)
    _show(folder, discovery, tested, json)


def _check_options(
    common: options.RunOptions,
    tune: bool,
    learn_budget: float | None,
    verify: bool | None,
    eap_ig_json: bool,
    stability: int,
) -> None:
    """Raise InputError for options that exclude each other, or that are out of range."""
    if tune and common.as_published:
        raise InputError("--tune doesn't look at test examples, but --as-published does; give one of them")
    if common.positions and (common.learned or eap_ig_json):
        other = "--learned" if common.learned else "--eap-ig-json"
        raise InputError(
            f"--positions makes circuits of (edge, span) pairs, which {other} doesn't know; give one of them"
        )
    options.check_kind(common.positions, common.level)
    if verify and (common.positions or common.level != "edge"):
        other = "--positions" if common.positions else f"--level {common.level}"
        raise InputError(f"--verify tests circuits of edges; give one of --verify and {other}")
    if common.learned and common.level == "neuron":
        raise InputError("rankings are learned for edges and nodes, not for neurons; give one of --learned and --level")
    if common.learned and common.as_published:
        raise InputError("the paper's script learns nothing; give one of --learned and --as-published")
    if common.learned is not None and learn_budget is not None:
        flag = "--learned" if common.learned else "--no-learned"
        raise InputError(f"{flag} decides without a time budget; give one of {flag} and --learn-budget")
    if stability < 0 or stability == 1 or stability > MOST_RESAMPLES:
        raise InputError(f"--stability must be 2 to {MOST_RESAMPLES} resamples, or 0 for no overlap, not {stability}")


def _show(folder: Path, discovery: Discovery, tested: dict[str, Any] | None, json: bool) -> None:
    """Print a run, and the tests of its circuit if there are any."""
    if json:
        print_json(result_summary(discovery) | {"out": str(folder)})
        return
    show_run(folder, discovery)
    if tested is not None:
        show_verdicts(tested)


def _verify(
    model: models.Model, test: Task, discovery: Discovery, seed: int, is_forced: bool, session: Session
) -> dict[str, Any] | None:
    """Return the tests of the circuit that the run exports by default; None if there is nothing to test.

    If they are not forced, there are few draws and examples, and nothing is tested if that could take more than
    seconds, or if there are too few examples for all tests.
    """
    from ..verify import VerifySettings, plan_verification, verify_circuit

    opened, settings = open_run_circuit(discovery), discovery.settings
    verify_settings = VerifySettings(seed=seed)
    if not is_forced:
        verify_settings, n_examples = replace(verify_settings, n_circuits=QUICK_CIRCUITS), len(test)
        test = test.head(QUICK_EXAMPLES)
        if n_examples < QUICK_EXAMPLES or opened.circuit.graph != model.graph or model.module is None:
            return None
    try:
        plan = plan_verification(opened.circuit, verify_settings)
        if not is_forced and _count_operations(model, test, plan) > QUICK_OPERATIONS:
            return None
        result = verify_circuit(
            model, test, opened.circuit, verify_settings, metric=settings.metric, ablation=settings.ablation,
            batch_size=settings.batch_size, memory=settings.memory, session=session,
        )  # fmt: skip
    except InputError as error:
        if is_forced:
            note(f"the circuit is not tested: {error}")
        return None
    return {"circuit": opened.name} | result.record()


def _count_operations(model: models.Model, test: Task, plan: VerificationPlan) -> float:
    """Return roughly how many operations the tests of a circuit need: unlike a time, it is the same in every run."""
    weights = 0 if model.module is None else sum(weight.numel() for weight in model.module.parameters())
    conditions = len(ABLATIONS) + len(METRICS)  # of robustness, each with all random circuits
    passes = len(plan.circuits) + conditions * (1 + len(plan.groups["random"]))
    return 2.0 * weights * passes * len(test) * test.longest


def _read_made(folder: Path, inputs: dict[str, Any]) -> Discovery:
    """Return the result in a folder. Raise InputError if it was made from other inputs."""
    try:
        discovery = read_result(folder)
    except InputError as error:
        raise InputError(f"{error}, with --overwrite") from None
    check_same(folder, discovery.run.made_from or None, inputs)
    return discovery


def _plan_within(
    minutes: float,
    model: models.Model,
    train: Task,
    settings: Settings,
    learner: TopKLearner,
    time_limit: float | None,
    session: Session,
) -> Recipes:
    """Return the recipes on rankings that can be learned within a number of minutes; none, with a note, if none can."""
    from ..recipes.learning_plan import plan_learning

    plan = plan_learning(model, train, settings, learner, minutes, session)
    if plan.learner is None and math.isinf(plan.seconds):
        note("no rankings are learned: a single example doesn't fit into memory")
        return {}
    if plan.learner is None:
        more = f"--learn-budget {max(1, math.ceil(plan.seconds / 60))}"
        note(f"no rankings are learned: that would take about {duration(plan.seconds)}; {more} allows it")
        return {}
    if (plan.learner.steps, plan.learner.batch) != (learner.steps, learner.batch):
        steps = f"{plan.learner.steps} steps of {plan.learner.batch} instead of {learner.steps} of {learner.batch}"
        note(f"rankings are learned in {steps}, to take {minutes:g} min or less; --learn-budget allows more")
    return learned_recipes(plan.learner, time_limit)


def _load_tasks(model: models.Model, task: options.TaskOptions, split: str) -> tuple[Task, Task]:
    """Return the examples to score on and those to evaluate on."""
    name, train, test = task.task, _load_split(model, task, "train"), _load_split(model, task, split)
    if _is_split_here(model, task):
        note(f"{name} has no splits, so a third of its rows each is used for {', '.join(SPLITS)}")
    if len(train) < 2:
        raise InputError(f"{name} has {len(train)} example to score on, but the bootstrap needs at least 2")
    return train, test


def _load_split(model: models.Model, task: options.TaskOptions, split: str) -> Task:
    """Return the examples of a split. A file without splits is split, if it has enough rows."""
    if not _is_split_here(model, task) or split not in SPLITS:
        return task.load(model, split)
    return split_task(replace(task, examples=None).load(model, split), split).head(task.examples)


def _is_split_here(model: models.Model, task: options.TaskOptions) -> bool:
    """Whether a task is a file without splits, with enough distinct rows to split it."""
    if not is_task_file(task.task) or has_splits(Path(task.task)):
        return False
    return len(set(replace(task, examples=None).load(model, "train").examples)) >= LEAST_SPLIT


def _load_validation(model: models.Model, task: options.TaskOptions, split: str) -> Task | None:
    """Return the examples that recipes are chosen on; None if there are none that aren't evaluated on."""
    if split == "validation":
        return None
    if _is_split_here(model, task):
        return _load_split(model, task, "validation")
    if is_task_file(task.task) and not has_splits(Path(task.task), "validation"):
        if has_splits(Path(task.task)):
            note(f"{task.task} has no rows of split validation, so recipes are chosen on {split}; --tune uses train")
        return None
    return task.load(model, "validation")


def _list_work(recipes: Recipes, settings: Settings, train: Task, test: Task, validation: Task | None) -> list[Work]:
    """Return the parts of the run whose cost is forecast."""
    from ..recipes.forecast import EvaluateWork, LearnWork, ScoreWork, SelectWork

    pairs = tuple(list_recipes(recipes))
    learners = dict.fromkeys(recipe.learner for _, recipe in pairs if recipe.learner)
    evaluated = [test] if validation is None else [test, validation]
    selected = SelectWork(train, settings, pairs)
    return [
        ScoreWork(train, settings),
        *(LearnWork(train, settings, learner) for learner in learners),
        selected,
        *(EvaluateWork(examples, settings, selected=selected) for examples in evaluated),
    ]


def _short_name(name: str) -> str:
    path = Path(name)
    return path.stem if is_task_file(name) else path.name
