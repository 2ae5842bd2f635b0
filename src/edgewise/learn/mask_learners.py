"""Learners that fit masks, and how a ranking follows from masks: edge pruning and uniform gradient sampling.

Every edge has a gate that is open, closed or partly open at random. A step draws gates, runs the weighted circuit and
follows its gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..core.ranking import Ranking
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, CircuitModelDistance, Measure
from ..method import check_is
from ..runtime.store import Unit
from ..tasks import Kl, Metric
from .base import MOST_STEPS, Learner, LearningCost, LearningProblem, check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from ..runtime.session import Session
    from .training import StepRunner, TrainingState

# More masks than a curve has sizes; a limit for parameters from files.
MOST_MASKS = 100
# Uniform numbers keep this distance from 0 and 1, where gates would be infinite.
MARGIN = 1e-6
# The hard concrete distribution: a sigmoid of this temperature, stretched to these limits, then cut to [0, 1].
TEMPERATURE, LOW, HIGH = 2 / 3, -0.1, 1.1
# How far the published multipliers can move: 3,000 steps of 0.8. In fewer or smaller steps they move as far.
MULTIPLIER_RANGE = 2400.0
# The share of the steps in which the learning rate rises from 0; afterwards it falls to 0.
RATE_WARM_UP = 1 / 15


@dataclass(frozen=True)
class MaskLearner(Learner, ABC):
    """Learns masks, one after the other, and a ranking from them.

    The gates of a mask are random weights whose distribution has one parameter per edge. A mask fits one size or one
    penalty. The value of an edge is the probability that its gate is open, the mean over the masks. So if every mask is
    part of the next larger one, the edges of the smallest mask come first.

    measure  the measure whose loss is minimised if `loss` is 'measure'
    loss     'kl': the KL divergence from the model's prediction to the circuit's, in nats, whatever metric and measure
             are; 'measure': the loss of the measure for the metric
    steps    number of steps per mask; each takes `batch` examples
    rate     learning rate
    start    the first value of every parameter
    """

    measure: Measure = CMD
    loss: Literal["kl", "measure"] = "kl"
    steps: int = 300
    batch: int = 16
    rate: float = 0.1
    start: float = 1.0
    seed: int = 0

    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    # Whether every example of a step has gates of its own.
    gates_per_example: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        check_choice("loss", self.loss, ("kl", "measure"))
        for what, value in (("steps", self.steps), ("examples per batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"{what} must be from 1 to {MOST_STEPS:,}, not {value}")
        if not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not abs(self.start) < float("inf"):
            raise InputError(f"start must be a finite number, not {self.start}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"a seed is at least 0 and below 2^63, not {self.seed}")

    @abstractmethod
    def masks(self) -> tuple[MaskLearner, ...]:
        """Return one learner per mask."""

    @abstractmethod
    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        """Return gates [row, edge] from uniform numbers [row, edge]; differentiable in the parameters."""

    @abstractmethod
    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        """Return what a step adds to the loss for the number of open gates."""

    @abstractmethod
    def open_probability(self, parameters: Tensor) -> Tensor:
        """Return the probability [edge] that each gate is open."""

    def initial_parameters(self, n_edges: int) -> Tensor:
        """Return the initial parameters: one per edge, then those that belong to no edge."""
        import torch

        return torch.full((n_edges,), float(self.start))

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.rate

    def check(self, metric: Metric) -> None:
        """Raise InputError if the loss is that of a metric without gradient."""
        if self.loss == "measure":
            super().check(metric)

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Learn every mask, and combine them."""
        units = [mask._train(problem, session) for mask in self.masks()]
        value = np.mean([unit.arrays["value"] for unit in units], axis=0)
        origin = {
            "losses": [loss for unit in units for loss in unit.about["losses"]],
            "open": [unit.about["open"] for unit in units],
            "seconds": sum(unit.about["seconds"] for unit in units),
        }
        return Ranking(problem.graph, value, signed=False, origin=origin)

    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return the cost of the steps of all masks."""
        from .training import weighted_cost

        return weighted_cost(problem, self.steps * len(self.masks()), self.batch)

    def _train(self, problem: LearningProblem, session: Session) -> Unit:
        """Return the array `value` [edge], the losses, the share of open gates and the seconds of one mask."""
        from .training import StepRunner, Training, training_key

        learner, measure = self, self.measure
        if self.loss == "kl":  # Metric and measure have no effect then, so masks for other ones are the same work.
            problem, learner, measure = replace(problem, metric=Kl()), self.for_measure(CMD), Divergence()
        # Sizes of the curve, validation examples and a ranking to start from have no effect either.
        problem = replace(problem, sizes=(), validation=None, start=None)

        def prepare() -> Callable[[TrainingState], tuple[float, Tensor]]:
            runner = StepRunner(problem, session.engine, measure, self.batch, self.seed)
            return lambda state: self._step_gradient(runner, state)

        def describe(state: TrainingState) -> Unit:
            value = self.open_probability(state.theta.double()).numpy()
            about = {"losses": list(state.losses), "open": float(value.mean()), "seconds": state.seconds}
            return Unit({"value": value}, about)

        training = Training(
            self.steps,
            start=lambda: self.initial_parameters(problem.graph.n_edges),
            prepare=prepare,
            rate=self.rate_at,
            betas=self.betas,
            describe=describe,
        )
        return training.run(training_key(learner, problem, session), session)

    def _step_gradient(self, runner: StepRunner, state: TrainingState) -> tuple[float, Tensor]:
        """Return the loss of the next step, without the penalty, and the gradient [parameter] of loss and penalty."""
        import torch

        step, examples = state.step, runner.examples(state.step)
        rows = {example: row for row, example in enumerate(dict.fromkeys(examples))} if self.gates_per_example else None
        shape = (1 if rows is None else len(rows), runner.problem.graph.n_edges)
        uniform = np.random.default_rng([self.seed, 2, step]).uniform(MARGIN, 1 - MARGIN, shape)
        parameters = state.theta.clone().requires_grad_()
        weights = self.draw_weights(parameters, torch.tensor(uniform, dtype=parameters.dtype))
        drawn = weights.detach()
        loss, gradient = runner.run(examples, drawn[0] if rows is None else drawn, rows)
        (of_loss,) = torch.autograd.grad(weights, parameters, gradient.to(weights).view_as(weights))
        (of_penalty,) = torch.autograd.grad(self.penalty(parameters, step), parameters)
        return float(loss), of_loss + of_penalty


@dataclass(frozen=True)
class Divergence(CircuitModelDistance):
    """The loss of a mask with loss='kl': minus the metric, where the metric is minus the KL divergence."""

    name: ClassVar[str] = "divergence"

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        return -value


@dataclass(frozen=True)
class EdgePruning(MaskLearner):
    """Edge pruning (Bhaskar et al. 2024, arXiv 2406.16778): masks of given sizes with hard concrete gates.

    A step draws one mask, and minimises loss + a g + b g^2, where g is the expected share of open gates minus the
    step's target. The multipliers a and b start at 0 and are maximised. The target falls linearly from all edges to
    the size during the warm-up.

    The published method also has gates on nodes and decays parameters, and measures g on the drawn mask. Here g is
    its expectation, which has less noise.

    sizes    shares of the edges; one mask is learned for each
    warm_up  share of the steps in which the target falls
    start    first log alpha of the gates
    """

    name: ClassVar[str] = "edge-pruning"
    title: ClassVar[str] = "Edge pruning"

    rate: float = 0.3
    start: float = 3.0
    sizes: tuple[float, ...] = (0.05,)
    warm_up: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        are_shares = all(0 < size <= 1 for size in self.sizes)
        check_masks("sizes", self.sizes, "shares of the edges, above 0 and up to 1", are_shares)
        if not 0 <= self.warm_up <= 1:
            raise InputError(f"warm_up is a share of the steps, from 0 to 1, not {self.warm_up}")

    @classmethod
    def published(cls, **options: Any) -> EdgePruning:
        """Return the settings of the publication: 3,000 steps of 32 examples, a rate of 0.8, a size of 2 %."""
        settings: dict[str, Any] = {"steps": 3000, "batch": 32, "rate": 0.8, "start": 10.0}
        return cls(**settings | {"sizes": (0.02,), "warm_up": 5 / 6} | options)

    def masks(self) -> tuple[EdgePruning, ...]:
        return tuple(replace(self, sizes=(size,)) for size in self.sizes)

    def initial_parameters(self, n_edges: int) -> Tensor:
        """Return the initial log alpha of every gate, then two multipliers, which start at 0."""
        import torch

        return torch.cat([super().initial_parameters(n_edges), torch.zeros(2)])

    def rate_at(self, step: int) -> float:
        warm_up = max(1.0, RATE_WARM_UP * self.steps)
        return self.rate * min((step + 1) / warm_up, (self.steps - step) / max(1.0, self.steps - warm_up), 1.0)

    def target_at(self, step: int) -> float:
        """Return the share of gates that a step wants open."""
        done = min(1.0, step / (self.warm_up * self.steps)) if self.warm_up else 1.0
        return 1 + done * (self.sizes[0] - 1)

    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        logits = (uniform.log() - (1 - uniform).log() + parameters[:-2]) / TEMPERATURE
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        excess = self.open_probability(parameters).mean() - self.target_at(step)
        linear, squared = parameters[-2:] * (MULTIPLIER_RANGE / (self.rate * self.steps))
        # A step minimises this: it lowers the constraint's cost for the gates, and raises it for the multipliers.
        lowered = linear.detach() * excess + squared.detach() * excess**2
        raised = linear * excess.detach() + squared * excess.detach() ** 2
        return lowered - raised

    def open_probability(self, parameters: Tensor) -> Tensor:
        return (parameters[:-2] - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()


@dataclass(frozen=True)
class UniformGradientSampling(MaskLearner):
    """Uniform gradient sampling (Li and Janson 2024, arXiv 2409.09951).

    It learns masks whose gates are open with probability p, and partly open with probability p (1 - p).

    Each example of a step draws its own mask. The gradient with respect to p is the mean, over the examples whose gate
    is partly open, of the gradient with respect to the gate. The loss adds a penalty times the sum of all p, so an edge
    is kept if it lowers the loss by more than the penalty.

    The published method also penalises nodes, clips gradients, and draws 12 masks for each of 5 examples.

    penalties  lambda; one mask is learned for each
    start      first logit of p
    """

    name: ClassVar[str] = "ugs"
    title: ClassVar[str] = "UGS"
    betas: ClassVar[tuple[float, float]] = (0.9, 0.995)
    gates_per_example: ClassVar[bool] = True

    penalties: tuple[float, ...] = (1e-3,)

    def __post_init__(self) -> None:
        super().__post_init__()
        are_valid = all(0 <= penalty < float("inf") for penalty in self.penalties)
        check_masks("penalties", self.penalties, "numbers of at least 0", are_valid)

    @classmethod
    def published(cls, **options: Any) -> UniformGradientSampling:
        """Return the settings of the publication: 3,000 steps of 60 masks, and its rate for patching."""
        settings: dict[str, Any] = {"steps": 3000, "batch": 60, "rate": 0.01}
        return cls(**settings | options)

    def masks(self) -> tuple[UniformGradientSampling, ...]:
        return tuple(replace(self, penalties=(penalty,)) for penalty in self.penalties)

    def draw_weights(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        p = parameters.sigmoid()
        window = (p * (1 - p)).detach()
        gates = ((p - uniform) / window + 0.5).clamp(0, 1)
        n_partly_open = ((gates > 0) & (gates < 1)).sum(0).clamp(min=1)
        # Gates keep their values; their derivative by p becomes 1 for each partly open gate, divided by their share.
        return gates.detach() + window * len(uniform) / n_partly_open * (gates - gates.detach())

    def penalty(self, parameters: Tensor, step: int) -> Tensor:
        return self.penalties[0] * parameters.sigmoid().sum()

    def open_probability(self, parameters: Tensor) -> Tensor:
        return parameters.sigmoid()


def check_masks(parameter: str, values: tuple[float, ...], expected: str, are_valid: bool) -> None:
    """Raise InputError if the sizes or penalties of the masks are invalid, none, repeated or too many."""
    if not are_valid or not 1 <= len(values) <= MOST_MASKS or len(set(values)) < len(values):
        raise InputError(f"{parameter} must be 1 to {MOST_MASKS} different {expected}, not {values}")
