"""TopKLearner: one value per edge, such that at every size the best edges behave as the measure wants.

The edges with the largest sum of scores are not the most faithful circuit. Here one parameter per edge is learned so
that the best edges of any number score well on the measure: close to the model for CMD, as much of the task as possible
for CPR. A step draws a size and noise, runs the best edges of that size, and moves the parameters along the
gradient of a soft choice of as many edges (straight through).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..core.ranking import Ranking
from ..evaluate import CPR, Measure
from ..score import Scorer
from .base import LearningCost, LearningProblem
from .top_k_parameters import TopKParameters

if TYPE_CHECKING:
    from ..runtime.session import Session


@dataclass(frozen=True)
class TopKLearner(TopKParameters):
    """Learns a ranking whose best edges, at every size, do well on a measure.

    measure      whose loss is minimised
    steps        number of steps, at most; each runs `batch` examples, counted once per circuit
    rate         learning rate; None takes one that suits the measure and the numbers of edges and steps
    noise        scale of the logistic noise on the parameters; `temperature` of the soft choice
    warm         scores whose ranks the parameters start from; None starts from zeros, which halves the gain
    resamples    how many more rankings to learn from resampled examples, for the spread of the values
    forward      'hard' runs the circuit of the best edges; 'soft' runs all edges with the weights of the soft choice;
                 'sharp' with weights nearer to 0 and 1 (`sharp_temperature`). If a path lacks several whole edges,
                 none of them has a gradient
    draw         sizes of the steps: 'log' uniform in the logarithm, 'uniform' over all numbers of edges
    decay        whether the learning rate falls to 0
    circuits     number of circuits, each of another size, that a step runs on the same `batch` / `circuits` examples
    normalise    divide the loss of a size by that of the warm start there, so that all sizes count alike
    validate     average parameters over steps, stop when the average no longer improves on validation examples, take
                 the best, and compose it with the warm start, size by size (`compose_ranking`). Without a validation
                 task, a quarter of the examples is held out. At most half as many examples as steps are used.
    reverse      learn from pairs in both directions: also with clean and corrupted prompt exchanged, and the answers
                 with them. Only if all answers are single tokens and the model also prefers the exchanged answers.
    node_rate    learning rate of the parameters that all edges out of a node, or into it, share, relative to `rate`.
                 An edge's value is its own parameter plus that of its source and that of its target. 0: edges share
                 nothing.
    calibrate    at last, exchange edges near the threshold of each size until the circuits' mean metric is the model's
                 (`calibrate_ranking`). Only with `validate`, scores to start from, and a measure that has a target.
    """

    name: ClassVar[str] = "learned"
    title: ClassVar[str] = "Learned"

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Train once on all examples, and once on every resample of them."""
        from .top_k_training import train

        task = problem.task
        once = replace(self, resamples=0)
        unit = train(once, problem, session)
        resamples = np.random.default_rng(self.seed).integers(len(task), size=(self.resamples, len(task)))
        problems = [replace(problem, task=task.part(rows)) for rows in np.sort(resamples)]
        values = [train(once, resampled, session).arrays["value"] for resampled in problems]
        graph, resampled = problem.graph, np.stack(values) if values else None
        return Ranking(graph, unit.arrays["value"], signed=False, origin=unit.about, resampled=resampled)

    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return the cost of all steps, those of resamples included."""
        from .training import weighted_cost

        return weighted_cost(problem, self.steps * (1 + self.resamples), self.n_examples, self.n_circuits)


@dataclass(frozen=True)
class Matryoshka(TopKLearner):
    """`TopKLearner` as Matryoshka attribution was published: 5,000 steps of one example, from zeros, without noise.

    Every step draws a number of edges uniformly and runs all edges with the weights of a soft choice of as many
    (sigmoid, temperature 0.5). Adam with a constant rate of 0.05 maximises the metric, so the measure is CPR.
    The threshold of the soft choice takes 50 bisection steps instead of 30, which changes rounding only.
    """

    name: ClassVar[str] = "matryoshka"
    title: ClassVar[str] = "Matryoshka"

    measure: Measure = CPR
    steps: int = 5000
    batch: int = 1
    rate: float | None = 0.05
    noise: float = 0.0
    temperature: float = 0.5
    warm: Scorer | None = None
    forward: Literal["hard", "sharp", "soft"] = "soft"
    draw: Literal["log", "uniform"] = "uniform"
    decay: bool = False
    circuits: int = 1
    normalise: bool = False
    validate: bool = False
    reverse: bool = False
    node_rate: float = 0.0
    calibrate: bool = False

    @classmethod
    def published(cls, **options: Any) -> Matryoshka:
        """Return the defaults, except for the given options."""
        return cls(**options)
