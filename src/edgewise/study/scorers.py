"""Compare scorers and learners on a model and a task: faithfulness, cost, and agreement with a known circuit.

Each row is a call of `discover` with another scorer or learner. One solver selects the circuits of all rows: an integer
program whose circuits have exactly as many edges as are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, CMD, Measure, auroc, precision_at_true_size
from ..learn import LEARNERS, Learner, LearningCost, LearningProblem
from ..method import Method, as_known, parameters
from ..models import Model
from ..models.memory import Need
from ..pipeline import discover
from ..recipes import Discovery
from ..recipes.forecast import LearnWork
from ..recipes.run_info import mean_accuracy
from ..recipes.settings import Settings
from ..recipes.stages import score_task
from ..runtime import Session
from ..runtime.progress import ignore_progress
from ..score import SCORERS, EapIg, Scorer
from ..score.run_scorer import score_need
from ..tasks import Metric, Task
from .folder import Cell, Cost, collect_repeats
from .plan import TEST, TRAIN, Plan

M = TypeVar("M", bound=Method)
# All other scorers are compared with this one.
BASELINE = EapIg.name
ALL = "all"
# Examples of a run that isn't timed: the first run of a process is slower than others.
WARM_UP_EXAMPLES = 8


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
