"""Forecast the cost of a study."""

from __future__ import annotations

from ..models import load_source
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, Work, forecast
from ..runtime.engine import IN_PROCESS, Engine
from ..tasks import load_task, load_unsplit
from .plan import TEST, TRAIN, VALIDATION, Plan


def study_forecasts(plan: Plan, engine: Engine = IN_PROCESS, cache: bool = True) -> list[Forecast]:
    """Forecast the cost of a study for each of its models. The examples of seed 0 stand for those of all seeds."""
    recipes = [recipe for _, recipe in plan.recipes(0)]
    learners = dict.fromkeys(recipe.learner for recipe in recipes if recipe.learner is not None)
    n_circuits, settings = len(recipes) * len(plan.settings.sizes), plan.settings
    forecasts = []
    for name in plan.models:
        model = load_source(plan.source(name, cache))
        works: list[Work] = []
        for task in plan.tasks:
            load, draws = load_unsplit if task in plan.unsplit else load_task, len(plan.data_seeds(task))
            train, validation, test = (
                load(task, model, split, plan.examples, 0) for split in (TRAIN, VALIDATION, TEST)
            )
            works.append(ScoreWork(train, settings, times=draws))
            works += [LearnWork(train, settings, learner, times=draws) for learner in learners]
            works += [EvaluateWork(t, settings, n_circuits, times=plan.seeds) for t in (validation, test)]
        forecasts.append(forecast(model, works, engine, exact=True))
    return forecasts
