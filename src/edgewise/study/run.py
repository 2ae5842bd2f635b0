"""Run a study, cell by cell. A cell is a model on a task; each of its evaluations is a call of `discover`.

Protocol: score on train, choose recipe and hyper-parameters on validation, report on test. Scorers are compared on test
without a choice. The session's store keeps scores and finished cells, so one scoring pass serves every recipe, and a
stopped study resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Measure, known_circuit
from ..evaluate.known import read_truth
from ..models import Model, load_source
from ..pipeline import discover
from ..recipes import Discovery, Recipe
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, SelectWork, Work, forecast
from ..recipes.run_info import mean_accuracy
from ..recipes.stability import mean_overlap, ranking_overlap, recipe_overlap
from ..recipes.stages import MeasureRecipe
from ..runtime import DEFAULT_SESSION, IN_PROCESS, Engine, Session, unit_key
from ..score import Scorer
from ..tasks import Task, has_rows, load_task, load_unsplit
from ..tasks.known import KNOWN
from .folder import (
    Cell,
    Repeats,
    Study,
    best_informed,
    cell_unit,
    collect_repeats,
    named,
    read_cell,
    recipes_to_test,
)
from .plan import TEST, TRAIN, VALIDATION, Plan
from .scorers import RandomRanking, compare_scorers, scorers_for

OVERLAP_RESAMPLES = 5


def run_study(plan: Plan, session: Session = DEFAULT_SESSION) -> Study:
    """Run a plan: a cell for every model and task.

    Parameters
    ----------
    session
        Store, engine and progress. With a store, a stopped call resumes; a model whose cells are all finished is not
        loaded.

    Returns
    -------
    Study
        The outcomes of all cells. `write_study` writes them, with tables and figures.

    Raises
    ------
    InputError
        If a model, a task or a scorer can't be used, or if the true circuit has another graph than a model.

    Examples
    --------
    >>> edgewise.run_study(edgewise.Plan("demo", "ioi", seeds=2))
    """
    truth = None if plan.truth is None else read_truth(plan.truth)
    store, cells = session.store, dict[tuple[str, str], Cell]()
    files = {} if store.folder is None else plan.files()
    with session.reporting() as session:
        for name in plan.models:
            model = None
            for task, of_model in plan.cells:
                if of_model != name:
                    continue
                session.report("study", len(cells), len(plan.cells))
                key = unit_key("cell", plan=plan, files=files, model=name, task=task)
                unit = store.find(key)
                if unit is None:
                    model = model or load_source(plan.source(name))
                    unit = store.save(key, cell_unit(_run_cell(plan, model, name, task, truth, session)))
                cells[task, name] = read_cell(unit, plan, task, name)
        session.report("study", len(cells), len(plan.cells))
    return Study(plan, tuple(cells[cell] for cell in plan.cells))


def _run_cell(plan: Plan, model: Model, name: str, task: str, truth: Circuit | None, session: Session) -> Cell:
    """Run one cell, after loading all its splits: a missing one raises before the work, not after it."""
    names = (TRAIN, TEST) if plan.scorers else (TRAIN, VALIDATION, TEST)
    draws = {seed: load_splits(plan, model, task, seed, names) for seed in dict.fromkeys(plan.data_seeds(task))}
    if not plan.scorers:
        return _compare_recipes(plan, model, name, task, draws, session)
    if truth is not None and truth.graph != model.graph:
        raise InputError(f"{plan.truth} is a circuit of {truth.graph}, but {name} is {model.graph}")
    if truth is None and plan.ranks_edges and name == task and name in KNOWN:
        truth = known_circuit(name)
    return compare_scorers(plan, model, name, task, draws, truth, session)


def _compare_recipes(
    plan: Plan, model: Model, name: str, task: str, draws: Mapping[int, Mapping[str, Task]], session: Session
) -> Cell:
    """Return a cell with a row per recipe. `draws` has the examples of every data seed by split."""
    data_seeds = plan.data_seeds(task)

    def evaluate(split: str, recipes: Sequence[Sequence[MeasureRecipe]]) -> dict[int, Discovery]:
        """Evaluate the recipes of every seed, together for seeds that share examples."""
        results = {}
        for data_seed, splits in draws.items():
            seeds = [seed for seed, of_seed in enumerate(data_seeds) if of_seed == data_seed]
            pairs = [pair for seed in seeds for pair in recipes[seed]]
            train, evaluated = splits[TRAIN], splits[split]
            results[data_seed] = discover(model, train, evaluated, plan.settings, pairs, attention=0, session=session)
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

    return Cell(
        name,
        task,
        tested[data_seeds[0]].run.graph.n_edges,
        {split: len(examples) for split, examples in draws[data_seeds[0]].items()},
        mean_accuracy([result.run.accuracy for result in tested.values()]),
        _over_seeds(tested, chosen_recipes, data_seeds),
        validation,
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
    columns = dict(plan.columns) if has_rows(task) else None
    skip_bad = plan.skip_bad and has_rows(task)
    how: dict[str, Any] = {"spans": plan.spans, "chat": plan.chat, "skip_bad": skip_bad, "columns": columns}
    return {split: load(task, model, split, plan.examples, seed, **how) for split in splits}


def _over_seeds(
    results: Mapping[int, Discovery], recipes: Sequence[Sequence[MeasureRecipe]], data_seeds: tuple[int, ...]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return the curves of every recipe over seeds. A result has the outcomes of all seeds that share its examples."""
    outcomes = {data_seed: iter(result.outcomes) for data_seed, result in results.items()}
    by_seed = [[next(outcomes[of_seed]).curve for _ in recipes[seed]] for seed, of_seed in enumerate(data_seeds)]
    return collect_repeats(named(recipes[0]), zip(*by_seed, strict=True), data_seeds)


def study_forecasts(plan: Plan, engine: Engine = IN_PROCESS) -> list[Forecast]:
    """Forecast the cost of a study for each of its models. The examples of seed 0 stand for those of all seeds."""
    forecasts = []
    for name in plan.models:
        model = load_source(plan.source(name))
        list_work = _scorer_work if plan.scorers else _recipe_work
        works = [work for task, of_model in plan.cells if of_model == name for work in list_work(plan, model, task)]
        forecasts.append(forecast(model, works, engine, exact=True))
    return forecasts


def _recipe_work(plan: Plan, model: Model, task: str) -> list[Work]:
    splits, draws, settings = load_splits(plan, model, task, 0), len(set(plan.data_seeds(task))), plan.settings
    # Seeds that share examples evaluate their recipes together.
    seeds = range(plan.seeds if draws == 1 else 1)
    recipes = tuple(dict.fromkeys(pair for seed in seeds for pair in plan.recipes(seed)))
    learners = dict.fromkeys(recipe.learner for _, recipe in plan.recipes(0) if recipe.learner is not None)
    tested = tuple({(measure, recipe.name): (measure, recipe) for measure, recipe in recipes}.values())
    selected = {pairs: SelectWork(splits[TRAIN], settings, pairs) for pairs in (recipes, tested)}
    return [
        ScoreWork(splits[TRAIN], settings, times=draws),
        *(LearnWork(splits[TRAIN], settings, learner, times=draws) for learner in learners),
        replace(selected[recipes], times=draws),
        EvaluateWork(splits[VALIDATION], settings, selected=selected[recipes], times=draws),
        EvaluateWork(splits[TEST], settings, selected=selected[tested], times=draws),
    ]


def _scorer_work(plan: Plan, model: Model, task: str) -> list[Work]:
    splits, settings = load_splits(plan, model, task, 0, (TRAIN, TEST)), plan.settings
    methods, works = scorers_for(plan, model.graph.n_edges), list[Work]()
    for method in methods:
        if isinstance(method, Scorer):
            draws = len(set(plan.data_seeds(task)))
            works.append(ScoreWork(splits[TRAIN], replace(settings, scorer=method), times=draws))
        elif not isinstance(method, RandomRanking):
            learners = dict.fromkeys(method.for_measure(measure) for measure in BOTH_MEASURES)
            works += [LearnWork(splits[TRAIN], settings, learner, times=plan.seeds) for learner in learners]
    # Circuits of the plan's scorer stand for those of all scorers.
    recipes = tuple((measure, plan.scorer_recipe) for measure in BOTH_MEASURES)
    selected, times = SelectWork(splits[TRAIN], settings, recipes), plan.seeds * len(methods)
    return [*works, EvaluateWork(splits[TEST], settings, selected=selected, times=times)]
