"""What a study will cost, before it is begun."""

from __future__ import annotations

from dataclasses import replace

from ..evaluate import SIZES
from ..models import Model, load_source
from ..recipes.forecast import Forecast, MakeStage, Stage, evaluating, forecast, learning, scoring
from ..runtime.engine import IN_PROCESS, Engine
from ..tasks import Task, load_task, load_third
from .plan import TEST, TRAIN, VALIDATION, Plan


def study_forecasts(plan: Plan, engine: Engine = IN_PROCESS, cache: bool = True) -> list[Forecast]:
    """What a study will cost, for each of its models; the examples of a task's first seed stand for those of all."""
    found = []
    for name in plan.models:
        model = load_source(plan.source(name, cache))
        recipes = [recipe for _, recipe in plan.recipes(0)]
        stages = []
        for task in plan.tasks:
            train, *seen = (_load(plan, model, task, split) for split in (TRAIN, VALIDATION, TEST))
            draws, settings = len(plan.data_seeds(task)), plan.settings
            stages += [_often(scoring(train, settings), draws)]
            if plan.learner is not None:
                learned = (
                    learning(train, learner, settings)
                    for learner in dict.fromkeys(r.learner for r in recipes if r.learner is not None)
                )
                stages += [_often(one, draws) for one in learned]
            circuits = len(recipes) * len(SIZES)
            stages += [_often(evaluating(one, circuits, settings), plan.seeds) for one in seen]
        found.append(forecast(model, stages, engine, exact=True))
    return found


def _load(plan: Plan, model: Model, task: str, split: str) -> Task:
    load = load_third if task in plan.unsplit else load_task
    return load(task, model, split, plan.examples, 0)


def _often(make: MakeStage, times: int) -> MakeStage:
    """A stage that is gone through several times, each with other examples."""

    def again(model: Model, engine: Engine, enough: float | None) -> Stage:
        one = make(model, engine, enough)
        return replace(one, passes=times * one.passes, seconds=None if one.seconds is None else times * one.seconds)

    return again
