"""edgewise run: score, select, evaluate and report."""

from __future__ import annotations

import warnings
from itertools import groupby
from pathlib import Path
from typing import Any

from .. import models
from ..errors import InputError
from ..evaluate.curve import SIZES
from ..io.atomic import check_folder
from ..recipes.discovery import Discovery
from ..recipes.recipe import learned_recipes, merge_recipes, paper_recipes, shrinkage_recipes
from ..recipes.settings import Settings, published_words
from ..report.circuits import open_run_circuit
from ..report.formatting import format_interval, format_number
from ..report.tables import KEPT_LEGEND, LOW_ACCURACY, MARKS_LEGEND, area_table
from ..report.write_result import NotShownWarning, write_result
from ..results.result_folder import FILE_PATTERN, result_summary
from ..tasks import Task, has_splits, is_task_file
from . import options
from .console import (
    explain,
    note,
    out,
    print_json,
    print_tables,
    say,
    show_forecast,
    show_progress,
    warn,
    warn_of_copies,
    warn_of_few,
    warn_of_trend,
)
from .options import option
from .show import show_open

MOST_RESAMPLES = 1000
# Rankings of graphs with at most this many edges are learned in seconds.
SMALL_GRAPH = 2000
# Files that people open first.
FIRST_FILES = ("viewer.html", "README.md", "figures/", "circuits/")


def command(
    *,
    model: options.ModelOptions,
    task: options.TaskOptions,
    scoring: options.ScorerOptions,
    intervals: options.IntervalOptions,
    solver: options.SolverOptions,
    learning: options.LearningOptions,
    evaluation: options.EvaluationOptions,
    machine: options.MachineOptions,
    split: str = option("test", "Task", "The split to evaluate on. Edges are scored on train."),
    resamples: int = option(10, "Selection", "Number of bootstrap resamples."),
    pnr: float = option(0.5, "Selection", "Recipes with PNR: the least share of positive edges, from 0 to 1."),
    kappa: float | None = options.KAPPA,
    tune: bool = option(
        False, "Selection", "Also choose a solver, a filter and a PNR by cross-validation, without test.", "--tune"
    ),
    as_published: bool = options.AS_PUBLISHED,
    stability: int = option(5, "Evaluation", "Resamples of train for the overlap of circuits; 0 for no overlap."),
    batch_size: int | None = options.BATCH_SIZE,
    out_folder: Path | None = option(None, "Output", "The result folder; by default results/MODEL-TASK.", "--out"),
    eap_ig_json: bool = option(
        False, "Output", "Write circuits/ as EAP-IG's json; these files are large.", "--eap-ig-json"
    ),
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Find circuits with every recipe of the paper, for both measures, and evaluate how faithful they are.

    The measures are CMD, the integrated circuit-model distance (the area between faithfulness and 1: lower is better),
    and CPR, the integrated circuit performance ratio (the area below faithfulness: higher is better).

    Scores edges on train, selects circuits of ten sizes by each recipe (greedy or ILP, with and without bootstrapping
    and PNR), and evaluates them on test. Run the same command again to resume a stopped run.

    With --tune, edges are scored on train and validation, and one more recipe is chosen there by cross-validation.
    With --kappa, there are also recipes on shrunk scores. With --learned, rankings are also learned on train, and a
    portfolio takes for every size the recipe that is best on validation.
    """
    from ..pipeline import discover
    from ..recipes.forecast import EvaluateWork, LearnWork, ScoreWork, forecast
    from ..recipes.tuning import tuning_recipes, tuning_task
    from ..score.run_scorer import has_partial_scores

    folder = out_folder or Path("results") / f"{_short_name(model.model)}-{_short_name(task.task)}"
    check_folder(folder, overwrite, FILE_PATTERN)
    if tune and as_published:
        raise InputError("--tune doesn't look at test examples, but --as-published does; give one of them")
    if learning.learned and as_published:
        raise InputError("the paper's script learns nothing; give one of --learned and --as-published")
    if stability < 0 or stability == 1 or stability > MOST_RESAMPLES:
        raise InputError(f"--stability must be 2 to {MOST_RESAMPLES} resamples, or 0 for no overlap, not {stability}")
    bootstrap = intervals.bootstrap(resamples, task.seed)
    settings = options.build_settings(scoring, evaluation, bootstrap, solver, machine, batch_size, as_published)
    recipes = paper_recipes(settings.bootstrap, pnr, solver.time_limit)
    if kappa is not None:
        recipes = merge_recipes(recipes, shrinkage_recipes(kappa, pnr, solver.time_limit))
    by_learning = learned_recipes(learning.build(task.seed), solver.time_limit)
    with machine.session(folder, dry_run) as session:
        loaded = model.load()
        train, test = _load_tasks(loaded, task, split)
        if tune:
            train = tuning_task(train, task.load(loaded, "validation"), test)
        is_small = loaded.graph.n_edges <= SMALL_GRAPH
        learns = is_small and not as_published if learning.learned is None else learning.learned
        learning.check_used(learns)
        validation = None
        if learns:
            recipes = merge_recipes(recipes, by_learning)
            # With --tune, rankings are learned on validation too, so they can't be compared there.
            validation = None if tune else _load_validation(loaded, task, split)
        every = [recipe for listed in recipes.values() for recipe in listed]
        learners = dict.fromkeys(recipe.learner for recipe in every if recipe.learner)
        work = [ScoreWork(train, settings), *(LearnWork(train, settings, learner) for learner in learners)]
        evaluated = [test] if validation is None else [test, validation]
        work += [EvaluateWork(examples, settings, len(every) * len(SIZES)) for examples in evaluated]
        if show_forecast(forecast(loaded, work, session.engine, exact=dry_run), dry_run, json):
            if tune:
                note("the plan doesn't include tuning, which evaluates every recipe on every fold")
            return
        if not json:
            explain(f"{loaded.graph}, {loaded.graph.n_edges:,} edges", _short_name(loaded.name))
            pairs = f"{len(train)} pairs to score on ({train.split}), {len(test)} to evaluate on ({test.split})"
            explain(pairs, train.name)
            show_published(settings)
        candidates = merge_recipes(
            tuning_recipes(bootstrap, solver.time_limit), by_learning if learning.learned else {}
        )
        if has_partial_scores(
            session, loaded, train, settings.scorer, settings.metric, settings.batch_size, settings.memory
        ):
            note("resuming a stopped run")
        with show_progress(session) as session:
            discovery = discover(
                loaded, train, test, settings, recipes, tune_among=candidates if tune else None,
                validation=validation, stability=stability, seed=task.seed, session=session,
            )  # fmt: skip
        for learner, ranking in discovery.learned.items():
            warn_of_trend(learner.measure.name, ranking)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", NotShownWarning)
            write_result(discovery, folder, overwrite, eap_ig_json)
        for warning in raised:
            if issubclass(warning.category, NotShownWarning):
                warn(f"warning: {warning.message}")
    if json:
        print_json(result_summary(discovery) | {"out": str(folder)})
    else:
        _show(folder, discovery)


def _load_tasks(model: models.Model, task: options.TaskOptions, split: str) -> tuple[Task, Task]:
    """Return the examples to score on and those to evaluate on. Print a note if they overlap."""
    name, train, test = task.task, task.load(model, "train"), task.load(model, split)
    if len(train) < 2:
        raise InputError(f"{name} has {len(train)} example to score on, but the bootstrap needs at least 2")
    shared = len(set(train.examples) & set(test.examples))
    if is_task_file(name) and not has_splits(Path(name)):
        note(f"{name} has no `split` column, so edges are scored and circuits evaluated on the same examples")
    elif shared:
        note(f"{shared} of the {len(test)} examples to evaluate on are also scored on; give splits that differ")
    warn_of_few(len(test))
    warn_of_copies(test.copies, len(test))
    return train, test


def _load_validation(model: models.Model, task: options.TaskOptions, split: str) -> Task | None:
    """Return the examples that a portfolio is chosen on; None if there are none that aren't evaluated on."""
    if split == "validation":
        return None
    if is_task_file(task.task) and not has_splits(Path(task.task), "validation"):
        if has_splits(Path(task.task)):
            note(f"{task.task} has no rows of split validation, so there is no portfolio")
        return None
    return task.load(model, "validation")


def show_published(settings: Settings) -> None:
    """Print how a run with --as-published differs from others."""
    for sentence in (published_words(settings) or {}).values():
        say(f"as published: {sentence}")


def show_areas(result: Discovery) -> None:
    """Print the areas of all recipes, with a legend."""
    for measure in result.measures:
        print_tables(area_table(result.of(measure), measure, out.width))
    for sentence in (MARKS_LEGEND, KEPT_LEGEND, f"faithfulness: {result.settings.faithfulness.summary}"):
        explain(sentence)


def _show(folder: Path, result: Discovery) -> None:
    """Print the result of a run."""
    record, graph = result_summary(result), result.run.graph
    top, beats = result.run.accuracy.top, result.run.accuracy.beats
    say(f"accuracy: the top answer is right in {top:.1%}; the correct answer beats the incorrect in {beats:.1%}")
    if beats < LOW_ACCURACY:
        warn("warning: the model can hardly do this task, so its circuit may mean nothing")
    show_areas(result)
    for measure, overlaps in record["overlap"].items():
        means = ", ".join(f"{name} {overlap['mean']:.2f}" for name, overlap in overlaps.items())
        say(f"overlap of {measure} circuits over resamples of the training examples, mean over sizes: {means}")
    say(f"{result.statistics.sign_instability:.1%} of the edges changed sign between bootstrap resamples")
    exported = "; ".join(f"{b}: {one['recipe']}, chosen on {one['chosen_on']}" for b, one in record["circuits"].items())
    say(f"circuits/ has the circuits of {exported}")
    _show_tuning(record)
    for measure, choices in record["portfolio"].items():
        # In a small graph, some sizes have no edges; all recipes are equal there.
        sizes = [(share, name) for share, name in choices.items() if int(float(share) * graph.n_edges)]
        ranges = []
        for name, same in groupby(sizes, lambda size: size[1]):
            shares = [share for share, _ in same]
            ranges.append(f"{shares[0]} {name}" if len(shares) == 1 else f"{shares[0]}-{shares[-1]} {name}")
        say(f"Portfolio {measure}, by share of the edges: {'; '.join(ranges)}")
    show_open(open_run_circuit(result))
    others = [f"edgewise show {folder} --measure {measure}" for measure in list(record["circuits"])[1:]]
    explain(f"more: {'; '.join((*others, f'edgewise compare {folder}', 'edgewise show --help'))}")
    files = sorted(f"{path.name}{'/' * path.is_dir()}" for path in folder.iterdir())
    listed = [*(name for name in FIRST_FILES if name in files), *(name for name in files if name not in FIRST_FILES)]
    say(f"results in {folder}: {', '.join(listed)}")
    explain(f"{result.run.seconds['total']:.0f} s in all")


def _show_tuning(record: dict[str, Any]) -> None:
    tuning = record["tuning"] or {"chosen": {}}
    for measure, best in tuning["chosen"].items():
        parameters = record["circuits"][measure]["parameters"]
        greedy, lead = tuning["candidates"][measure][0]["area"], best["against_greedy"]
        tuned = f"{best['method']}{f' ({parameters})' * bool(parameters)}, {format_number(best['area'])}"
        interval = format_interval(lead["low"], lead["high"], signed=True)
        say(
            f"Tuned {measure}: {tuned} against greedy's {format_number(greedy)} on held-out examples of "
            f"{record['train']['split']}: {format_number(lead['difference'], signed=True)} {interval}"
        )


def _short_name(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".jsonl", ".csv") else path.name
