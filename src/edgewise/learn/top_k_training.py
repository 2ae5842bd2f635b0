"""The training of `TopKLearner`: draw a size and noise, run the circuit of that size, follow its gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..core.statistics import summarise
from ..runtime.session import Session
from ..runtime.store import Unit
from ..score.run_scorer import score_edges
from .base import LearningProblem
from .top_k_parameters import TopKParameters, loss_trend, size_chances
from .training import StepRunner, Training, TrainingState, training_key

BETAS = (0.9, 0.99)
# Bisection steps of the threshold in `soft_top_k`.
BISECTIONS = 50


def soft_top_k(theta: Tensor, k: float, temperature: float = 1.0) -> Tensor:
    """Return sigmoid((theta - t) / temperature) [edge], with t such that the weights sum to k.

    The result is differentiable, also through t.
    """
    with torch.no_grad():
        low, high = theta.min() - 20 * temperature, theta.max() + 20 * temperature
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if torch.sigmoid((theta - middle) / temperature).sum() > k:
                low = middle
            else:
                high = middle
        threshold = (low + high) / 2
        weights = torch.sigmoid((theta - threshold) / temperature)
        slope = (weights * (1 - weights) / temperature).sum()
    # One Newton step at the solution hardly moves it, but carries the derivative of t with respect to theta.
    threshold = threshold + (torch.sigmoid((theta - threshold) / temperature).sum() - k) / slope
    return torch.sigmoid((theta - threshold) / temperature)


def hard_top_k(theta: Tensor, k: int) -> Tensor:
    """Return 1 for the k largest entries [edge] and 0 for the others; ties go to the first."""
    largest = torch.argsort(theta, descending=True, stable=True)[:k]
    return torch.zeros_like(theta).index_fill_(0, largest, 1.0)


def train(learner: TopKParameters, problem: LearningProblem, session: Session) -> Unit:
    """Return the array `value` [edge] and the losses, trend and seconds of learning, from the store if it has them."""
    graph = problem.model.graph

    def describe(state: TrainingState) -> Unit:
        sizes = [_draw_size(learner, problem, step)[0] for step in range(state.step)]
        about = {"losses": list(state.losses), "trend": loss_trend(state.losses, sizes), "seconds": state.seconds}
        return Unit({"value": (state.theta - state.theta.min()).numpy()}, about)

    training = Training(
        learner.steps,
        start=partial(_first_parameters, learner, problem, session),
        prepare=partial(_prepare_steps, learner, problem, session),
        rate=lambda step: learner.rate_at(step, graph),
        betas=BETAS,
        describe=describe,
    )
    return training.run(training_key(learner, problem, session), session)


def _first_parameters(learner: TopKParameters, problem: LearningProblem, session: Session) -> Tensor:
    ranking = None
    if learner.warm is not None:
        scores = score_edges(
            problem.model, problem.task, learner.warm, problem.metric, memory=problem.memory, session=session
        )
        ranking = summarise(scores).ranking
    return torch.tensor(learner.start(ranking, problem.model.graph))


def _draw_size(learner: TopKParameters, problem: LearningProblem, step: int) -> tuple[int, np.random.Generator]:
    """Return the number of edges of a step's circuit, and the generator of its noise; both depend on `step` only."""
    graph = problem.model.graph
    rng = np.random.default_rng([learner.seed, 0, step])
    if learner.draw == "uniform":
        return int(rng.integers(1, graph.n_edges)), rng
    sizes, probabilities = size_chances(graph, problem.sizes)
    return int(rng.choice(sizes, p=probabilities) * graph.n_edges), rng


def _prepare_steps(
    learner: TopKParameters, problem: LearningProblem, session: Session
) -> Callable[[TrainingState], tuple[float, Tensor]]:
    """Return the function that computes the loss and the gradient [edge] of the next step."""
    runner = StepRunner(problem, session.engine, learner.measure, learner.batch, learner.seed)

    def gradient_of(state: TrainingState) -> tuple[float, Tensor]:
        size, rng = _draw_size(learner, problem, state.step)
        noise = torch.tensor(rng.logistic(scale=learner.noise, size=len(state.theta)), dtype=torch.float32)
        theta = (state.theta + noise).requires_grad_()
        soft = soft_top_k(theta, size, learner.temperature)
        weights = hard_top_k(theta.detach(), size) if learner.forward == "hard" else soft.detach()
        loss, gradient = runner.run(runner.examples(state.step), weights)
        # With a hard forward pass this is straight through: the hard circuit's gradient is used for the soft choice.
        (gradient,) = torch.autograd.grad(soft, theta, gradient)
        return loss, gradient

    return gradient_of
