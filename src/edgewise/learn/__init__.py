"""Learning: rankings of edges that are learned by running circuits. One file per learner, one verb."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..lazy import lazy_names
from ..method import placeholder, record_name
from .base import Learner, LearningCost, LearningProblem
from .top_k_learner import TopKLearner, size_chances

if TYPE_CHECKING:
    from .run_learner import learn_ranking

LEARNERS: dict[str, type[Learner]] = {learner.name: learner for learner in (TopKLearner,)}
__getattr__ = lazy_names(__name__, {"learn_ranking": ".run_learner"})


def learner_from_record(record: Mapping[str, Any]) -> Learner:
    """Return the learner that `Learner.record` described. A custom one that isn't registered is a placeholder."""
    name = record_name("learner", record)
    return LEARNERS[name].from_record(record) if name in LEARNERS else placeholder(Learner, record)  # type: ignore[type-abstract]
