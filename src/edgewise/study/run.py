"""Run a study, cell by cell. A cell is a model on a task; each of its evaluations is a call of `discover`.

Protocol: score on train, choose recipe and hyper-parameters on validation, report on test. The study's store keeps
scores and finished cells, so one scoring pass serves every recipe, and a stopped study resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluate import BOTH_MEASURES, Measure
from ..models import Model, load_source
from ..pipeline import discover
from ..recipes import Discovery, Recipe
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, SelectWork, Work, forecast
from ..recipes.run_info import ModelAccuracy
from ..recipes.stability import mean_overlap, ranking_overlap, recipe_overlap
from ..recipes.stages import MeasureRecipe
from ..runtime import DEFAULT_SESSION, IN_PROCESS, Engine, Session, Store
from ..tasks import Task, has_rows, load_task, load_unsplit
from ..tasks.data_sets import PREFIX
from . import folder as study_folder
from .folder import Cell, OpenStudy, Repeats, Study, best_informed, collect_repeats, recipes_to_test
from .plan import TEST, TRAIN, VALIDATION, Plan

OVERLAP_RESAMPLES = 5


def run_study(plan: Plan, folder: str | Path, overwrite: bool = False, session: Session = DEFAULT_SESSION) -> Study:
    """Run the unfinished cells of a plan in a folder. A model whose cells are all finished is not loaded.

    Parameters
    ----------
    overwrite
        Replace another study in the folder, once this one is finished.
    session
        Engine and progress. The study has its own store, in the folder.

    Returns
    -------
    Study
        The outcomes of all cells.

    Examples
    --------
    >>> edgewise.run_study(edgewise.Plan("demo", "ioi", seeds=2), "results/study")
    """
    with study_folder.open_study(Path(folder), plan, overwrite) as opened:
        return resume_study(plan, opened, session)


def resume_study(plan: Plan, opened: OpenStudy, session: Session = DEFAULT_SESSION) -> Study:
    """Run the unfinished cells of a plan in a folder that is open for it."""
    store, record = Store(opened.folder / study_folder.STORE), study_folder.read_study_file(opened.folder)["plan"]
    cells: dict[tuple[str, str], Cell] = {}
    # Every draw of examples has a step for validation and one for test. The overlap is one more.
    n_steps = {task: 2 * len(set(plan.data_seeds(task))) + 1 for task in plan.tasks}
    done, total = 0, len(plan.models) * sum(n_steps.values())
    with session.reporting() as reporting:
        session = replace(reporting, store=store)

        def advance(steps: int = 1) -> None:
            nonlocal done
            done += steps
            session.report("study", done, total)

        advance(0)
        for name in plan.models:
            model = None
            for task in plan.tasks:
                key = study_folder.cell_key(record, name, task)
                cell = study_folder.find_cell(store, key, plan, name, task)
                if cell is None:
                    model = model or load_source(plan.source(name))
                    cell = _run_cell(plan, model, name, task, session, advance)
                    study_folder.save_cell(store, key, cell)
                    advance()
                else:
                    advance(n_steps[task])
                cells[task, name] = cell
    return Study(plan, tuple(cells[task, name] for task in plan.tasks for name in plan.models))


def _run_cell(plan: Plan, model: Model, name: str, task: str, session: Session, advance: Callable[[], None]) -> Cell:
    """Run one cell; call `advance` after every evaluation."""
    data_seeds = plan.data_seeds(task)
    # All splits first: a missing one raises before the work, not after it.
    tasks = {data_seed: load_splits(plan, model, task, data_seed) for data_seed in dict.fromkeys(data_seeds)}

    def evaluate(split: str, recipes: Sequence[Sequence[MeasureRecipe]]) -> dict[int, Discovery]:
        """Evaluate the recipes of every seed, together for seeds that share examples."""
        results = {}
        for data_seed, splits in tasks.items():
            seeds = [seed for seed, of_seed in enumerate(data_seeds) if of_seed == data_seed]
            pairs = [pair for seed in seeds for pair in recipes[seed]]
            train, evaluated = splits[TRAIN], splits[split]
            results[data_seed] = discover(model, train, evaluated, plan.settings, pairs, attention=0, session=session)
            advance()
        return results

    recipes = [plan.recipes(seed) for seed in range(plan.seeds)]
    validated = evaluate(VALIDATION, recipes)
    validation = _over_seeds(validated, recipes, data_seeds)
    # Recipes of different seeds differ in their resamples only: that of seed 0 stands for those of all seeds.
    rows = [recipes[0].index(pair) for pair in recipes_to_test(validation)]
    chosen_recipes = [[pairs[row] for row in rows] for pairs in recipes]
    tested = evaluate(TEST, chosen_recipes)

    def overlaps(measure: Measure, recipe: Recipe) -> tuple[float, ...]:
        """Return the mean overlap for every draw. Rankings that were learned without resamples have none."""
        row, means = recipes[0].index((measure, recipe)), []
        for data_seed, result in validated.items():
            of_seed, settings = recipes[data_seed][row][1], result.settings
            if of_seed.learner is not None:
                by_size = ranking_overlap(result.learned[of_seed.learner], of_seed, measure, settings)
            else:
                by_size = recipe_overlap(
                    result.scores, of_seed, measure, settings, OVERLAP_RESAMPLES, store=session.store
                )
            if by_size is not None:
                means.append(mean_overlap(by_size, settings.sizes))
        return tuple(means)

    accuracies = [result.run.accuracy for result in tested.values()]
    beats = [accuracy.beats for accuracy in accuracies if accuracy.beats is not None]
    return Cell(
        name,
        task,
        {split: len(examples) for split, examples in tasks[data_seeds[0]].items()},
        ModelAccuracy(float(np.mean([a.top for a in accuracies])), float(np.mean(beats)) if beats else None),
        validation,
        _over_seeds(tested, chosen_recipes, data_seeds),
        {
            measure: {
                "greedy": overlaps(measure, validation[measure][0].recipe),
                "chosen": overlaps(measure, best_informed(validation[measure]).recipe),
            }
            for measure in BOTH_MEASURES
        },
    )


def load_splits(
    plan: Plan, model: Model, task: str, seed: int, splits: Sequence[str] = (TRAIN, VALIDATION, TEST)
) -> dict[str, Task]:
    """Return split -> examples of a task."""
    load = load_unsplit if task in plan.unsplit else load_task
    columns = dict(plan.columns) if task.startswith(PREFIX) else None
    skip_bad = plan.skip_bad and has_rows(task)
    how: dict[str, Any] = {"spans": plan.spans, "chat": plan.chat, "skip_bad": skip_bad, "columns": columns}
    return {split: load(task, model, split, plan.examples, seed, **how) for split in splits}


def _over_seeds(
    results: Mapping[int, Discovery], recipes: Sequence[Sequence[MeasureRecipe]], data_seeds: tuple[int, ...]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return the curves of every recipe over seeds. A result has the outcomes of all seeds that share its examples."""
    outcomes = {data_seed: iter(result.outcomes) for data_seed, result in results.items()}
    by_seed = [[next(outcomes[of_seed]).curve for _ in recipes[seed]] for seed, of_seed in enumerate(data_seeds)]
    return collect_repeats(recipes[0], zip(*by_seed, strict=True), data_seeds)


def study_forecasts(plan: Plan, engine: Engine = IN_PROCESS) -> list[Forecast]:
    """Forecast the cost of a study for each of its models. The examples of seed 0 stand for those of all seeds."""
    learners = dict.fromkeys(recipe.learner for _, recipe in plan.recipes(0) if recipe.learner is not None)
    settings = plan.settings

    def list_work(model: Model, task: str) -> list[Work]:
        splits, draws = load_splits(plan, model, task, 0), len(set(plan.data_seeds(task)))
        # Seeds that share examples evaluate their recipes together.
        seeds = range(plan.seeds if draws == 1 else 1)
        recipes = tuple(dict.fromkeys(pair for seed in seeds for pair in plan.recipes(seed)))
        tested = tuple({(measure, recipe.name): (measure, recipe) for measure, recipe in recipes}.values())
        selected = {pairs: SelectWork(splits[TRAIN], settings, pairs) for pairs in (recipes, tested)}
        return [
            ScoreWork(splits[TRAIN], settings, times=draws),
            *(LearnWork(splits[TRAIN], settings, learner, times=draws) for learner in learners),
            replace(selected[recipes], times=draws),
            EvaluateWork(splits[VALIDATION], settings, selected=selected[recipes], times=draws),
            EvaluateWork(splits[TEST], settings, selected=selected[tested], times=draws),
        ]

    return forecast_models(plan, [(name, task) for name in plan.models for task in plan.tasks], list_work, engine)


def forecast_models(
    plan: Plan,
    cells: Sequence[tuple[str, str]],
    list_work: Callable[[Model, str], list[Work]],
    engine: Engine,
) -> list[Forecast]:
    """Forecast the cost of each model: of what `list_work` lists for each of its tasks in `cells`."""
    forecasts = []
    for name in plan.models:
        model = load_source(plan.source(name))
        works = [work for of_model, task in cells if of_model == name for work in list_work(model, task)]
        forecasts.append(forecast(model, works, engine, exact=True))
    return forecasts
