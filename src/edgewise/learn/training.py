"""What learners share: gradients of weighted circuits, Adam, and a loop of steps that resumes where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from ..evaluate import CMD, Ablation, Measure
from ..models import Model, make_batch, plan_batches
from ..models.memory import Need, can_keep_streams, choose_batch_size, weighted_need
from ..models.prepare import prepare, repeat_rows
from ..runtime.engine import Engine, WorkItem, is_narrow_model, restore_order
from ..runtime.progress import ignore_progress
from ..runtime.session import Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..score.run_scorer import check_contrast
from ..tasks import Example, Metric
from .base import Learner, LearningCost, LearningProblem

# A step of a wide model is split into parts of at most this many runs, so that workers can share it. Each circuit of
# the step runs on each example.
PART_RUNS = 8
# Seconds between two saved states.
SAVE_SECONDS = 15.0
# The loss shown is the mean of this many steps: a single loss depends on the size that its step drew.
AVERAGED_STEPS = 20
# How often parameters are evaluated on validation examples at most, the fewest steps between two checks, and after how
# many checks without gain training stops.
CHECKS, STEPS_PER_CHECK, PATIENCE = 8, 20, 3
STATE_ARRAYS = ("theta", "mean", "square", "average", "best")


@dataclass(frozen=True, eq=False)
class GradientJob:
    """A job: the loss of a batch when edges have weights, and the gradient with respect to the weights.

    weights       [edge]; [circuit, edge] for several circuits, each on all examples; [row, edge] if examples have
                  different weights
    ends          example -> (metric of the model, metric of the empty circuit)
    metric_range  the mean difference between the two
    rows          example -> row of `weights`; None if all examples have the same
    by_span       whether weights are those of (edge, span) pairs
    at_once       how many circuits run as one batch; None for all
    """

    measure: Measure
    metric: Metric
    ablation: Ablation
    weights: Tensor
    ends: Mapping[Example, tuple[float, float]]
    metric_range: float
    rows: Mapping[Example, int] | None = None
    by_span: bool = False
    at_once: int | None = None

    def __call__(self, model: Model, examples: Sequence[Example]) -> tuple[float | list[float], Tensor]:
        """Return the sum of the examples' losses, and its gradient [edge]; with `rows`, [example, edge].

        For several circuits, return the loss of each, and the gradients [circuit, edge]. They share the runs that don't
        depend on the weights.
        """
        transformer, all_logits = model.transformer, self.metric.reads_all_logits
        tokens = make_batch(examples, transformer.device)
        batch = prepare(transformer, tokens, self.ablation.shares_prefix, self.by_span)
        with torch.no_grad():
            reference = self.ablation.reference(batch)
            # Metrics that read only the answers' logits don't need the clean run.
            clean = batch.read_out(batch.run(batch.clean), True) if all_logits else None
        ends = torch.tensor([self.ends[example] for example in examples], dtype=torch.float64)
        weights = self.weights if self.rows is None else self.weights[[self.rows[each] for each in examples]]
        has_circuits = self.rows is None and weights.ndim == 2
        losses, gradients = [], []
        for part in weights.split(self.at_once or len(weights)) if has_circuits else [weights]:
            times = len(part) if has_circuits else 1
            repeated = batch.repeat(times)
            part = part.detach().to(transformer.device).requires_grad_()
            stream = repeated.run_weighted(part, repeat_rows(reference, times))
            readout = repeated.read_stream(stream, all_logits)
            value = self.metric.checked(readout, readout if clean is None else repeat_rows(clean, times))
            full, empty = ends.to(value).repeat(times, 1).T
            loss = self.measure.loss(value, full, empty, self.metric_range)
            (gradient,) = torch.autograd.grad(loss.sum(), part)
            losses += loss.detach().cpu().view(times, -1).sum(1).tolist()
            gradients.append(gradient.float().cpu())
        return (losses, torch.cat(gradients)) if has_circuits else (losses[0], gradients[0])


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Where training is.

    theta         [parameter]
    mean, square  Adam's means of gradients and of their squares
    average       moving average of theta
    best          the average at the check of the lowest loss
    losses        loss of every step
    checks        (step, validation loss)
    """

    theta: Tensor
    mean: Tensor
    square: Tensor
    average: Tensor
    best: Tensor
    losses: tuple[float, ...] = ()
    checks: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0

    @classmethod
    def start(cls, theta: Tensor) -> TrainingState:
        """Return the state before the first step."""
        return cls(theta, torch.zeros_like(theta), torch.zeros_like(theta), theta, theta)

    @property
    def step(self) -> int:
        """The number of steps done."""
        return len(self.losses)

    def to_unit(self) -> Unit:
        """Return the state as a unit for the store."""
        arrays = {name: getattr(self, name).numpy() for name in STATE_ARRAYS}
        return Unit(arrays, {"losses": list(self.losses), "checks": list(self.checks), "seconds": self.seconds})

    @classmethod
    def from_unit(cls, unit: Unit) -> TrainingState:
        """Return the state that `to_unit` wrote."""
        arrays = {name: torch.tensor(np.array(array)) for name, array in unit.arrays.items()}
        about = unit.about
        checks = tuple((step, loss) for step, loss in about["checks"])
        return cls(**arrays, losses=tuple(about["losses"]), checks=checks, seconds=about["seconds"])

    def adam_step(
        self,
        gradient: Tensor,
        loss: float,
        rate: float | Tensor,
        seconds: float,
        betas: tuple[float, float],
        window: float = 1,
    ) -> TrainingState:
        """Return the state after a step of Adam. `average` is over about the last `window` steps.

        torch.optim.Adam multiplies in another order. That changes the last bits of published rankings.
        """
        mean = betas[0] * self.mean + (1 - betas[0]) * gradient
        square = betas[1] * self.square + (1 - betas[1]) * gradient.square()
        count = self.step + 1
        direction = mean / (1 - betas[0] ** count)
        scale = (square / (1 - betas[1] ** count)).sqrt() + 1e-8
        theta = self.theta - rate * direction / scale
        average = self.average + (theta - self.average) / max(1.0, min(count, window))
        return replace(
            self, theta=theta, mean=mean, square=square, average=average, losses=(*self.losses, loss), seconds=seconds
        )

    def add_check(self, loss: float) -> TrainingState:
        """Return the state with a validation loss of `average`, which is kept if no earlier loss is lower."""
        is_best = all(loss < earlier for _, earlier in self.checks)
        return replace(self, checks=(*self.checks, (self.step, loss)), best=self.average if is_best else self.best)


@dataclass(frozen=True)
class Training:
    """The steps of a learner.

    steps     how many, at most
    start     returns the first parameters [parameter]
    prepare   called once; returns the function that computes a step's loss and gradient from the state
    rate      step -> learning rate, of all parameters or of each [parameter]
    betas     Adam's betas
    describe  final state -> the array `value` [edge], and details for the ranking's `origin`
    window    steps over which parameters are averaged, about
    check     returns the validation loss of parameters; None: there are no checks
    """

    steps: int
    start: Callable[[], Tensor]
    prepare: Callable[[], Callable[[TrainingState], tuple[float, Tensor]]]
    rate: Callable[[int], float | Tensor]
    betas: tuple[float, float]
    describe: Callable[[TrainingState], Unit]
    window: float = 1
    check: Callable[[Tensor], float] | None = None

    def run(self, key: str, session: Session) -> Unit:
        """Return the result of all steps, from the store if it has them."""
        store = session.store
        finished = store.find(key)
        if finished is not None:
            return finished
        unit = store.save(key, self.describe(self._run_steps(key, session)))
        if (saved := store.latest(key)) is not None:
            store.delete(f"{key}.{saved[0]}")  # only now that the ranking is stored
        return unit

    def _run_steps(self, key: str, session: Session) -> TrainingState:
        """Run all steps, from the last saved state if there is one. Stop when checks no longer improve."""
        store = session.store
        started = last_save = time.perf_counter()
        saved = store.latest(key)
        state = TrainingState.start(self.start()) if saved is None else TrainingState.from_unit(saved[1])
        seconds_before, saved_step = state.seconds, state.step
        gradient_of = self.prepare()
        # Whether to check depends on the number of steps only, so that a resumed training has the same checks.
        n_checks = max(1, min(CHECKS, self.steps // STEPS_PER_CHECK))
        check_steps = {round(self.steps * (number + 1) / n_checks) for number in range(n_checks)} | {0}
        session.report("learn", state.step, self.steps)
        while True:
            if self.check is not None and state.step in check_steps and state.step not in dict(state.checks):
                state = state.add_check(self.check(state.average))
            checked = [loss for _, loss in state.checks]
            if state.step >= self.steps or (checked and len(checked) - 1 - int(np.argmin(checked)) >= PATIENCE):
                return state
            loss, gradient = gradient_of(state)
            if not np.isfinite(loss) or not torch.isfinite(gradient).all():
                raise InputError(
                    f"learning broke down at step {state.step + 1}, where the loss is {loss:g}; "
                    "try a smaller learning rate, or dtype='float32'"
                )
            now = time.perf_counter()
            seconds = seconds_before + now - started
            state = state.adam_step(gradient, loss, self.rate(state.step), seconds, self.betas, self.window)
            if now - last_save > SAVE_SECONDS:
                store.save(f"{key}.{state.step}", state.to_unit())
                store.delete(f"{key}.{saved_step}")
                saved_step, last_save = state.step, now
            session.report(f"learn: loss {np.mean(state.losses[-AVERAGED_STEPS:]):.4f}", state.step, self.steps)


class StepRunner:
    """Runs the weighted circuits of all steps, given the runs that the steps share.

    measure  the measure whose loss is computed from the problem's metric
    batch    examples per step
    seed     seed of the order of batches
    """

    def __init__(self, problem: LearningProblem, engine: Engine, measure: Measure, batch: int, seed: int) -> None:
        model, task, metric, ablation = problem.model, problem.task, problem.metric, problem.ablation
        evaluation = problem.evaluate([], Session(engine=engine, progress=ignore_progress))
        full, empty = evaluation.full, evaluation.empty
        check_contrast(float(full.mean()), float(empty.mean()), task, metric)
        self.problem, self.engine, self.measure, self.seed = problem, engine, measure, seed
        self.batches = plan_batches(task.examples, batch)
        self.ablation = ablation.prepare(model, task, self.batches, engine)
        self.ends = dict(zip(task.examples, zip(full.tolist(), empty.tolist(), strict=True), strict=True))
        self.metric_range = float((full - empty).mean())
        # [edge] the node whose weight an edge has; None if edges have weights of their own
        sources = torch.tensor(model.graph.edge_source.astype(np.int64))
        self.edge_node = sources if problem.level == "node" else None

    def examples(self, step: int) -> list[Example]:
        """Return the examples of a step. They depend on its number only, so that resuming gives the same ranking."""
        order = np.random.default_rng([self.seed, 1, step // len(self.batches)]).permutation(len(self.batches))
        return [self.problem.task.examples[row] for row in self.batches[order[step % len(self.batches)]]]

    def run(
        self, examples: Sequence[Example], weights: Tensor, rows: Mapping[Example, int] | None = None
    ) -> tuple[NDArray[np.float64], Tensor]:
        """Return the mean loss of examples, and its gradient with respect to the weights.

        The weights are [edge], [circuit, edge], or [row, edge] with `rows` (example -> row); the gradient has the same
        shape. The loss is a number, or [circuit]. Of nodes, a weight is that of all edges out of a node. Workers share
        parts of the examples.
        """
        model, shape = self.problem.model, weights.shape
        n_examples, at_once = choose_part(self.problem, len(weights) if rows is None and weights.ndim == 2 else 1)
        if self.edge_node is not None:
            weights = weights[..., self.edge_node]
        ends = {example: self.ends[example] for example in examples}
        job = GradientJob(
            self.measure, self.problem.metric, self.ablation, weights, ends, self.metric_range, rows,
            self.problem.positions, at_once,
        )  # fmt: skip
        starts = range(0, len(examples), n_examples)
        items = [WorkItem(job, examples[start : start + n_examples]) for start in starts]
        loss, total = np.zeros(weights.shape[:-1] if rows is None else ()), torch.zeros(weights.shape)
        # Other steps run the other batches, so that starting processes pays even if a step takes a second.
        n_items_in_all = len(items) * len(self.batches)
        for index, parts in restore_order(self.engine.run(model, items, n_items_in_all)):
            for done, (part_loss, gradient) in parts:
                loss += part_loss
                if rows is None:
                    total += gradient
                else:
                    places = [rows[examples[starts[index] + place]] for place in done]
                    total.index_add_(0, torch.tensor(places), gradient)
        mean_loss, mean_gradient = loss / len(examples), total / len(examples)
        if self.edge_node is not None:
            mean_gradient = torch.zeros(shape).index_add_(-1, self.edge_node, mean_gradient)
        return mean_loss, mean_gradient


def choose_part(problem: LearningProblem, n_circuits: int = 1) -> tuple[int, int]:
    """Return how many examples of a step run at once, and how many of its circuits.

    Both are the same for every engine: each step depends on the one before, so that other rounding would add up.
    """
    fits = choose_batch_size(None, _run_need(problem), problem.memory)
    runs = fits if is_narrow_model(problem.model) else min(fits, PART_RUNS)
    return max(1, runs // n_circuits), min(runs, n_circuits)


def _run_need(problem: LearningProblem) -> Need:
    """Return the memory of a weighted circuit and its gradient."""
    shape, longest = problem.model.transformer.shape, problem.task.longest
    return weighted_need(shape, longest, can_keep_streams(shape, longest), problem.positions)


def training_key(learner: Learner, problem: LearningProblem, session: Session) -> str:
    """Return the key of a training in the session's store; "" without a store."""
    if session.store.folder is None:
        return ""
    settings = (learner, problem.metric, problem.ablation, problem.sizes, choose_part(problem))
    validation = "" if problem.validation is None else problem.validation.digest
    kind: dict[str, Any] = {} if problem.level == "edge" else {"level": problem.level}
    if problem.positions:
        kind["spans"] = [task.span_digest for task in (problem.task, problem.validation) if task is not None]
    kind |= {} if problem.start is None else {"start": problem.start.digest}
    return unit_key(
        "learned", model=problem.model.digest, task=problem.task.digest, validation=validation, how=settings, **kind
    )


def weighted_cost(problem: LearningProblem, steps: int, batch: int, circuits: int = 1) -> LearningCost:
    """Return the cost of steps that run weighted circuits on `batch` examples. Weights of one half are timed."""
    model, task = problem.model, problem.task
    n_edges = problem.graph.n_edges if problem.positions else model.graph.n_edges  # nodes have weights of edges
    n_examples, at_once = choose_part(problem, circuits)
    weights = torch.full((circuits, n_edges), 0.5)
    ends = dict.fromkeys(task.examples, (1.0, 0.0))
    job = GradientJob(CMD, problem.metric, problem.ablation, weights, ends, 1.0, None, problem.positions, at_once)
    need = _run_need(problem)
    need = Need(need.fixed, need.each * at_once, need.layer * at_once)
    return LearningCost(steps, min(batch, len(task)), need, job, n_examples)
