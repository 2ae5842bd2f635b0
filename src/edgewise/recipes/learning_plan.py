"""Plan learning within a time budget: the number of steps.

Results must not depend on the clock more than through the planned number of steps. So the plan is stored with the run,
where a resumed run finds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import InputError
from ..evaluate import BOTH_MEASURES
from ..learn import TopKLearner
from ..models import Model
from ..models.model import free_bytes
from ..runtime import Session, Unit, unit_key
from ..tasks import Task
from .forecast import LearnWork, Timer
from .settings import Settings

# If fewer steps than this fit into the budget, learning is not tried.
LEAST_STEPS = 20
# Operations per second of fast machines, and operations per weight and token of a weighted forward and backward pass.
FAST_CPU, FAST_ACCELERATOR, PASS_COST = 1e12, 1e15, 6
# Checks on validation examples, composition and calibration take about this share of the time of the steps.
CHECK_SHARE = 0.75


@dataclass(frozen=True)
class LearningPlan:
    """How rankings are learned within a budget.

    learner  with the planned steps. None if not even few steps fit into the budget.
    seconds  forecast for both measures; if nothing fits, that of the fewest steps; infinite for lack of memory
    """

    learner: TopKLearner | None
    seconds: float


def plan_learning(
    model: Model, task: Task, settings: Settings, learner: TopKLearner, minutes: float, session: Session
) -> LearningPlan:
    """Return the plan that the session's store has, or make one by timing a step.

    learner  its steps are the most that are planned
    minutes  the budget for the rankings of both measures
    session  its engine's workers share a step
    """
    check_minutes(minutes)
    key = ""
    if session.store.folder is not None:
        kind = (settings.positions, settings.level)
        how = (learner, settings.metric, settings.ablation, settings.sizes, settings.memory, float(minutes), kind)
        key = unit_key("plan", model=model.digest, task=task.digest, how=how)
        if (stored := session.store.find(key)) is not None:
            steps, seconds = stored.about["steps"], stored.about["seconds"]
            return LearningPlan(replace(learner, steps=steps) if steps else None, seconds)
    per_step = _time_step(model, task, settings, learner, 60 * minutes, session)
    planned = fit_budget(learner, per_step, 60 * minutes)
    if math.isfinite(planned.seconds):
        steps = 0 if planned.learner is None else planned.learner.steps
        session.store.save(key, Unit({}, {"steps": steps, "seconds": planned.seconds}))
    return planned


def fit_budget(learner: TopKLearner, step_seconds: float, budget: float) -> LearningPlan:
    """Return the plan for a budget in seconds, if a step of the learner takes `step_seconds`.

    Only the number of steps is reduced: of a wide model, half as many examples per step take more than half the time.
    """
    n_rankings = len(BOTH_MEASURES) * (1 + learner.resamples)
    cost = n_rankings * (1 + CHECK_SHARE) * step_seconds  # of one step of every ranking
    steps, least = int(min(learner.steps, budget // cost)), min(LEAST_STEPS, learner.steps)
    if steps < least:
        return LearningPlan(None, least * cost)
    steps = steps if steps == learner.steps else max(least, steps // 10 * 10)
    return LearningPlan(replace(learner, steps=steps), steps * cost)


def check_minutes(minutes: float) -> None:
    """Raise InputError if a budget isn't a number of minutes of at least 0."""
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 <= minutes < math.inf:
        raise InputError(f"learn_budget is a number of minutes, 0 for no learning, not {minutes!r}")


def _time_step(
    model: Model, task: Task, settings: Settings, learner: TopKLearner, budget: float, session: Session
) -> float:
    """Return the seconds of one step of learning; infinite if an example doesn't fit into memory.

    A large model isn't timed if the budget wouldn't suffice on a fast machine: the result is then that machine's time.
    """
    work = LearnWork(task, settings, learner)
    stage = work.plan(model, session.engine)
    transformer = model.transformer
    free = [free_bytes(device) for device in transformer.devices]
    known_free = [amount for amount in free if amount is not None]
    if known_free and stage.least > sum(known_free):
        return math.inf
    n_weights = 0 if model.module is None else sum(weight.numel() for weight in model.module.parameters())
    speed = FAST_CPU if transformer.device.type == "cpu" else FAST_ACCELERATOR
    bound = 1e-9 + PASS_COST * n_weights * stage.length * learner.batch / speed
    if fit_budget(learner, bound, budget).learner is None:
        return bound
    timed = work.time(stage, Timer(model, session.engine))
    return timed.with_workers(session.engine.workers(model)) / max(1, stage.passes)
