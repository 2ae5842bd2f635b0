"""The loop that learns a ranking: noise, a hard circuit, its gradient, Adam. It can be stopped and goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..core.ranking import Ranking
from ..core.statistics import summarise
from ..errors import InputError
from ..evaluate import SIZES, Ablation, Measure, Patching
from ..evaluate.run_circuits import evaluate_circuits
from ..graph import Graph
from ..method import check_is
from ..models import Model, make_batch, plan_batches
from ..models.batch import choose_batch_size
from ..models.memory import BUDGET, keeps_streams, weighted_need
from ..models.prepare import prepare
from ..models.weighted import run_weighted
from ..runtime.engine import NARROW, Engine, run_batches
from ..runtime.progress import silent
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..score import check_contrast, score_edges
from ..tasks import Example, LogitDifference, Metric, Task, check_examples
from .soft_top_k import hard_top_k, soft_top_k
from .top_k_learner import TopKLearner, size_chances, trend

DEFAULT, DEFAULT_METRIC, DEFAULT_ABLATION = TopKLearner(), LogitDifference(), Patching()
BETAS = (0.9, 0.99)
# A step of a wide model is cut into parts of so many examples.
STEP_PART = 4
# What was learned so far is kept every so many seconds.
KEEP_EVERY = 15.0
# The loss that is shown is the mean of so many steps: single ones depend on the size that they drew.
SHOWN = 20


@dataclass(frozen=True, eq=False)
class GradientJob:
    """The loss of a batch under weights, and its gradient: a pure job, which any process that has the model can do.

    weights  [edge]
    ends     example -> the metric of the model and of the empty circuit
    span     the mean difference of the two
    """

    goal: Measure
    metric: Metric
    ablation: Ablation
    weights: Tensor
    ends: Mapping[Example, tuple[float, float]]
    span: float

    def __call__(self, model: Model, examples: Sequence[Example]) -> tuple[float, Tensor]:
        """The sum of the examples' losses, and its gradient [edge]."""
        transformer, all_logits = model.transformer, self.metric.reads_all_logits
        weights = self.weights.to(transformer.device).requires_grad_()
        ready = prepare(transformer, make_batch(examples, transformer.device), self.ablation.shares_prefix)
        with torch.no_grad():
            reference = self.ablation.reference(ready)
            # Metrics of the two answers' logits alone don't look at the clean run.
            clean = ready.read_out(ready.run(ready.clean), True) if all_logits else None
        keep = keeps_streams(transformer.shape, ready.clean.shape[1])
        stream = run_weighted(transformer, weights, ready.clean, reference, ready.frame, ready.last, keep)
        said = ready.read_stream(stream, all_logits)
        value = self.metric.checked(said, clean or said)
        full, empty = torch.tensor([self.ends[example] for example in examples], dtype=torch.float64).to(value).T
        loss = self.goal.loss(value, full, empty, self.span).sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        return float(loss.detach()), gradient.float().cpu()


def learn_ranking(
    model: Model,
    task: Task,
    learner: TopKLearner = DEFAULT,
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    *,
    sizes: tuple[float, ...] = SIZES,
    memory: int = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Ranking:
    """Learn one value per edge on a task's examples: at least 0, the larger the better, without sign.

    The same arguments give the same ranking. With a store in the session, a stopped call resumes. `origin` says how
    it went: the losses of all steps, their `trend`, the seconds. Progress is reported as ("learn: loss 0.0123", done,
    steps).
    """
    check_is("learner", TopKLearner, learner)
    check_is("session", Session, session)
    check_examples(model, task)
    if not metric.differentiable:
        raise InputError(f"metric {metric.name!r} has no gradient, so nothing can be learned with it; choose another")
    terms = _Terms(replace(learner, resamples=0), metric, ablation, sizes, memory)
    with session.reporting() as shown:
        found = _learned(model, task, terms, shown)
        drawn = np.random.default_rng(learner.seed).integers(len(task), size=(learner.resamples, len(task)))
        again = [_learned(model, task.part(rows), terms, shown) for rows in np.sort(drawn)]
    origin = {"method": learner.record(), "task": task.name, "examples": len(task), **found.about}
    resampled = np.stack([unit.arrays["value"] for unit in again]) if again else None
    return Ranking(model.graph, found.arrays["value"], signed=False, origin=origin, resampled=resampled)


@dataclass(frozen=True)
class _Terms:
    """All that learning is told besides the model and the examples."""

    learner: TopKLearner
    metric: Metric
    ablation: Ablation
    sizes: tuple[float, ...]
    memory: int

    def fits(self, model: Model, task: Task) -> int:
        """How many examples run at once: what fits, and few enough that workers can share a step of a wide model.

        Whatever the engine: steps follow from each other, so that another rounding would end elsewhere.
        """
        shape, longest = model.transformer.shape, task.longest
        fits = choose_batch_size(None, weighted_need(shape, longest, keeps_streams(shape, longest)), self.memory)
        return min(fits, STEP_PART) if model.graph.d_model > NARROW else fits

    def draw_size(self, graph: Graph, step: int) -> tuple[int, np.random.Generator]:
        """How many edges a step asks for, and the generator of its noise; its number decides."""
        rng = np.random.default_rng([self.learner.seed, 0, step])
        shares, chances = size_chances(graph, self.sizes)
        return int(rng.choice(shares, p=chances) * graph.n_edges), rng


def _learned(model: Model, task: Task, terms: _Terms, session: Session) -> Unit:
    """The values that are learned from a task's examples, found or made."""
    store = session.store
    how = (terms.learner, terms.metric, terms.ablation, terms.sizes, terms.fits(model, task))
    key = "" if store.folder is None else unit_key("learned", model=model.digest, task=task.digest, how=how)
    kept = store.find(key)
    if kept is not None:
        return kept
    state = _learn(model, task, terms, key, session)
    drawn = [terms.draw_size(model.graph, step)[0] for step in range(state.step)]
    about = {"losses": list(state.losses), "trend": trend(state.losses, drawn), "seconds": state.seconds}
    found = store.keep(key, Unit({"value": (state.theta - state.theta.min()).numpy()}, about))
    if (last := store.latest(key)) is not None:
        store.forget(f"{key}.{last[0]}")  # only now that all of it is kept
    return found


@dataclass(frozen=True, eq=False)
class State:
    """Where learning is.

    theta         [edge] the parameters; `mean` and `square` are Adam's means of gradients and of their squares
    losses        of all steps so far
    """

    theta: Tensor
    mean: Tensor
    square: Tensor
    losses: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """How many steps were done."""
        return len(self.losses)

    def unit(self) -> Unit:
        """As it is kept."""
        arrays = {name: getattr(self, name).numpy() for name in ("theta", "mean", "square")}
        return Unit(arrays, {"losses": list(self.losses), "seconds": self.seconds})

    @classmethod
    def of(cls, unit: Unit) -> State:
        """As it was kept."""
        arrays = {name: torch.tensor(np.array(array)) for name, array in unit.arrays.items()}
        return cls(**arrays, losses=tuple(unit.about["losses"]), seconds=unit.about["seconds"])

    def moved(self, gradient: Tensor, loss: float, rate: float, seconds: float) -> State:
        """After a step of Adam."""
        mean = BETAS[0] * self.mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * self.square + (1 - BETAS[1]) * gradient.square()
        count = self.step + 1
        sure = (mean / (1 - BETAS[0] ** count), (square / (1 - BETAS[1] ** count)).sqrt() + 1e-8)
        return State(self.theta - rate * sure[0] / sure[1], mean, square, (*self.losses, loss), seconds)


def _learn(model: Model, task: Task, terms: _Terms, key: str, session: Session) -> State:
    """The state after all steps, from the last one that was kept on."""
    store = session.store
    began = saved = time.perf_counter()
    found = store.latest(key)
    state = _begin(model, task, terms, session) if found is None else State.of(found[1])
    before, kept = state.seconds, state.step
    learner, loop = terms.learner, _Loop.of(model, task, terms, session.engine)
    session.report("learn", state.step, learner.steps)
    while state.step < learner.steps:
        loss, gradient = loop.gradient(state)
        if not np.isfinite(loss) or not torch.isfinite(gradient).all():
            raise InputError(
                f"learning broke down at step {state.step + 1}, where the loss is {loss:g}; "
                "try a smaller --rate, or --dtype float32"
            )
        now = time.perf_counter()
        state = state.moved(gradient, loss, learner.rate_at(state.step, model.graph), before + now - began)
        if now - saved > KEEP_EVERY:
            store.keep(f"{key}.{state.step}", state.unit())
            store.forget(f"{key}.{kept}")
            kept, saved = state.step, now
        session.report(f"learn: loss {np.mean(state.losses[-SHOWN:]):.4f}", state.step, learner.steps)
    return state


def _begin(model: Model, task: Task, terms: _Terms, session: Session) -> State:
    """The parameters at first: by the rank of scores, or zeros."""
    learner, ranking = terms.learner, None
    if learner.warm is not None:
        how = (learner.warm, terms.metric)
        scores = score_edges(model, task, *how, memory=terms.memory, session=session)
        ranking = summarise(scores).ranking
    zeros = torch.zeros(model.graph.n_edges)
    return State(torch.tensor(learner.start(ranking, model.graph)), zeros, zeros)


@dataclass(frozen=True, eq=False)
class _Loop:
    """What all steps share.

    ablation  prepared for the task; `ends` and `span` are as in `GradientJob`
    batches   rows of the task, in batches alike in length; no more than `fits` run at once
    """

    model: Model
    task: Task
    terms: _Terms
    engine: Engine
    ablation: Ablation
    ends: Mapping[Example, tuple[float, float]]
    span: float
    batches: Sequence[Sequence[int]]
    fits: int

    @classmethod
    def of(cls, model: Model, task: Task, terms: _Terms, engine: Engine) -> _Loop:
        """Made ready: one run of the model and of the reference on all examples."""
        metric, ablation, memory = terms.metric, terms.ablation, terms.memory
        session = Session(engine=engine, progress=silent)
        found = evaluate_circuits(model, task, [], metric, ablation, memory=memory, session=session)
        span = float((found.full - found.empty).mean())
        check_contrast(float(found.full.mean()), float(found.empty.mean()), task, metric)
        ends = dict(zip(task.examples, zip(found.full.tolist(), found.empty.tolist(), strict=True), strict=True))
        batches = plan_batches(task.examples, terms.learner.batch)
        fits = terms.fits(model, task)
        return cls(
            model, task, terms, engine, ablation.prepare(model, task, batches, engine), ends, span, batches, fits
        )

    def gradient(self, state: State) -> tuple[float, Tensor]:
        """The loss of the next step and its gradient [edge]: of a batch, a size and noise that its number decides.

        So learning goes on after a stop as if there had been none.
        """
        learner, n_edges, step = self.terms.learner, self.model.graph.n_edges, state.step
        size, rng = self.terms.draw_size(self.model.graph, step)
        order = np.random.default_rng([learner.seed, 1, step // len(self.batches)]).permutation(len(self.batches))
        rows = self.batches[order[step % len(self.batches)]]
        noise = torch.tensor(rng.logistic(scale=learner.noise, size=n_edges), dtype=torch.float32)
        theta = (state.theta + noise).requires_grad_()
        soft = soft_top_k(theta, size, learner.temperature)
        hard = hard_top_k(theta.detach(), size)
        ends = {self.task.examples[row]: self.ends[self.task.examples[row]] for row in rows}
        job = GradientJob(learner.goal, self.terms.metric, self.ablation, hard, ends, self.span)
        parts = [rows[start : start + self.fits] for start in range(0, len(rows), self.fits)]
        loss, total = 0.0, torch.zeros(n_edges)
        for _, (part_loss, part) in run_batches(self.engine, self.model, self.task.examples, parts, job, in_order=True):
            loss, total = loss + part_loss, total + part
        # Straight through: the hard circuit's gradient is taken for that of the soft choice.
        (gradient,) = torch.autograd.grad(soft, theta, total / len(rows))
        return loss / len(rows), gradient
