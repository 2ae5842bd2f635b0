"""Forecast the cost of a run: examples, batches, memory, disk, and rough times."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import Ablation, Patching
from ..evaluate.run_circuits import EvaluateJob, circuit_groups
from ..learn import Learner, LearningProblem, TopKLearner
from ..models import Model, plan_batches
from ..models.memory import Need, choose_batch_size, circuit_need
from ..models.placement import free_bytes
from ..runtime.engine import IN_PROCESS, Engine, choose_item_size, threads_for, use_threads
from ..score.run_scorer import ScoreJob
from ..tasks import Example, Task
from .settings import Settings

Job = Callable[[Model, Sequence[Example]], Any]
# Runs that are expected to take fewer seconds are started without a word.
LONG_SECONDS = 60.0
# The share of edges of the circuit that is timed: most circuits of a curve are smaller.
TIMED_SHARE = 0.1
# To decide whether anything is timed at all: operations per second of a slow processor, and forward passes per pass.
SLOW_FLOPS, FORWARD_PASSES = 1e10, {"score": 20, "learn": 10, "evaluate": 1}


@dataclass(frozen=True)
class Stage:
    """The cost of a part of a run.

    name                 'score', 'learn' or 'evaluate'
    task                 the examples, and the measure that is learned for
    examples, length     number of examples, and tokens of the longest
    batches, batch_size  number of batches, and examples in the largest
    passes               how often all batches are run: the number of circuits, or of learning steps (each of a single
                         batch)
    need, least          bytes of a batch, and of a single example, beyond the model
    pieces               how many workers can share it at most
    seconds              in one process, roughly. None if nothing was timed.
    """

    name: str
    task: str
    examples: int
    length: int
    batches: int
    batch_size: int
    passes: int
    need: int
    least: int
    pieces: int
    seconds: float | None = None

    @property
    def n_tokens(self) -> int:
        """How many tokens are run, at most. A step of learning runs a single batch."""
        return self.length * self.passes * (self.batch_size if self.name == "learn" else self.examples)

    def with_workers(self, workers: int) -> float:
        """Return the seconds if workers share the stage. 0 if nothing was timed."""
        return (self.seconds or 0.0) / min(workers, self.pieces)


@dataclass(frozen=True)
class Forecast:
    """The cost of a run.

    weights    bytes of the model's weights
    available  device -> bytes that are free beside the weights. Devices that don't report it are left out.
    disk       bytes of the scores that are stored
    workers    processes that share the examples, each with a copy of the model
    """

    model: str
    edges: int
    weights: int
    available: Mapping[str, int]
    stages: tuple[Stage, ...]
    disk: int
    workers: int = 1

    @property
    def seconds(self) -> float | None:
        """Of all stages with the workers. None if nothing was timed."""
        is_timed = any(stage.seconds is not None for stage in self.stages)
        return sum(stage.with_workers(self.workers) for stage in self.stages) if is_timed else None

    @property
    def is_long(self) -> bool:
        """Whether it is worth telling the user before the run starts."""
        return self.seconds is not None and self.seconds > LONG_SECONDS

    def check(self) -> None:
        """Raise InputError if a single example doesn't fit into memory."""
        room = sum(self.available.values())
        for stage in self.stages:
            if self.available and stage.least * self.workers > room:
                short = max(1, int(stage.length * room / max(1, stage.least * self.workers)))
                fewer = ", fewer workers" if self.workers > 1 else ""
                raise InputError(
                    f"one example of {stage.length} tokens needs {stage.least / 1e9:.2f} GB to {stage.name} beside the "
                    f"model, but {room / 1e9:.2f} GB are free on {', '.join(self.available)}; what would fit: prompts "
                    f"of up to {short} tokens, dtype='bfloat16', more devices (device='all'){fewer}, a smaller model"
                )

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"available": dict(self.available), "seconds": self.seconds}


@dataclass(frozen=True)
class Plan:
    """How a stage is timed: `repeats` times a job on all examples. What the job `shared` does is done only once."""

    task: Task
    stage: Stage
    job: Job
    repeats: float = 1.0
    shared: Job | None = None

    def seconds(self, model: Model, engine: Engine, enough: float) -> float:
        """Return the seconds of the stage. A short job is timed on one example; see `_time_job`."""
        shared = 0.0
        if self.shared is not None:
            shared = _time_job(model, engine, self.task, self.stage, self.shared, enough)
        seconds = _time_job(model, engine, self.task, self.stage, self.job, enough)
        return shared + self.repeats * max(0.0, seconds - shared)


@dataclass(frozen=True)
class Work(ABC):
    """A part of a run whose cost is forecast. `times` is how often it is repeated with other examples."""

    task: Task
    settings: Settings
    times: int = field(default=1, kw_only=True)

    @abstractmethod
    def plan(self, model: Model, engine: Engine) -> Plan:
        """Return the cost of one repetition, without running anything, and how to time it."""


@dataclass(frozen=True)
class ScoreWork(Work):
    """Scoring all edges on a task."""

    def plan(self, model: Model, engine: Engine) -> Plan:
        """Plan one pass of the scorer."""
        need = self.settings.scorer.need(model.transformer.shape, self.task.longest)
        stage = _plan_stage("score", model, engine, self.task, need, self.settings, 1)
        # For a scorer that reads the mean scores of another one first, any scores will do.
        scorer = self.settings.scorer.with_first_scores(np.zeros(model.graph.n_edges))
        return Plan(self.task, stage, ScoreJob(scorer, self.settings.metric))


@dataclass(frozen=True)
class EvaluateWork(Work):
    """Evaluating at most `n_circuits` circuits on a task."""

    n_circuits: int = 1

    def plan(self, model: Model, engine: Engine) -> Plan:
        """Plan one pass per circuit. A batch is timed with one circuit, and without any."""
        need = circuit_need(model.transformer.shape, self.task.longest)
        stage = _plan_stage("evaluate", model, engine, self.task, need, self.settings, self.n_circuits)
        groups = circuit_groups(engine, model, self.n_circuits, stage.batches)
        inside = np.random.default_rng(0).random(model.graph.n_edges) < TIMED_SHARE
        inside[-1] = True
        circuit = Circuit(model.graph, inside).prune()
        shared = EvaluateJob(self.settings.metric, _without_task(self.settings.ablation), (), (), self.settings.memory)
        stage = replace(stage, pieces=stage.batches * len(groups))
        return Plan(self.task, stage, replace(shared, circuits=(circuit,)), self.n_circuits, shared)


@dataclass(frozen=True)
class LearnWork(Work):
    """Learning a ranking, and those of its resamples."""

    learner: Learner = field(default_factory=TopKLearner)

    def plan(self, model: Model, engine: Engine) -> Plan:
        """Plan the steps of all rankings. One step is timed."""
        settings, task = self.settings, self.task
        ablation = _without_task(settings.ablation)
        problem = LearningProblem(model, task, settings.metric, ablation, settings.sizes, settings.memory)
        cost = self.learner.cost(problem)
        stage = _plan_stage("learn", model, engine, task, cost.need, replace(settings, batch_size=None), cost.steps)
        label = f"{stage.task} for {self.learner.measure.name}"
        stage = replace(stage, task=label, pieces=-(-cost.batch // stage.batch_size))
        return Plan(task, stage, cost.job, cost.steps * cost.batch / len(task))


def forecast(model: Model, works: Iterable[Work], engine: Engine = IN_PROCESS, exact: bool = False) -> Forecast:
    """Forecast the cost of a run with as many workers as the engine has. Raise InputError if it can't fit.

    With `exact`, batches of every stage are timed. Otherwise they are timed only if the run may take minutes, judged by
    the sizes of model and examples.
    """
    transformer = model.transformer
    plans = [(work, work.plan(model, engine)) for work in works]
    stages = tuple(replace(plan.stage, passes=work.times * plan.stage.passes) for work, plan in plans)
    free = {str(device): free_bytes(device) for device in transformer.devices}
    weights = [] if model.module is None else list(model.module.parameters())
    workers = engine.workers(model)
    n_scored = sum(stage.examples * stage.passes for stage in stages if stage.name == "score")
    planned = Forecast(
        model.name,
        model.graph.n_edges,
        sum(weight.nbytes for weight in weights),
        {name: amount for name, amount in free.items() if amount is not None},
        stages,
        4 * model.graph.n_edges * n_scored,
        workers if transformer.device.type == "cpu" else 1,  # workers on other devices have memory of their own
    )
    planned.check()
    n_tokens = sum(FORWARD_PASSES[stage.name] * stage.n_tokens for stage in stages)
    rough_seconds = 2 * n_tokens * sum(weight.numel() for weight in weights) / SLOW_FLOPS
    if not weights or exact or rough_seconds >= 2 * LONG_SECONDS:
        enough = 0.0 if exact else LONG_SECONDS / 4
        timed = [work.times * plan.seconds(model, engine, enough) for work, plan in plans]
        planned = replace(planned, stages=tuple(replace(s, seconds=t) for s, t in zip(stages, timed, strict=True)))
    return replace(planned, workers=workers)


def _without_task(ablation: Ablation) -> Ablation:
    """Return the ablation, or patching, which costs as much, if the ablation needs means over a task."""
    return ablation if type(ablation).prepare is Ablation.prepare else Patching()


def _plan_stage(
    name: str, model: Model, engine: Engine, task: Task, need: Need, settings: Settings, passes: int
) -> Stage:
    size = settings.batch_size
    if size is None:
        fits = choose_batch_size(None, need, settings.memory)
        size = choose_item_size(engine, model, model.transformer.device, fits, len(task))
    size = min(size, len(task))
    batches = len(plan_batches(task.examples, size))
    label = f"{task.name} ({task.split})"
    return Stage(
        name, label, len(task), task.longest, batches, size, passes, need.total(size), need.total(1), pieces=batches
    )


def _time_job(model: Model, engine: Engine, task: Task, stage: Stage, job: Job, enough: float) -> float:
    """Return the seconds of a job on all examples, from one example, or from a batch if the job takes long.

    One example decides if all passes take fewer than `enough` seconds.
    """
    batches = plan_batches(task.examples, stage.batch_size)
    rows = batches[len(batches) // 2]
    seconds = 0.0
    for timed_rows in (rows[:1], rows):
        with use_threads(threads_for(model, min(engine.workers(model), stage.pieces))):
            started = time.perf_counter()
            job(model, [task.examples[row] for row in timed_rows])
            seconds = (time.perf_counter() - started) * len(task) / len(timed_rows)
        if seconds * stage.passes < enough:
            break
    return seconds
