"""Learning: rankings of edges that are learned by running circuits. One file per learner; `run_learner` runs them."""

from collections.abc import Mapping
from typing import Any

from ..method import placeholder, record_name
from .base import Learner, LearningCost, LearningProblem
from .calibrate import Calibrated
from .edge_pruning import EdgePruning
from .ensemble import Ensemble, choose_weights
from .matryoshka import Matryoshka
from .top_k_learner import TopKLearner
from .top_k_parameters import size_chances
from .uniform_gradient_sampling import UniformGradientSampling

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner
    for learner in (TopKLearner, Calibrated, Matryoshka, EdgePruning, UniformGradientSampling, Ensemble)
}


def learner_from_record(record: Mapping[str, Any]) -> Learner:
    """Return the learner that `Learner.record` described. A custom one that isn't registered is a placeholder."""
    name = record_name("learner", record)
    if name not in LEARNERS:
        return placeholder(Learner, record)  # type: ignore[type-abstract]
    return LEARNERS[name].from_record(record, {Learner: learner_from_record})
