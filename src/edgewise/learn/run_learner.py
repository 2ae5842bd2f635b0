"""learn_ranking: from a model, a task and a learner to a ranking."""

from __future__ import annotations

from dataclasses import replace

from ..core.ranking import Ranking
from ..errors import InputError, warn
from ..evaluate import DEFAULT_ABLATION, SIZES, Ablation
from ..graph import check_one_kind
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..models.torch_modes import default_torch_modes
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task, check_examples
from .base import Learner, LearningProblem
from .top_k_learner import WARM_START, TopKLearner

# A loss that rises by more than this share has diverged.
MAX_TREND = 0.5
DEFAULT_LEARNER = TopKLearner()


@default_torch_modes()
def learn_ranking(
    model: Model,
    task: Task,
    learner: Learner = DEFAULT_LEARNER,
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    *,
    sizes: tuple[float, ...] = SIZES,
    validation: Task | None = None,
    level: str = "edge",
    positions: bool = False,
    start: Ranking | None = None,
    memory: int = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Ranking:
    """Learn one value per edge, or per node, from the examples of a task.

    The same arguments give the same ranking. With a store in the session, a stopped call resumes.

    Parameters
    ----------
    model, task, metric, ablation, sizes, memory, validation, level, positions, start
        As in `LearningProblem`.
    learner
        How to learn, and for which measure.
    session
        Store, engine and progress. `TopKLearner` reports progress as ("learn: loss 0.0123", done, steps).

    Returns
    -------
    Ranking
        Its `origin` holds the learner's record, the task and how learning went: `TopKLearner` adds the loss of every
        step, their `trend`, the area on validation at every check, the choice of every size, whether pairs were used in
        `both_directions`, and the seconds. The values of `TopKLearner` are at least 0 and have no sign.

    Raises
    ------
    InputError
        If nothing can be learned with the metric or from the task, or if the loss becomes NaN or infinite.

    Warns
    -----
    EdgewiseWarning
        If the loss rises by more than half, or if validation examples choose the warm start at every size.
    """
    check_is("learner", Learner, learner)
    check_is("session", Session, session)
    for examples in (task,) if validation is None else (task, validation):
        check_examples(model, examples)
    metric = metric.for_task(task)
    model = model.pin()
    learner.check(metric)
    check_one_kind(positions, level)
    learner.check_kind(positions, level)
    with session.reporting() as reporting_session:
        problem = LearningProblem(model, task, metric, ablation, sizes, memory, validation, level, start, positions)
        ranking = learner.learn(problem, reporting_session)
    if not isinstance(ranking, Ranking) or ranking.graph != problem.graph:
        raise InputError(f"learner {learner.name!r} must return a Ranking of {problem.graph.units}, not {ranking!r}")
    trend = ranking.origin.get("trend", 0.0)  # not every learner has one
    if {name for _, name in ranking.origin.get("choices", ())} == {WARM_START}:
        gain = f"learning for {learner.measure.name} gained nothing on validation examples"
        warn(f"{gain}, so the ranking is that of the warm start")
    elif trend > MAX_TREND:
        loss = f"the loss for {learner.measure.name} rose by {trend:.0%} while learning"
        warn(f"{loss}; use a smaller learning rate, or more steps")
    origin = {"method": learner.record(), "task": task.name, "examples": len(task), **ranking.origin}
    return replace(ranking, origin=origin)
