"""The training of `TopKLearner`: draw sizes and noise, run the circuits of these sizes, follow their gradient."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..errors import InputError
from ..evaluate import areas, faithfulness, size_to_edges
from ..runtime.progress import ignore_progress
from ..runtime.session import Session
from ..runtime.store import Unit
from ..tasks import Task
from .base import LearningProblem
from .calibrate import calibrate_ranking
from .compose import compose_ranking, inner_sizes
from .top_k_parameters import WARM_START, TopKParameters, loss_trend
from .training import StepRunner, Training, TrainingState, training_key

BETAS = (0.9, 0.99)
# Bisection steps of the threshold in `soft_top_k`; the Newton step that follows squares the error.
BISECTIONS = 24
# With forward='sharp', weights below this are 0, so that heads that hardly matter don't run.
LEAST_WEIGHT = 1e-3
# The largest share of the edges that steps with draw='log' draw.
LARGEST_SIZE = 0.7
# The share of the examples that is held out, and the fewest examples of which any is.
HELD_OUT, LEAST_TO_HOLD_OUT = 0.25, 16
# Parameters are averaged over about this share of the steps.
WINDOW = 0.1
# Losses are normalised by the warm start's plus this share of its largest one: some sizes have a loss of almost 0.
LEAST_LOSS = 0.05
# Without a warm start, all losses can be 0.
LEAST_LARGEST_LOSS = 0.01
# The warm start's losses are means over the first examples, at most this many: they need not be exact.
MAX_SCALE_EXAMPLES = 32
# Pairs are used in both directions if the model's mean metric on reversed pairs is at least this share of its mean on
# the pairs, for the first pairs of the task, at most MAX_SAMPLE.
LEAST_SHARE, MAX_SAMPLE = 0.5, 16


def soft_top_k(theta: Tensor, k: Tensor | float, temperature: float = 1.0) -> Tensor:
    """Return sigmoid((theta - t) / temperature) [..., edge], with t such that the weights sum to k.

    The result is differentiable, also through t. `k` is one number, or [..., 1].
    """
    with torch.no_grad():
        low = theta.amin(-1, keepdim=True) - 20 * temperature
        high = theta.amax(-1, keepdim=True) + 20 * temperature
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            is_low = torch.sigmoid((theta - middle) / temperature).sum(-1, keepdim=True) > k
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        threshold = (low + high) / 2
        weights = torch.sigmoid((theta - threshold) / temperature)
        slope = (weights * (1 - weights) / temperature).sum(-1, keepdim=True)
    # One Newton step completes the bisection, and carries the derivative of t with respect to theta.
    threshold = threshold + (torch.sigmoid((theta - threshold) / temperature).sum(-1, keepdim=True) - k) / slope
    return torch.sigmoid((theta - threshold) / temperature)


def hard_top_k(theta: Tensor, k: int) -> Tensor:
    """Return 1 for the k largest entries [edge] and 0 for the others; ties go to the first."""
    values = theta.numpy()
    if k == 0:
        return torch.zeros_like(theta)
    threshold = np.partition(values, -k)[-k]
    chosen = values > threshold
    chosen[np.flatnonzero(values == threshold)[: k - chosen.sum()]] = True
    return torch.tensor(chosen, dtype=theta.dtype)


def train(learner: TopKParameters, problem: LearningProblem, session: Session) -> Unit:
    """Return the array `value` [edge] and how learning went, from the store if it has them."""
    run = _Run(learner, problem, session)
    training = Training(
        learner.steps,
        start=run.start,
        prepare=run.prepare,
        rate=lambda step: learner.rate_at(step, problem.graph) * run.relative_rates,
        betas=BETAS,
        describe=run.describe,
        window=WINDOW * learner.steps,
        check=None if run.split.validation is None else run.check,
    )
    return training.run(training_key(learner, problem, session), session)


@dataclass(frozen=True, eq=False)
class _Run:
    """What one training needs. Nothing is computed before it is needed: the store may have the result."""

    learner: TopKParameters
    problem: LearningProblem
    session: Session

    @property
    def quiet(self) -> Session:
        """The session for evaluations, which show no progress and store nothing."""
        return Session(engine=self.session.engine, progress=ignore_progress)

    @cached_property
    def split(self) -> LearningProblem:
        """The problem with the examples to learn from, and those to choose on if the learner validates."""
        if not self.learner.validate:
            return replace(self.problem, validation=None)
        task, validation = split_validation(self.problem, self.learner.seed)
        return replace(self.problem, task=task, validation=validation)

    @cached_property
    def both(self) -> LearningProblem:
        """The same in both directions, with as many validation examples as the learner uses."""
        doubled = in_both_directions(self.split, self.quiet) if self.learner.reverse else self.split
        if doubled.validation is None:
            return doubled
        return replace(doubled, validation=doubled.validation[: self.learner.max_validation])

    @cached_property
    def warm(self) -> Ranking | None:
        """The ranking of the scores that learning starts from."""
        return None if self.learner.warm is None else self.problem.rank_by(self.learner.warm, self.session)

    def start(self) -> Tensor:
        """Return the first parameters: those of the edges, then of nodes as sources, then of nodes as targets."""
        graph = self.problem.graph
        of_edges = torch.tensor(self.learner.start(self.problem.start or self.warm, graph))
        return torch.cat([of_edges, torch.zeros(2 * graph.n_nodes)])

    @cached_property
    def relative_rates(self) -> Tensor:
        """The learning rate of every parameter, relative to that of the edges."""
        graph = self.problem.graph
        return torch.cat([torch.ones(graph.n_edges), torch.full((2 * graph.n_nodes,), self.learner.node_rate)])

    @cached_property
    def shared(self) -> tuple[Tensor, Tensor]:
        """The index [edge] of the parameter that an edge shares with all edges of its source, and of its target."""
        graph = self.problem.graph
        source, target = (torch.tensor(nodes, dtype=torch.int64) for nodes in (graph.edge_source, graph.edge_target))
        return graph.n_edges + source, graph.n_edges + graph.n_nodes + target

    def values(self, parameters: Tensor) -> Tensor:
        """Return the value [edge] of every edge: its own parameter and those of its source and target."""
        of_source, of_target = (parameters.index_select(0, index) for index in self.shared)
        return parameters[: self.problem.graph.n_edges] + of_source + of_target

    def check(self, parameters: Tensor) -> float:
        """Return the area of the circuits of the best edges on validation examples, with the sign of a loss."""
        problem, measure = self.both, self.learner.measure
        graph, values = problem.graph, self.values(parameters)
        sizes = [size_to_edges(size, graph.n_edges) for size in problem.sizes]
        circuits = [Circuit(graph, hard_top_k(values, size).numpy() > 0) for size in sizes]
        evaluation = problem.evaluate(circuits, self.quiet, problem.validation)
        height = measure.height(
            faithfulness(evaluation.values.mean(1), evaluation.full.mean(), evaluation.empty.mean())
        )
        return -measure.better * (float(areas(problem.sizes, height)) if len(sizes) > 1 else float(height[0]))

    def prepare(self) -> Callable[[TrainingState], tuple[float, Tensor]]:
        """Return the function that computes the loss and the gradient [parameter] of the next step."""
        learner, problem = self.learner, self.both
        if learner.draw == "log" and not inner_sizes(problem):
            raise InputError(
                f"none of the sizes {problem.sizes} leaves a choice in a graph of {problem.graph.n_edges} edges"
            )
        runner = StepRunner(problem, self.session.engine, learner.measure, learner.n_examples, learner.seed)
        # Losses are normalised by those of one direction, which take half as long.
        first = self.values(self.start())
        scale_of = _loss_scales(learner, self.split, runner, first) if learner.normalise else lambda size: 1.0

        def gradient_of(state: TrainingState) -> tuple[float, Tensor]:
            sizes, rng = _draw_sizes(learner, problem, state.step)
            noise = rng.logistic(scale=learner.noise, size=(len(sizes), problem.graph.n_edges))
            parameters = state.theta.clone().requires_grad_()
            theta = self.values(parameters) + torch.tensor(noise, dtype=torch.float32)
            soft = soft_top_k(theta, torch.tensor(sizes)[:, None], learner.temperature)
            weights = soft.detach()
            if learner.forward == "hard":
                weights = torch.stack([hard_top_k(row, size) for row, size in zip(theta.detach(), sizes, strict=True)])
            elif learner.forward == "sharp":
                temperature = learner.sharp_temperature(state.step)
                weights = soft_top_k(theta.detach(), torch.tensor(sizes)[:, None], temperature)
                weights[weights < LEAST_WEIGHT] = 0
            losses, gradient = runner.run(runner.examples(state.step), weights if len(sizes) > 1 else weights[0])
            scales = np.array([scale_of(size) for size in sizes]) / len(sizes)
            # Unless the forward pass is soft, this is straight through: the soft choice gets the gradient of what ran.
            gradient = gradient.view(len(sizes), -1) * torch.tensor(scales, dtype=torch.float32)[:, None]
            (gradient,) = torch.autograd.grad(soft, parameters, gradient)
            return float((losses * scales).sum()), gradient

        return gradient_of

    def describe(self, state: TrainingState) -> Unit:
        """Return the final values [edge] and how learning went."""
        learner, problem, measure = self.learner, self.problem, self.learner.measure
        # Normalised losses of sizes from the whole range can be compared; others only between equal sizes.
        is_comparable = learner.normalise and learner.n_circuits > 1
        sizes = [0 if is_comparable else _draw_sizes(learner, problem, step)[0][0] for step in range(state.step)]
        trend = loss_trend(state.losses, sizes)
        about = {"losses": list(state.losses), "trend": trend, "steps": state.step, "seconds": state.seconds}
        about["both_directions"] = len(self.both.task) > len(self.split.task)
        validation = self.both.validation
        if validation is None:
            last = self.values(state.theta).numpy()
            return Unit({"value": last - last.min()}, about)
        learned, first = (self.values(each).double().numpy() for each in (state.best, self.start()))
        candidates = {"learned": learned, "half-way": (first + learned) / 2}
        if problem.start is not None:
            candidates["start"] = first
        if self.warm is not None:
            value = np.abs(self.warm.value) if measure.rank == "absolute" else self.warm.value
            candidates = {WARM_START: value.astype(np.float64), **candidates}
        started = time.perf_counter()
        value, choices = compose_ranking(problem, validation, candidates, measure, self.quiet)
        if learner.calibrate and measure.has_target and self.warm is not None:
            # Spans may differ between splits, so (edge, span) pairs are calibrated on the examples of the task only.
            examples = self.split.task if problem.positions else self.split.task.join(self.split.validation)
            examples = examples[: learner.max_calibration]
            value, calibration = calibrate_ranking(problem, examples, value, self.warm.value, self.quiet)
            about["calibration"] = [[size, *both] for size, both in calibration.items()]
        about |= {
            "seconds": state.seconds + time.perf_counter() - started,
            "validation": [[step, -measure.better * loss] for step, loss in state.checks],
            "validation_examples": len(validation),
            "choices": [[size, name] for size, name in choices.items()],
        }
        return Unit({"value": value - value.min()}, about)


def split_validation(problem: LearningProblem, seed: int) -> tuple[Task, Task | None]:
    """Return the examples to learn from and those to choose on; none to choose on if there are too few."""
    task = problem.task
    if problem.validation is not None:
        return task, problem.validation
    distinct = list(dict.fromkeys(task.examples))
    if len(distinct) < LEAST_TO_HOLD_OUT:
        return task, None
    order = np.random.default_rng([seed, 3]).permutation(len(distinct))
    held_out = {distinct[place] for place in order[: int(HELD_OUT * len(distinct))]}
    is_held_out = np.array([example in held_out for example in task.examples])
    return task.part(np.flatnonzero(~is_held_out)), task.part(np.flatnonzero(is_held_out))


def in_both_directions(problem: LearningProblem, session: Session) -> LearningProblem:
    """Return the problem with all pairs of task and validation in both directions: as they are, and exchanged.

    What a model prefers whatever the prompt says, such as one name over another, has opposite signs in the two
    directions. So it cancels, and few prompts give a ranking that holds for other ones. Texts and spans are left out.

    Return the problem as it is if pairs can't be reversed (`Example.reversed`), if the metric does not compare two
    answers, if spans matter, or if the model does not prefer the exchanged answer for the corrupted prompt.
    """
    task, validation = _add_reversed(problem.task), problem.validation
    both_validation = None if validation is None else _add_reversed(validation)
    can_reverse = (both_validation is None) == (validation is None)
    if task is None or not can_reverse or problem.positions or not problem.metric.is_difference:
        return problem
    of_model = problem.evaluate([], session, task[: 2 * MAX_SAMPLE]).full
    if of_model[1::2].mean() < LEAST_SHARE * of_model[::2].mean():
        return problem
    return replace(problem, task=task, validation=both_validation)


def _add_reversed(task: Task) -> Task | None:
    """Return the task with every pair followed by its reverse; None if a pair can't be reversed."""
    reverses = [example.reversed for example in task]
    pairs = [(reverse.reversed, reverse) for reverse in reverses if reverse is not None]
    if len(pairs) < len(task):
        return None
    return replace(task, examples=tuple(example for pair in pairs for example in pair if example is not None))


def _draw_sizes(learner: TopKParameters, problem: LearningProblem, step: int) -> tuple[list[int], np.random.Generator]:
    """Return the number of edges of each circuit of a step, and the generator of its noise.

    Both depend on `step` only. With draw='log', each circuit draws from an equal part of the range.
    """
    n_edges, count = problem.graph.n_edges, learner.n_circuits
    rng = np.random.default_rng([learner.seed, 0, step])
    if learner.draw == "uniform":
        return [int(rng.integers(1, n_edges)) for _ in range(count)], rng
    sizes = inner_sizes(problem)
    low, high = np.log(min(sizes.values())), np.log(max(*sizes, LARGEST_SIZE) * n_edges)
    return [round(np.exp(low + (high - low) * (part + rng.random()) / count)) for part in range(count)], rng


def _loss_scales(
    learner: TopKParameters, problem: LearningProblem, runner: StepRunner, theta: Tensor
) -> Callable[[int], float]:
    """Return the function from a number of edges to what its loss is multiplied with: 1 / the warm start's loss."""
    graph = problem.graph
    sizes = list(inner_sizes(problem).values())
    circuits = [Circuit(graph, hard_top_k(theta, size).numpy() > 0) for size in sizes]
    quiet = Session(engine=runner.engine, progress=ignore_progress)
    evaluation = problem.evaluate(circuits, quiet, problem.task[:MAX_SCALE_EXAMPLES])
    value, full, empty = (torch.tensor(x) for x in (evaluation.values, evaluation.full, evaluation.empty))
    losses = learner.measure.loss(value, full, empty, runner.span).mean(1).abs().numpy()
    least = LEAST_LOSS * max(float(losses.max()), LEAST_LARGEST_LOSS)
    log_sizes, log_losses = np.log(sizes), np.log(losses + least)
    return lambda size: float(np.exp(-np.interp(np.log(size), log_sizes, log_losses)))
