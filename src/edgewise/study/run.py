"""Run a study, cell by cell. A cell is a model on a task; each of its evaluations is a call of `discover`.

Protocol: score on train, choose recipe and hyper-parameters on validation, report on test. Scorers and learners are
compared on test without a choice: faithfulness, cost, and agreement with a known circuit. One integer program, whose
circuits have exactly as many edges as are asked for, selects the circuits of all of them. The session's store keeps
scores and finished cells, so one scoring pass serves every recipe, and a stopped study resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, CMD, Measure, auroc, known_circuit, precision_at_true_size
from ..evaluate.known import read_truth
from ..learn import LEARNERS, Learner, LearningCost, LearningProblem
from ..method import Method, as_known, parameters
from ..models import Model, load_source
from ..models.memory import Need
from ..pipeline import discover
from ..recipes import Discovery, Recipe
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, SelectWork, Work, forecast
from ..recipes.run_info import mean_accuracy
from ..recipes.settings import Settings
from ..recipes.stability import mean_overlap, ranking_overlap, recipe_overlap
from ..recipes.stages import MeasureRecipe, score_task
from ..runtime import DEFAULT_SESSION, IN_PROCESS, Engine, Session, unit_key
from ..runtime.progress import ignore_progress
from ..score import SCORERS, EapIg, Scorer
from ..score.run_scorer import score_need
from ..tasks import Metric, Task, has_rows, load_task, load_unsplit
from ..tasks.known import KNOWN
from .folder import (
    Cell,
    Cost,
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

M = TypeVar("M", bound=Method)
# All other scorers are compared with this one.
BASELINE = EapIg.name
ALL = "all"
# Examples of a run that isn't timed: the first run of a process is slower than others.
WARM_UP_EXAMPLES = 8
OVERLAP_RESAMPLES = 5


@dataclass(frozen=True)
class RandomRanking(Learner):
    """A uniformly random ranking: what a method without information reaches."""

    name: ClassVar[str] = "random"
    measure: Measure = CMD
    seed: int = 0

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        graph = problem.graph
        return Ranking(graph, np.random.default_rng(self.seed).random(graph.n_edges), signed=False)

    def cost(self, problem: LearningProblem) -> LearningCost:
        return LearningCost(0, 1, Need(0, 0, 0), lambda *_: None)

    def check(self, metric: Metric) -> None:
        """Accept every metric."""

    def check_kind(self, positions: bool, level: str) -> None:
        """Accept every kind of circuit."""


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
    draws = {seed: load_splits(plan, model, task, seed) for seed in dict.fromkeys(plan.data_seeds(task))}
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


def load_splits(plan: Plan, model: Model, task: str, seed: int) -> dict[str, Task]:
    """Return split -> examples of a task, of the splits that the plan uses."""
    splits = (TRAIN, TEST) if plan.scorers else (TRAIN, VALIDATION, TEST)
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
        model, works, settings = load_source(plan.source(name)), list[Work](), plan.settings
        for task in (task for task, of_model in plan.cells if of_model == name):
            splits, draws = load_splits(plan, model, task, 0), len(set(plan.data_seeds(task)))
            train, test = splits[TRAIN], splits[TEST]
            if plan.scorers:
                methods = scorers_for(plan, model.graph.n_edges)
                for method in methods:
                    if isinstance(method, Scorer):
                        works.append(ScoreWork(train, replace(settings, scorer=method), times=draws))
                    elif not isinstance(method, RandomRanking):
                        learners = dict.fromkeys(method.for_measure(measure) for measure in BOTH_MEASURES)
                        works += [LearnWork(train, settings, learner, times=plan.seeds) for learner in learners]
                # Circuits of the plan's scorer stand for those of all scorers.
                recipes = tuple((measure, plan.scorer_recipe) for measure in BOTH_MEASURES)
                selected, times = SelectWork(train, settings, recipes), plan.seeds * len(methods)
                works.append(EvaluateWork(test, settings, selected=selected, times=times))
                continue
            # Seeds that share examples evaluate their recipes together.
            seeds = range(plan.seeds if draws == 1 else 1)
            recipes = tuple(dict.fromkeys(pair for seed in seeds for pair in plan.recipes(seed)))
            learners = dict.fromkeys(recipe.learner for _, recipe in plan.recipes(0) if recipe.learner is not None)
            tested = tuple({(measure, recipe.name): (measure, recipe) for measure, recipe in recipes}.values())
            selected, selected_again = (SelectWork(train, settings, pairs) for pairs in (recipes, tested))
            works += [
                ScoreWork(train, settings, times=draws),
                *(LearnWork(train, settings, learner, times=draws) for learner in learners),
                replace(selected, times=draws),
                EvaluateWork(splits[VALIDATION], settings, selected=selected, times=draws),
                EvaluateWork(test, settings, selected=selected_again, times=draws),
            ]
        forecasts.append(forecast(model, works, engine, exact=True))
    return forecasts


def choose_scorers(
    names: Sequence[str | Method],
    settings: Settings,
    scorer_parameters: Mapping[str, Any] | None = None,
    learner_parameters: Mapping[str, Any] | None = None,
) -> tuple[tuple[Method, ...], dict[str, str]]:
    """Return the scorers and learners to compare, EAP-IG first and random last, and why some of `all` are left out.

    Parameters
    ----------
    names
        Names of scorers and learners, or objects. 'all' stands for every scorer that can use the metric and what
        circuits consist of.
    settings
        The metric, positions and level that they must be able to use.
    scorer_parameters, learner_parameters
        Parameters for those that have them, such as `steps`. None stands for the default.

    Returns
    -------
    The scorers and learners, for `Plan.scorers`, and name -> reason for those that are left out.

    Raises
    ------
    InputError
        If a name is unknown, or if EAP-IG or a named scorer can't use the settings.
    """
    chosen: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for item in (BASELINE, *names):
        if not isinstance(item, str):
            chosen[item.name] = item
            continue
        name = as_known("scorer or learner", item, (*SCORERS, *LEARNERS, RandomRanking.name, ALL))
        for scorer in SCORERS if name == ALL else [name] if name in SCORERS else []:
            built = _build(SCORERS[scorer], scorer_parameters)
            reason = _misfit(built, settings) if name == ALL else ""
            if reason:
                left_out[scorer] = reason
            else:
                chosen.setdefault(scorer, built)
        if name in LEARNERS:
            chosen.setdefault(name, _build(LEARNERS[name], learner_parameters))
    for method in chosen.values():
        reason = _misfit(method, settings)
        if reason:
            raise InputError(reason)
    chosen.pop(RandomRanking.name, None)
    return (*chosen.values(), RandomRanking()), {name: why for name, why in left_out.items() if name not in chosen}


def _build(kind: type[M], values: Mapping[str, Any] | None) -> M:
    """Return a method with those of the values that it has as parameters and that aren't None."""
    accepted = parameters(kind)
    return kind(**{name: v for name, v in (values or {}).items() if v is not None and name in accepted})


def _misfit(method: Any, settings: Settings) -> str:
    """Return why a scorer or learner can't be used; empty if it can."""
    try:
        method.check(settings.metric)
        method.check_kind(settings.positions, settings.level)
    except InputError as error:
        return str(error)
    return ""


def scorers_for(plan: Plan, n_edges: int) -> list[Any]:
    """Return the scorers and learners of a plan that suit a model's number of edges."""
    return [
        method
        for method in plan.scorers
        if not (plan.skip_large and isinstance(method, Scorer) and n_edges > (method.max_edges or n_edges))
    ]


def compare_scorers(
    plan: Plan, model: Model, name: str, task: str, draws: Mapping[int, Mapping[str, Task]], truth: Circuit | None,
    session: Session,
) -> Cell:  # fmt: skip
    """Return a cell with a row per scorer: rank on train, evaluate on test.

    `draws` has the examples of every data seed by split. Scorers without a seed of their own run once per draw.
    """
    data_seeds, methods = plan.data_seeds(task), scorers_for(plan, model.graph.n_edges)
    # Learners are given settings with the first scorer.
    baseline = next((method for method in methods if isinstance(method, Scorer)), plan.settings.scorer)
    settings, recipe = replace(plan.settings, scorer=baseline), plan.scorer_recipe
    train = draws[data_seeds[0]][TRAIN]
    warm_up = Session(engine=session.engine, progress=ignore_progress)
    score_task(model, train.head(WARM_UP_EXAMPLES), settings, warm_up)
    curves, costs = {}, {}
    for method in methods:
        results: dict[tuple[int, Method], Discovery] = {}
        by_seed = []
        for seed, data_seed in enumerate(data_seeds):
            seeded = replace(method, seed=seed) if "seed" in parameters(type(method)) else method
            if (data_seed, seeded) not in results:
                is_learner = isinstance(seeded, Learner)
                recipes = [
                    (measure, replace(recipe, learner=seeded.for_measure(measure) if is_learner else None))
                    for measure in BOTH_MEASURES
                ]
                of_method = settings if is_learner else replace(settings, scorer=seeded)
                examples = draws[data_seed][TRAIN], draws[data_seed][TEST]
                results[data_seed, seeded] = discover(
                    model, *examples, of_method, recipes, attention=0, session=session
                )
            by_seed.append(results[data_seed, seeded])
        for measure in BOTH_MEASURES:
            curves[measure, method.name] = [result.of(measure)[0].curve for result in by_seed]
        costs[method.name] = _cost(method, settings, model, train, list(results.values()), by_seed, truth)
    rows = [(measure, method, recipe) for measure in BOTH_MEASURES for method in costs]
    return Cell(
        name,
        task,
        by_seed[0].run.graph.n_edges,
        {split: len(examples) for split, examples in draws[data_seeds[0]].items()},
        mean_accuracy([result.run.accuracy for result in results.values()]),
        collect_repeats(rows, [curves[measure, method] for measure, method, _ in rows], data_seeds),
        costs=costs,
        n_true=None if truth is None else truth.n_edges,
    )


def _cost(
    method: Any, settings: Settings, model: Model, train: Task, results: Sequence[Discovery],
    by_seed: Sequence[Discovery], truth: Circuit | None,
) -> Cost:  # fmt: skip
    """Return the cost of a method whose distinct results are `results`."""
    is_scorer, seconds = isinstance(method, Scorer), []
    for result in results:  # of scoring, or of learning both rankings
        learning = sum(float(ranking.origin.get("seconds", 0.0)) for ranking in result.learned.values())
        seconds.append((result.run.seconds["score"] if is_scorer else learning) / result.run.train.examples)
    if is_scorer:
        need = score_need(method, settings.graph(model.graph, train), model, train)
    else:
        need = LearnWork(train, settings, method).cost(model).need
    agreement = []
    if truth is not None:
        values = [np.abs(result.of(CMD)[0].rankings[0].value) for result in by_seed]
        agreement = [tuple(compare(value, truth) for value in values) for compare in (auroc, precision_at_true_size)]
    return Cost(float(np.mean(seconds)), need.total(1), *agreement)
