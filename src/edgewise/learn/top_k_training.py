"""The training loop of `TopKLearner`: draw noise, run a hard circuit, take its gradient, do a step of Adam."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.statistics import summarise
from ..errors import InputError
from ..evaluate import Ablation, Measure
from ..evaluate.run_circuits import evaluate_circuits
from ..models import Model, make_batch, plan_batches
from ..models.memory import can_keep_streams, choose_batch_size, weighted_need
from ..models.prepare import prepare
from ..runtime.engine import NARROW_D_MODEL, Engine, run_batches
from ..runtime.progress import ignore_progress
from ..runtime.session import Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..score.run_scorer import check_contrast, score_edges
from ..tasks import Example, Metric
from .base import LearningProblem
from .top_k_parameters import TopKParameters, loss_trend, size_chances

BETAS = (0.9, 0.99)
# Bisection steps of the threshold in `soft_top_k`.
BISECTIONS = 50
# A step of a wide model is split into parts of at most this many examples, so that workers can share it.
STEP_PART = 4
# Seconds between two saved states.
SAVE_SECONDS = 15.0
# The loss shown is the mean of this many steps: a single loss depends on the size that its step drew.
AVERAGED_STEPS = 20


@dataclass(frozen=True, eq=False)
class GradientJob:
    """A job: the loss of a batch when edges have weights, and the gradient with respect to the weights.

    weights  [edge]
    ends     example -> (metric of the model, metric of the empty circuit)
    span     mean difference between the two
    """

    measure: Measure
    metric: Metric
    ablation: Ablation
    weights: Tensor
    ends: Mapping[Example, tuple[float, float]]
    span: float

    def __call__(self, model: Model, examples: Sequence[Example]) -> tuple[float, Tensor]:
        """Return the sum of the examples' losses, and its gradient [edge]."""
        transformer, all_logits = model.transformer, self.metric.reads_all_logits
        weights = self.weights.to(transformer.device).requires_grad_()
        batch = prepare(transformer, make_batch(examples, transformer.device), self.ablation.shares_prefix)
        with torch.no_grad():
            reference = self.ablation.reference(batch)
            # Metrics that read only the answers' logits don't need the clean run.
            clean = batch.read_out(batch.run(batch.clean), True) if all_logits else None
        readout = batch.read_stream(batch.run_weighted(weights, reference), all_logits)
        value = self.metric.checked(readout, clean or readout)
        full, empty = torch.tensor([self.ends[example] for example in examples], dtype=torch.float64).to(value).T
        loss = self.measure.loss(value, full, empty, self.span).sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        return float(loss.detach()), gradient.float().cpu()


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Parameters `theta` [edge], Adam's running means of gradients and their squares [edge], the loss of every step."""

    theta: Tensor
    mean: Tensor
    square: Tensor
    losses: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """The number of steps done."""
        return len(self.losses)

    def to_unit(self) -> Unit:
        """Return the state as a unit for the store."""
        arrays = {name: getattr(self, name).numpy() for name in ("theta", "mean", "square")}
        return Unit(arrays, {"losses": list(self.losses), "seconds": self.seconds})

    @classmethod
    def from_unit(cls, unit: Unit) -> TrainingState:
        """Return the state that `to_unit` wrote."""
        arrays = {name: torch.tensor(np.array(array)) for name, array in unit.arrays.items()}
        return cls(**arrays, losses=tuple(unit.about["losses"]), seconds=unit.about["seconds"])

    def adam_step(self, gradient: Tensor, loss: float, rate: float, seconds: float) -> TrainingState:
        """Return the state after a step of Adam.

        torch.optim.Adam multiplies in another order. That changes the last bits of published rankings.
        """
        mean = BETAS[0] * self.mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * self.square + (1 - BETAS[1]) * gradient.square()
        count = self.step + 1
        direction = mean / (1 - BETAS[0] ** count)
        scale = (square / (1 - BETAS[1] ** count)).sqrt() + 1e-8
        return TrainingState(self.theta - rate * direction / scale, mean, square, (*self.losses, loss), seconds)


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


def choose_part_size(problem: LearningProblem) -> int:
    """Return how many examples of a step run at once.

    It is the same for every engine: each step depends on the one before, so that other rounding would add up.
    """
    shape, longest = problem.model.transformer.shape, problem.task.longest
    fits = choose_batch_size(None, weighted_need(shape, longest, can_keep_streams(shape, longest)), problem.memory)
    return min(fits, STEP_PART) if problem.model.graph.d_model > NARROW_D_MODEL else fits


def train(learner: TopKParameters, problem: LearningProblem, session: Session) -> Unit:
    """Return the array `value` [edge] and the losses, trend and seconds of learning, from the store if it has them."""
    store = session.store
    settings = (learner, problem.metric, problem.ablation, problem.sizes, choose_part_size(problem))
    digests = {"model": problem.model.digest, "task": problem.task.digest}
    key = "" if store.folder is None else unit_key("learned", **digests, how=settings)
    finished = store.find(key)
    if finished is not None:
        return finished
    state = _train(learner, problem, key, session)
    sizes = [_draw_size(learner, problem, step)[0] for step in range(state.step)]
    about = {"losses": list(state.losses), "trend": loss_trend(state.losses, sizes), "seconds": state.seconds}
    unit = store.save(key, Unit({"value": (state.theta - state.theta.min()).numpy()}, about))
    if (saved := store.latest(key)) is not None:
        store.delete(f"{key}.{saved[0]}")  # only now that the ranking is stored
    return unit


def _train(learner: TopKParameters, problem: LearningProblem, key: str, session: Session) -> TrainingState:
    """Run all steps, from the last saved state if there is one."""
    store, graph = session.store, problem.model.graph
    started = last_save = time.perf_counter()
    saved = store.latest(key)
    state = _first_state(learner, problem, session) if saved is None else TrainingState.from_unit(saved[1])
    seconds_before, saved_step = state.seconds, state.step
    gradient_of = _StepGradients(learner, problem, session.engine)
    session.report("learn", state.step, learner.steps)
    while state.step < learner.steps:
        loss, gradient = gradient_of(state)
        if not np.isfinite(loss) or not torch.isfinite(gradient).all():
            raise InputError(
                f"learning broke down at step {state.step + 1}, where the loss is {loss:g}; "
                "try a smaller --learning-rate, or --dtype float32"
            )
        now = time.perf_counter()
        state = state.adam_step(gradient, loss, learner.rate_at(state.step, graph), seconds_before + now - started)
        if now - last_save > SAVE_SECONDS:
            store.save(f"{key}.{state.step}", state.to_unit())
            store.delete(f"{key}.{saved_step}")
            saved_step, last_save = state.step, now
        session.report(f"learn: loss {np.mean(state.losses[-AVERAGED_STEPS:]):.4f}", state.step, learner.steps)
    return state


def _first_state(learner: TopKParameters, problem: LearningProblem, session: Session) -> TrainingState:
    ranking = None
    if learner.warm is not None:
        scores = score_edges(
            problem.model, problem.task, learner.warm, problem.metric, memory=problem.memory, session=session
        )
        ranking = summarise(scores).ranking
    graph = problem.model.graph
    zeros = torch.zeros(graph.n_edges)
    return TrainingState(torch.tensor(learner.start(ranking, graph)), zeros, zeros)


def _draw_size(learner: TopKParameters, problem: LearningProblem, step: int) -> tuple[int, np.random.Generator]:
    """Return the number of edges of a step's circuit, and the generator of its noise; both depend on `step` only."""
    graph = problem.model.graph
    rng = np.random.default_rng([learner.seed, 0, step])
    sizes, probabilities = size_chances(graph, problem.sizes)
    return int(rng.choice(sizes, p=probabilities) * graph.n_edges), rng


class _StepGradients:
    """Computes the loss and the gradient of every step, given the runs that all steps share."""

    def __init__(self, learner: TopKParameters, problem: LearningProblem, engine: Engine) -> None:
        model, task, metric, ablation = problem.model, problem.task, problem.metric, problem.ablation
        quiet = Session(engine=engine, progress=ignore_progress)
        evaluation = evaluate_circuits(model, task, [], metric, ablation, memory=problem.memory, session=quiet)
        full, empty = evaluation.full, evaluation.empty
        check_contrast(float(full.mean()), float(empty.mean()), task, metric)
        self.learner, self.problem, self.engine = learner, problem, engine
        self.batches = plan_batches(task.examples, learner.batch)
        self.ablation = ablation.prepare(model, task, self.batches, engine)
        self.ends = dict(zip(task.examples, zip(full.tolist(), empty.tolist(), strict=True), strict=True))
        self.span = float((full - empty).mean())

    def __call__(self, state: TrainingState) -> tuple[float, Tensor]:
        """Return the loss of the next step and its gradient [edge].

        The number of the step decides its batch, size and noise, so that resuming gives the same ranking.
        """
        learner, model, examples = self.learner, self.problem.model, self.problem.task.examples
        n_edges, step = model.graph.n_edges, state.step
        size, rng = _draw_size(learner, self.problem, step)
        order = np.random.default_rng([learner.seed, 1, step // len(self.batches)]).permutation(len(self.batches))
        rows = self.batches[order[step % len(self.batches)]]
        noise = torch.tensor(rng.logistic(scale=learner.noise, size=n_edges), dtype=torch.float32)
        theta = (state.theta + noise).requires_grad_()
        soft = soft_top_k(theta, size, learner.temperature)
        hard = hard_top_k(theta.detach(), size)
        ends = {examples[row]: self.ends[examples[row]] for row in rows}
        job = GradientJob(learner.measure, self.problem.metric, self.ablation, hard, ends, self.span)
        part_size = choose_part_size(self.problem)
        parts = [rows[start : start + part_size] for start in range(0, len(rows), part_size)]
        loss, total = 0.0, torch.zeros(n_edges)
        for _, (part_loss, part) in run_batches(self.engine, model, examples, parts, job, in_order=True):
            loss, total = loss + part_loss, total + part
        # Straight through: use the hard circuit's gradient as the gradient of the soft choice.
        (gradient,) = torch.autograd.grad(soft, theta, total / len(rows))
        return loss / len(rows), gradient
