"""TopKLearner: one value per edge, such that at every size the best edges behave as the measure wants.

The edges with the largest sum of scores are not the most faithful circuit. Here one parameter per edge is learned so
that the best edges of any number score well on the measure: close to the model for CMD, as much of the task as possible
for CPR. A step draws a size and noise, runs the best edges of that size, and moves the parameters along the
gradient of a soft choice of as many edges (straight through).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, CPR, Measure, areas, faithfulness, size_to_edges
from ..graph import BaseGraph
from ..method import check_is
from ..runtime.progress import ignore_progress
from ..runtime.store import Unit
from ..score import EapIg, Scorer
from ..tasks import Task
from .base import MOST_STEPS, Learner, LearningCost, LearningProblem, check_choice
from .refine import calibrate_ranking, compose_ranking, inner_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from ..runtime.session import Session
    from .training import StepRunner, TrainingState

# A limit for parameters from files: more rankings than an estimate of the spread needs.
MOST_RANKINGS = 1000
# The candidate of the composition that is the ranking from which learning starts.
WARM_START = "warm start"
# With fewer steps than this, default learning rates of measures that are maximised are larger, up to MAX_FACTOR times,
# so that parameters can move as far.
FEW_STEPS, MAX_FACTOR = 170, 3.0
# With forward='sharp', the temperature of the weights that run, as a share of that of the gradient; and to which share
# of its first value it falls for a measure that has a target.
SHARPNESS, FALL = 0.25, 0.1
# The fewest validation examples that are a limit. With more steps, the limit is half as many examples as steps.
LEAST_VALIDATION = 24
# The fewest examples that are a limit for calibration.
LEAST_CALIBRATION = 100
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


@dataclass(frozen=True)
class TopKLearner(Learner):
    """Learns a ranking whose best edges, at every size, do well on a measure.

    measure      the measure whose loss is minimised
    steps        number of steps, at most; each runs `batch` examples, counted once per circuit
    rate         learning rate; None takes one that suits the measure and the numbers of edges and steps
    noise        scale of the logistic noise on the parameters; `temperature` of the soft choice
    warm         scores whose ranks the parameters start from; None starts from zeros, which halves the gain
    resamples    how many more rankings to learn from resampled examples, for the spread of the values
    forward      'hard' runs the circuit of the best edges; 'soft' runs all edges with the weights of the soft choice;
                 'sharp' with weights nearer to 0 and 1 (by `SHARPNESS`). If a path lacks several whole edges,
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
    reads_start: ClassVar[bool] = True

    measure: Measure = CMD
    steps: int = 300
    batch: int = 16
    rate: float | None = None
    noise: float = 0.3
    temperature: float = 1.0
    warm: Scorer | None = field(default_factory=EapIg)
    seed: int = 0
    resamples: int = 0
    forward: Literal["hard", "sharp", "soft"] = "sharp"
    draw: Literal["log", "uniform"] = "log"
    decay: bool = True
    circuits: int = 4
    normalise: bool = True
    validate: bool = True
    reverse: bool = True
    node_rate: float = 0.3
    calibrate: bool = True

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        if self.warm is not None:
            check_is("scorer", Scorer, self.warm)
        for what, value in (("steps", self.steps), ("examples per batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"{what} must be from 1 to {MOST_STEPS:,}, not {value}")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not 0 <= self.noise < float("inf") or not 0 < self.temperature < float("inf"):
            raise InputError(f"noise must be at least 0 and temperature above, not {self.noise} and {self.temperature}")
        if not 0 <= self.node_rate < float("inf"):
            raise InputError(f"node_rate must be a number of at least 0, not {self.node_rate}")
        check_choice("forward", self.forward, ("hard", "sharp", "soft"))
        check_choice("draw", self.draw, ("log", "uniform"))
        if not 1 <= self.circuits <= MOST_RANKINGS:
            raise InputError(f"a step runs at least 1 circuit and at most {MOST_RANKINGS:,}, not {self.circuits}")
        if not 0 <= self.seed <= MAX_SEED or not 0 <= self.resamples <= MOST_RANKINGS:
            raise InputError(
                f"a seed and a number of resamples are at least 0, below 2^63 and at most {MOST_RANKINGS:,}, not "
                f"{self.seed} and {self.resamples}"
            )

    @property
    def n_circuits(self) -> int:
        """The number of circuits of a step: `circuits`, or `batch` if that is smaller."""
        return min(self.circuits, self.batch)

    @property
    def n_examples(self) -> int:
        """The number of examples of a step, on each of which all circuits of the step run."""
        return self.batch // self.n_circuits

    def rate_for(self, graph: BaseGraph) -> float:
        """Return the learning rate of the first step; with `decay` it falls to 0 as half a cosine.

        For a measure that is maximised, the default is larger for few steps. One that has a target, as CMD has,
        would overshoot it.
        """
        if self.rate is not None:
            return self.rate
        factor = 1.0 if self.measure.has_target else min(MAX_FACTOR, max(1.0, FEW_STEPS / self.steps))
        return self.measure.learning_rate(graph.n_edges) * factor

    def rate_at(self, step: int, graph: BaseGraph) -> float:
        """Return the learning rate of the edges' own parameters in a step."""
        return self.rate_for(graph) * (0.5 * (1 + math.cos(math.pi * step / self.steps)) if self.decay else 1.0)

    def start(self, ranking: Ranking | None, graph: BaseGraph) -> NDArray[np.float32]:
        """Return the first parameters [edge]: the logit of each edge's rank, or zeros without a ranking."""
        if ranking is None:
            return np.zeros(graph.n_edges, np.float32)
        value = np.abs(ranking.value) if self.measure.rank == "absolute" else ranking.value
        place = np.argsort(np.argsort(value, kind="stable"), kind="stable") / max(1, len(value) - 1)
        place = np.clip(place, 1e-4, 1 - 1e-4)
        return np.log(place / (1 - place)).astype(np.float32)

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Train once on all examples, and once on every resample of them."""
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


def soft_top_k(theta: Tensor, k: Tensor | float, temperature: float = 1.0) -> Tensor:
    """Return sigmoid((theta - t) / temperature) [..., edge], with t such that the weights sum to k.

    The result is differentiable, also through t. `k` is one number, or [..., 1].
    """
    import torch

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
        return theta * 0
    threshold = np.partition(values, -k)[-k]
    chosen = values > threshold
    chosen[np.flatnonzero(values == threshold)[: k - chosen.sum()]] = True
    return theta.new_tensor(chosen)


def train(learner: TopKLearner, problem: LearningProblem, session: Session) -> Unit:
    """Return the array `value` [edge] and how learning went, from the store if it has them."""
    import torch

    from .training import Training, training_key

    run, graph = _Run(learner, problem, session), problem.graph
    # The learning rate of every parameter, relative to that of the edges.
    relative_rates = torch.cat([torch.ones(graph.n_edges), torch.full((2 * graph.n_nodes,), learner.node_rate)])
    training = Training(
        learner.steps,
        start=run.start,
        prepare=run.prepare,
        rate=lambda step: learner.rate_at(step, graph) * relative_rates,
        betas=BETAS,
        describe=run.describe,
        window=WINDOW * learner.steps,
        check=None if run.split.validation is None else run.check,
    )
    return training.run(training_key(learner, problem, session), session)


@dataclass(frozen=True, eq=False)
class _Run:
    """What one training needs. Nothing is computed before it is needed: the store may have the result."""

    learner: TopKLearner
    problem: LearningProblem
    session: Session

    @property
    def quiet(self) -> Session:
        """The session for evaluations, which show no progress and store nothing."""
        from ..runtime.session import Session

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
        # Their number is even, and grows with the steps, as their time does.
        most = max(LEAST_VALIDATION, 2 * (self.learner.steps // 4))
        return replace(doubled, validation=doubled.validation[:most])

    @cached_property
    def warm(self) -> Ranking | None:
        """The ranking of the scores that learning starts from."""
        return None if self.learner.warm is None else self.problem.rank_by(self.learner.warm, self.session)

    def start(self) -> Tensor:
        """Return the first parameters: those of the edges, then of nodes as sources, then of nodes as targets."""
        import torch

        graph = self.problem.graph
        of_edges = torch.tensor(self.learner.start(self.problem.start or self.warm, graph))
        return torch.cat([of_edges, torch.zeros(2 * graph.n_nodes)])

    @cached_property
    def shared(self) -> tuple[Tensor, Tensor]:
        """The index [edge] of the parameter that an edge shares with all edges of its source, and of its target."""
        import torch

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
        import torch

        from .training import StepRunner

        learner, problem = self.learner, self.both
        if learner.draw == "log" and not inner_sizes(problem):
            raise InputError(
                f"none of the sizes {problem.sizes} leaves a choice in a graph of {problem.graph.n_edges} edges"
            )
        runner = StepRunner(problem, self.session.engine, learner.measure, learner.n_examples, learner.seed)
        # Losses are normalised by those of one direction, which take half as long.
        first = self.values(self.start())
        scale_of = (
            _loss_scales(learner, self.split, runner, first, self.quiet) if learner.normalise else lambda size: 1.0
        )

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
                # For a target, the last steps run almost whole edges, so that what is learned holds for circuits.
                fall = FALL ** (state.step / learner.steps) if learner.measure.has_target else 1.0
                temperature = SHARPNESS * learner.temperature * fall
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
        # Only normalised losses of sizes from the whole range can be compared.
        trend = loss_trend(state.losses) if learner.normalise and learner.n_circuits > 1 else 0.0
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
            examples = examples[: max(LEAST_CALIBRATION, 2 * learner.steps)]
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


def _draw_sizes(learner: TopKLearner, problem: LearningProblem, step: int) -> tuple[list[int], np.random.Generator]:
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
    learner: TopKLearner, problem: LearningProblem, runner: StepRunner, theta: Tensor, session: Session
) -> Callable[[int], float]:
    """Return the function from a number of edges to what its loss is multiplied with: 1 / the warm start's loss."""
    import torch

    graph = problem.graph
    sizes = list(inner_sizes(problem).values())
    circuits = [Circuit(graph, hard_top_k(theta, size).numpy() > 0) for size in sizes]
    evaluation = problem.evaluate(circuits, session, problem.task[:MAX_SCALE_EXAMPLES])
    value, full, empty = (torch.tensor(x) for x in (evaluation.values, evaluation.full, evaluation.empty))
    losses = learner.measure.loss(value, full, empty, runner.metric_range).mean(1).abs().numpy()
    least = LEAST_LOSS * max(float(losses.max()), LEAST_LARGEST_LOSS)
    log_sizes, log_losses = np.log(sizes), np.log(losses + least)
    return lambda size: float(np.exp(-np.interp(np.log(size), log_sizes, log_losses)))


def loss_trend(losses: Sequence[float]) -> float:
    """Return the relative change of the loss from the first to the last third of the steps; below 0 if it fell."""
    third = len(losses) // 3
    if third < 3:
        return 0.0
    first, last = losses[:third], losses[-third:]
    before = np.mean(np.abs(first))
    return float((np.mean(last) - np.mean(first)) / before) if before else 0.0
