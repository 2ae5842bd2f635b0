"""Learning: rankings of edges that are learned by running circuits. One file per learner; `run_learner` runs them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..evaluate import MEASURES, Measure
from ..io.records import Decoders
from ..method import from_record
from ..score import SCORERS, Scorer
from .base import Learner, LearningCost, LearningProblem
from .ensemble import Ensemble, choose_weights
from .mask_learners import EdgePruning, UniformGradientSampling
from .refine import Calibrated
from .top_k_learner import Matryoshka, TopKLearner

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner
    for learner in (TopKLearner, Calibrated, Matryoshka, EdgePruning, UniformGradientSampling, Ensemble)
}


def learner_from_record(record: Mapping[str, Any]) -> Learner:
    """Return the learner that `Learner.record` described. A custom one that isn't registered is a placeholder."""
    decoders: Decoders = {
        Measure: partial(from_record, "measure", MEASURES, family=Measure),
        Scorer: partial(from_record, "scorer", SCORERS, family=Scorer),
    }
    return from_record("learner", LEARNERS, record, Learner, decoders)  # type: ignore[type-abstract]
