"""The training of learners that fit a mask: draw gates, run the weighted circuit, follow its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..evaluate import CMD, CircuitModelDistance
from ..runtime.session import Session
from ..runtime.store import Unit
from ..tasks.metrics import Kl
from .base import LearningProblem
from .mask_gates import MaskGates
from .training import StepRunner, Training, TrainingState, training_key

# Uniform numbers keep this distance from 0 and 1, where gates would be infinite.
MARGIN = 1e-6


@dataclass(frozen=True)
class Divergence(CircuitModelDistance):
    """The loss of a mask with loss='kl': minus the metric, where the metric is minus the KL divergence."""

    name: ClassVar[str] = "divergence"

    def loss(self, value: Tensor, full: Tensor, empty: Tensor, span: float) -> Tensor:
        return -value


def train(learner: MaskGates, problem: LearningProblem, session: Session) -> Unit:
    """Return the array `value` [edge], the losses, the share of open gates and the seconds of one mask."""
    n_edges = problem.graph.n_edges
    is_kl = learner.loss == "kl"
    if is_kl:  # Metric and measure have no effect then, so masks for other ones are the same work.
        problem, learner = replace(problem, metric=Kl()), learner.for_measure(CMD)
    # Sizes of the curve, validation examples and a ranking to start from have no effect either.
    problem = replace(problem, sizes=(), validation=None, start=None)

    def prepare() -> Callable[[TrainingState], tuple[float, Tensor]]:
        measure = Divergence() if is_kl else learner.measure
        runner = StepRunner(problem, session.engine, measure, learner.batch, learner.seed)
        return lambda state: step_gradient(learner, runner, state)

    def describe(state: TrainingState) -> Unit:
        value = learner.open_probability(state.theta.double()).numpy()
        about = {"losses": list(state.losses), "open": float(value.mean()), "seconds": state.seconds}
        return Unit({"value": value}, about)

    training = Training(
        learner.steps,
        start=lambda: learner.first_parameters(n_edges),
        prepare=prepare,
        rate=learner.rate_at,
        betas=learner.betas,
        describe=describe,
    )
    return training.run(training_key(learner, problem, session), session)


def step_gradient(learner: MaskGates, runner: StepRunner, state: TrainingState) -> tuple[float, Tensor]:
    """Return the loss of the next step, without the penalty, and the gradient [parameter] of loss and penalty."""
    step, examples = state.step, runner.examples(state.step)
    rows = {example: row for row, example in enumerate(dict.fromkeys(examples))} if learner.gates_per_example else None
    shape = (1 if rows is None else len(rows), runner.problem.graph.n_edges)
    uniform = np.random.default_rng([learner.seed, 2, step]).uniform(MARGIN, 1 - MARGIN, shape)
    parameters = state.theta.clone().requires_grad_()
    weights = learner.draw_weights(parameters, torch.tensor(uniform, dtype=parameters.dtype))
    drawn = weights.detach()
    loss, gradient = runner.run(examples, drawn[0] if rows is None else drawn, rows)
    (of_loss,) = torch.autograd.grad(weights, parameters, gradient.to(weights).view_as(weights))
    (of_penalty,) = torch.autograd.grad(learner.penalty(parameters, step), parameters)
    return float(loss), of_loss + of_penalty
