"""TopKLearner: one value per edge, such that at every size the best edges behave as the measure wants.

The edges with the largest sum of scores are not the most faithful circuit. Here one parameter per edge is learned so
that the best edges of any number score well on the measure: close to the model for CMD, as much of the task as possible
for CPR. A step draws a size and noise, runs the hard circuit of that size, and moves the parameters along the
gradient of a soft choice of as many edges (straight through).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.ranking import Ranking
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, Measure
from ..graph import Graph
from ..method import check_is
from ..models.memory import can_keep_streams, weighted_need
from ..score import EapIg, Scorer
from .base import Learner, LearningCost, LearningProblem

if TYPE_CHECKING:
    from ..runtime.session import Session

# Limits for parameters from files: days of work, and more rankings than an estimate of the spread needs.
MOST_STEPS, MOST_RANKINGS = 1_000_000, 1000


@dataclass(frozen=True)
class TopKLearner(Learner):
    """Learns a ranking whose best edges, at every size, do well on a measure.

    measure      whose loss is minimised
    steps        number of steps; each takes `batch` examples
    rate         learning rate; None takes one that suits the measure and the number of edges
    noise        scale of the logistic noise on the parameters; `temperature` of the soft choice
    warm         scores whose ranks the parameters start from; None starts from zeros, which halves the gain
    resamples    how many more rankings to learn from resampled examples, for the spread of the values
    """

    name: ClassVar[str] = "learned"
    title: ClassVar[str] = "Learned"
    measure: Measure = CMD
    steps: int = 300
    batch: int = 16
    rate: float | None = None
    noise: float = 0.3
    temperature: float = 1.0
    warm: Scorer | None = field(default_factory=EapIg)
    seed: int = 0
    resamples: int = 0

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        if self.warm is not None:
            check_is("scorer", Scorer, self.warm)
        for what, value in (("steps", self.steps), ("examples a batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"learning needs at least 1 of {what} and at most {MOST_STEPS:,}, not {value}")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not 0 <= self.noise < float("inf") or not 0 < self.temperature < float("inf"):
            raise InputError(f"noise must be at least 0 and temperature above, not {self.noise} and {self.temperature}")
        if not 0 <= self.seed <= MAX_SEED or not 0 <= self.resamples <= MOST_RANKINGS:
            raise InputError(
                f"a seed and a number of resamples are at least 0, below 2^63 and at most {MOST_RANKINGS:,}, not "
                f"{self.seed} and {self.resamples}"
            )

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Train once on all examples, and once on every resample of them."""
        from .top_k_training import train

        task = problem.task
        once = replace(self, resamples=0)
        unit = train(once, problem, session)
        resamples = np.random.default_rng(self.seed).integers(len(task), size=(self.resamples, len(task)))
        problems = [replace(problem, task=task.part(rows)) for rows in np.sort(resamples)]
        values = [train(once, resampled, session).arrays["value"] for resampled in problems]
        graph, resampled = problem.model.graph, np.stack(values) if values else None
        return Ranking(graph, unit.arrays["value"], signed=False, origin=unit.about, resampled=resampled)

    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return the cost of all steps; the job is timed with weights of one half."""
        import torch

        from .top_k_training import GradientJob

        model, task = problem.model, problem.task
        shape = model.transformer.shape
        need = weighted_need(shape, task.longest, can_keep_streams(shape, task.longest))
        weights, ends = torch.full((model.graph.n_edges,), 0.5), dict.fromkeys(task.examples, (1.0, 0.0))
        job = GradientJob(self.measure, problem.metric, problem.ablation, weights, ends, 1.0)
        return LearningCost(self.steps * (1 + self.resamples), min(self.batch, len(task)), need, job)

    def rate_for(self, graph: Graph) -> float:
        """Return the learning rate of the first step; it decays to 0 as half a cosine."""
        return self.measure.learning_rate(graph.n_edges) if self.rate is None else self.rate

    def rate_at(self, step: int, graph: Graph) -> float:
        """Return the learning rate of a step."""
        return self.rate_for(graph) * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    def start(self, ranking: Ranking | None, graph: Graph) -> NDArray[np.float32]:
        """Return the first parameters [edge]: the logit of each edge's rank, or zeros without a ranking."""
        if ranking is None:
            return np.zeros(graph.n_edges, np.float32)
        value = np.abs(ranking.value) if self.measure.rank == "absolute" else ranking.value
        place = np.argsort(np.argsort(value, kind="stable"), kind="stable") / max(1, len(value) - 1)
        place = np.clip(place, 1e-4, 1 - 1e-4)
        return np.log(place / (1 - place)).astype(np.float32)
