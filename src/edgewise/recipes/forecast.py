"""What a run will cost, before it is begun: examples, batches, memory, disk, and rough times from a first batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import Ablation, Patching
from ..evaluate.run_circuits import EvaluateJob, circuit_groups
from ..learn import Learner, LearningProblem
from ..models import Model, plan_batches
from ..models.batch import choose_batch_size
from ..models.memory import Need, circuit_need
from ..models.placement import free_bytes
from ..runtime.engine import IN_PROCESS, Engine, choose_item_size, threads_for, use_threads
from ..score.run_scorer import ScoreJob
from ..tasks import Example, Task
from .settings import Settings

# Below so many seconds, nobody needs a plan.
LONG = 60.0
# The share of edges of the circuit that is timed: most circuits of a curve are smaller.
TIMED_SHARE = 0.1


@dataclass(frozen=True)
class Stage:
    """A part of a run.

    name      score, learn or evaluate
    task      whose examples, and what is learned for; `examples` how many, `length` the longest one's tokens
    batches   how many of up to `batch_size` examples there are
    passes    how often all of them are gone through: circuits to evaluate, at most, or steps of learning, of a batch
    need      bytes of a batch, beyond the model; `least` those of a single example
    pieces    how many of them workers can do at the same time, at most
    seconds   that it will take in one process, roughly; None where nothing was timed
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

    def with_workers(self, workers: int) -> float:
        """Its seconds, shared among workers; 0 where nothing was timed."""
        return (self.seconds or 0.0) / min(workers, self.pieces)


@dataclass(frozen=True)
class Forecast:
    """What a run will cost.

    weights    bytes of the model's weights
    available  bytes that its devices have left beside the weights, by name; those that don't say are left out
    disk       bytes of scores that are kept
    workers    processes, each with the model, that the examples are shared among
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
        """Of all stages, over the workers; None where nothing was timed."""
        timed = any(stage.seconds is not None for stage in self.stages)
        return sum(stage.with_workers(self.workers) for stage in self.stages) if timed else None

    @property
    def is_long(self) -> bool:
        """Whether it is worth a line before it is begun."""
        return self.seconds is not None and self.seconds > LONG

    def check(self) -> None:
        """Refuse what can't fit, saying what would."""
        room = sum(self.available.values())
        for stage in self.stages:
            if self.available and stage.least * self.workers > room:
                short = max(1, int(stage.length * room / max(1, stage.least * self.workers)))
                fewer = ", fewer --workers" if self.workers > 1 else ""
                raise InputError(
                    f"one example of {stage.length} tokens needs {stage.least / 1e9:.2f} GB to {stage.name} beside the "
                    f"model, but {room / 1e9:.2f} GB are free on {', '.join(self.available)}; what would fit: prompts "
                    f"of up to {short} tokens, --dtype bfloat16, more devices (--device all){fewer}, a smaller model"
                )

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self) | {"available": dict(self.available), "seconds": self.seconds}


# A stage, timed until `enough` seconds of all passes say that it is short; not timed at all for None.
MakeStage = Callable[[Model, Engine, float | None], Stage]


def forecast(model: Model, stages: Iterable[MakeStage], engine: Engine = IN_PROCESS, exact: bool = False) -> Forecast:
    """What a run of some stages will cost, with as many workers as the engine has; refuses what can't fit.

    Every stage is timed by one example, and by a whole batch if that means a long run, or if `exact`.
    """
    makers = list(stages)
    transformer = model.transformer
    free = {str(device): free_bytes(device) for device in transformer.devices}
    weights = 0 if model.module is None else sum(one.nbytes for one in model.module.parameters())
    planned = [make(model, engine, None) for make in makers]
    scored = sum(stage.examples * stage.passes for stage in planned if stage.name == "score")
    available = {name: amount for name, amount in free.items() if amount is not None}
    workers = engine.workers(model)
    sharing = workers if transformer.device.type == "cpu" else 1  # other devices have memory of their own
    found = Forecast(
        model.name, model.graph.n_edges, weights, available, tuple(planned), 4 * model.graph.n_edges * scored, sharing
    )
    found.check()
    timed = tuple(make(model, engine, 0.0 if exact else LONG / 4) for make in makers)
    return replace(found, stages=timed, workers=workers)


def scoring(task: Task, settings: Settings) -> MakeStage:
    """Scores of all edges on a task."""

    def make(model: Model, engine: Engine, enough: float | None) -> Stage:
        need = settings.scorer.need(model.transformer.shape, task.longest)
        stage = _stage("score", model, engine, task, need, settings, 1)
        job = ScoreJob(settings.scorer, settings.metric)
        return (
            stage if enough is None else replace(stage, seconds=_extrapolated(model, engine, task, stage, job, enough))
        )

    return make


def evaluating(task: Task, circuits: int, settings: Settings) -> MakeStage:
    """At most so many circuits on a task."""

    def make(model: Model, engine: Engine, enough: float | None) -> Stage:
        stage = _stage(
            "evaluate", model, engine, task, circuit_need(model.transformer.shape, task.longest), settings, circuits
        )
        stage = replace(stage, pieces=stage.batches * len(circuit_groups(engine, model, circuits, stage.batches)))
        if enough is None:
            return stage
        inside = np.random.default_rng(0).random(model.graph.n_edges) < TIMED_SHARE
        circuit = Circuit(model.graph, inside | (np.arange(model.graph.n_edges) == model.graph.n_edges - 1)).prune()
        # What replaces edges changes little of the cost, but means need a run of their own.
        job = EvaluateJob(settings.metric, _without_task(settings.ablation), (), (), settings.memory)
        once = _extrapolated(model, engine, task, stage, job, enough)
        both = replace(job, circuits=(circuit,))
        each = _extrapolated(model, engine, task, stage, both, enough) - once
        return replace(stage, seconds=once + circuits * max(0.0, each))

    return make


def learning(task: Task, learner: Learner, settings: Settings) -> MakeStage:
    """A learned ranking, and those of its resamples."""

    def make(model: Model, engine: Engine, enough: float | None) -> Stage:
        ablation = _without_task(settings.ablation)
        cost = learner.cost(LearningProblem(model, task, settings.metric, ablation, settings.sizes, settings.memory))
        stage = _stage("learn", model, engine, task, cost.need, replace(settings, batch_size=None), cost.steps)
        name, pieces = f"{task.name} ({task.split}) for {learner.measure.name}", -(-cost.batch // stage.batch_size)
        stage = replace(stage, task=name, pieces=pieces)
        if enough is None:
            return stage
        seconds = _extrapolated(model, engine, task, stage, cost.job, enough)
        return replace(stage, seconds=cost.steps * cost.batch * seconds / len(task))

    return make


def _without_task(ablation: Ablation) -> Ablation:
    """The ablation itself where it needs no task, and one that costs as much where it does."""
    return ablation if type(ablation).prepare is Ablation.prepare else Patching()


def _stage(name: str, model: Model, engine: Engine, task: Task, need: Need, settings: Settings, passes: int) -> Stage:
    fits = choose_batch_size(settings.batch_size, need, settings.memory)
    size = min(
        settings.batch_size or choose_item_size(engine, model, model.transformer.device, fits, len(task)), len(task)
    )
    batches = len(plan_batches(task.examples, size))
    return Stage(
        name,
        f"{task.name} ({task.split})",
        len(task),
        task.longest,
        batches,
        size,
        passes,
        need.of(size),
        need.of(1),
        batches,
    )


def _extrapolated(
    model: Model,
    engine: Engine,
    task: Task,
    stage: Stage,
    job: Callable[[Model, Sequence[Example]], Any],
    enough: float,
) -> float:
    """Seconds for all examples: from one of them, or, if those of all passes aren't `enough`, from a whole batch."""
    batches = plan_batches(task.examples, stage.batch_size)
    rows = batches[len(batches) // 2]
    found = 0.0
    for chosen in (rows[:1], rows):
        with use_threads(threads_for(model, min(engine.workers(model), stage.pieces))):
            began = time.perf_counter()
            job(model, [task.examples[row] for row in chosen])
            found = (time.perf_counter() - began) * len(task) / len(chosen)
        if found * stage.passes < enough:
            break
    return found
