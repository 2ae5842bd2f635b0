"""Forecast the cost of a run: examples, batches, memory, disk, and rough times; plan learning within a budget.

Results must not depend on the clock more than through the planned number of steps. So the plan is stored with the run,
where a resumed run finds it.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, Filter, summarise
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Ablation, Patching
from ..evaluate.run_circuits import EvaluateJob, circuit_groups
from ..learn import Learner, LearningCost, LearningProblem, TopKLearner
from ..models import Model, plan_batches
from ..models.memory import Need, choose_batch_size, circuit_need
from ..models.model import free_bytes
from ..runtime import Session, Unit, unit_key
from ..runtime.engine import IN_PROCESS, Engine, choose_item_size, threads_for, use_threads
from ..score.run_scorer import ScoreJob, score_need
from ..tasks import Example, Task
from .recipe import select_circuits
from .settings import Settings
from .stages import MeasureRecipe

T = TypeVar("T")
Job = Callable[[Model, Sequence[Example]], Any]
# Runs that are expected to take fewer seconds are started without a word.
LONG_SECONDS = 60.0
# The number of circuits that are timed.
TIMED_CIRCUITS = 8
# To decide whether anything is timed at all: operations per second of a slow processor, and forward passes per pass.
SLOW_FLOPS = 1e10
FORWARD_PASSES = {"score": 20, "select": 0, "learn": 10, "evaluate": 1, "verify": 1, "robustness": 1}
# Seconds after which no further recipe is sampled.
SELECT_SECONDS = 5.0
# A job that takes longer than this on one example isn't run again; one that takes longer on a batch is timed on an
# example.
LONG_JOB, LONG_BATCH = 3.0, 10.0
# If fewer steps than this fit into the budget, learning is not tried.
LEAST_STEPS = 20
# Operations per second of fast machines, and operations per weight and token of a weighted forward and backward pass.
FAST_CPU, FAST_ACCELERATOR, PASS_COST = 1e12, 1e15, 6
# Checks on validation examples, composition and calibration take about this share of the time of the steps.
CHECK_SHARE = 0.75


@dataclass(frozen=True)
class Stage:
    """The cost of a part of a run, with all its repetitions.

    name                 'score', 'select', 'learn', 'evaluate', 'verify' or 'robustness' (one of its tests)
    task                 the examples, and the measure that is learned for
    examples, length     number of examples, and tokens of the longest
    batches, batch_size  number of batches, and examples in the largest
    passes               how often all batches are run: the number of circuits, or of learning steps (each of a single
                         batch); for 'select' the number of recipes
    need, least          bytes of a batch, and of a single example, beyond the model
    pieces               how many workers can share it at most
    disk                 bytes of the scores that are stored
    seconds              rough time in one process. None if nothing was timed.
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
    disk: int = 0
    seconds: float | None = None

    @property
    def n_tokens(self) -> int:
        """How many tokens are run, at most. A step of learning runs a single batch."""
        return self.length * self.passes * (self.batch_size if self.name == "learn" else self.examples)

    def with_workers(self, workers: int) -> float:
        """Return the seconds if workers share the stage. 0 if nothing was timed."""
        return (self.seconds or 0.0) / min(workers, self.pieces)


class Timer:
    """Times jobs on a few examples. What several parts of a run need is computed once."""

    def __init__(self, model: Model, engine: Engine) -> None:
        self.model, self.engine = model, engine
        self._results: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """Return what `compute` returned when it was first called for this key."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]  # type: ignore[no-any-return]

    def time(self, task: Task, stage: Stage, job: Job) -> tuple[float, Any]:
        """Return the seconds of a job per example, and its result on a few examples.

        The first run, on one example, warms up. If it took long, it counts; else a second run on a batch does.
        """
        batches = plan_batches(task.examples, stage.batch_size)
        rows = batches[len(batches) // 2]
        seconds, result = self._run(task, stage, job, rows[:1])
        if seconds >= LONG_JOB:
            return seconds, result
        rows = rows if seconds * len(rows) < LONG_BATCH else rows[:1]
        seconds, result = self._run(task, stage, job, rows)
        return seconds / len(rows), result

    def _run(self, task: Task, stage: Stage, job: Job, rows: Sequence[int]) -> tuple[float, Any]:
        with use_threads(threads_for(self.model, min(self.engine.workers(self.model), stage.pieces))):
            started = time.perf_counter()
            result = job(self.model, [task.examples[row] for row in rows])
            return time.perf_counter() - started, result


@dataclass(frozen=True)
class Forecast:
    """The cost of a run.

    weights    bytes of the model's weights
    available  device -> bytes that are free beside the weights. Devices that don't report it are left out.
    workers    processes that share the examples, each with a copy of the model
    """

    model: str
    edges: int
    weights: int
    available: Mapping[str, int]
    stages: tuple[Stage, ...]
    workers: int = 1

    @property
    def disk(self) -> int:
        """Bytes of the scores that are stored."""
        return sum(stage.disk for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """Of all stages with the workers. None if nothing was timed."""
        is_timed = any(stage.seconds is not None for stage in self.stages)
        return sum(stage.with_workers(self.workers) for stage in self.stages) if is_timed else None

    @property
    def is_long(self) -> bool:
        """Whether it is worth telling the user before the run starts."""
        return self.seconds is not None and self.seconds > LONG_SECONDS

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"available": dict(self.available), "disk": self.disk, "seconds": self.seconds}


@dataclass(frozen=True)
class Work(ABC):
    """A part of a run whose cost is forecast. `times` is how often it is repeated with other examples."""

    task: Task
    settings: Settings
    times: int = field(default=1, kw_only=True)

    @abstractmethod
    def plan(self, model: Model, engine: Engine) -> Stage:
        """Return the cost, without running anything."""

    @abstractmethod
    def time(self, stage: Stage, timer: Timer) -> Stage:
        """Return the stage with its seconds, and the passes as far as they are known only now."""

    def _stage(self, name: str, model: Model, engine: Engine, need: Need, passes: int) -> Stage:
        task, size = self.task, self.settings.batch_size
        if size is None:
            fits = choose_batch_size(None, need, self.settings.memory)
            size = choose_item_size(engine, model, model.transformer.device, fits, len(task))
        size = min(size, len(task))
        batches, label = len(plan_batches(task.examples, size)), f"{task.name} ({task.split})"
        memory = need.total(size), need.total(1)
        return Stage(name, label, len(task), task.longest, batches, size, passes * self.times, *memory, batches)


@dataclass(frozen=True)
class ScoreWork(Work):
    """Scoring all edges on a task."""

    def plan(self, model: Model, engine: Engine) -> Stage:
        graph = self.settings.graph(model.graph, self.task)
        need = score_need(self.settings.scorer, graph, model, self.task)
        disk = graph.n_edges * len(self.task) * self.times * np.dtype(np.float32).itemsize
        return replace(self._stage("score", model, engine, need, 1), disk=disk)

    def time(self, stage: Stage, timer: Timer) -> Stage:
        return replace(stage, seconds=self.score(timer)[0] * len(self.task) * self.times)

    def score(self, timer: Timer) -> tuple[float, EdgeScores]:
        """Return the seconds per example, and the scores of a few examples."""

        def compute() -> tuple[float, EdgeScores]:
            settings = self.settings
            job = ScoreJob(settings.scorer, settings.metric.for_task(self.task), settings.positions, settings.level)
            seconds, (values, *_) = timer.time(self.task, self.plan(timer.model, timer.engine), job)
            return seconds, EdgeScores(settings.graph(timer.model.graph, self.task), values)

        return timer.once(("score", self.task.digest, repr(self.settings.scorer)), compute)


@dataclass(frozen=True)
class SelectWork(Work):
    """Selecting circuits by recipes, from the scores of a task."""

    recipes: tuple[MeasureRecipe, ...]

    def plan(self, model: Model, engine: Engine) -> Stage:
        label = f"{self.task.name} ({self.task.split})"
        return Stage("select", label, len(self.task), 0, 0, 0, len(self.recipes) * self.times, 0, 0, pieces=1)

    def time(self, stage: Stage, timer: Timer) -> Stage:
        return replace(stage, seconds=self.sample(timer)[2] * self.times)

    def sample(self, timer: Timer) -> tuple[tuple[Circuit, ...], int, float]:
        """Select circuits from the scores of a few examples, which stand for what is selected from all of them.

        As many recipes as a few seconds allow select circuits, in random order. Return their distinct circuits without
        the empty and the full one, and roughly, for all recipes, the number of distinct circuits and the seconds.
        """
        _, scores = ScoreWork(self.task, self.settings).score(timer)

        def compute() -> tuple[tuple[Circuit, ...], int, float]:
            rankings: dict[Filter, Ranking] = {}
            distinct: dict[Circuit, None] = {}
            counts: list[int] = []
            started = time.perf_counter()
            for row in np.random.default_rng(0).permutation(len(self.recipes)):
                measure, recipe = self.recipes[row]
                chosen_filter = recipe.filter if scores.n_examples > 1 else NO_FILTER
                if chosen_filter not in rankings:
                    rankings[chosen_filter] = summarise(scores, chosen_filter).ranking
                # A learned ranking isn't known yet, so scores stand for it.
                recipe = replace(recipe, learner=None)
                selections = select_circuits(rankings[chosen_filter], recipe, measure, self.settings)
                distinct.update(dict.fromkeys(selection.circuit.prune() for selection in selections))
                counts.append(len(distinct))
                if time.perf_counter() - started > SELECT_SECONDS:
                    break
            share, half = len(self.recipes) / len(counts), counts[max(0, len(counts) // 2 - 1)]
            # Recipes repeat each other's circuits: the number of distinct ones grows as a power of that of recipes.
            power = min(1.0, float(np.log2(counts[-1] / half))) if len(counts) > 3 else 1.0
            inner = tuple(circuit for circuit in distinct if 0 < circuit.n_edges < circuit.graph.n_edges)
            return inner, round(counts[-1] * share**power), (time.perf_counter() - started) * share

        return timer.once(("select", self.task.digest, self.recipes), compute)


@dataclass(frozen=True)
class EvaluateWork(Work):
    """Evaluating circuits on a task: known ones, or those that recipes select. Tests have a `name` of their own."""

    circuits: tuple[Circuit, ...] = ()
    selected: SelectWork | None = None
    name: str = "evaluate"

    def plan(self, model: Model, engine: Engine) -> Stage:
        n_selected = 0 if self.selected is None else len(self.selected.recipes) * len(self.settings.sizes)
        n_circuits = len(self.circuits) + n_selected
        need = circuit_need(model.transformer.shape, self.task.longest)
        stage = self._stage(self.name, model, engine, need, n_circuits)
        groups = circuit_groups(engine, model, n_circuits, stage.batches)
        return replace(stage, pieces=stage.batches * len(groups))

    def time(self, stage: Stage, timer: Timer) -> Stage:
        """Time some of the circuits together. Equal circuits run once.

        The same circuits are timed once for all tasks of prompts of equal length, so that equal stages get equal times.
        """
        if self.selected is None:
            circuits = tuple(dict.fromkeys(circuit.prune() for circuit in self.circuits))
            n_distinct = len(circuits)
        else:
            circuits, n_distinct, _ = self.selected.sample(timer)
        key = ("evaluate", self.task.longest, circuits)
        shared, each = timer.once(key, lambda: self._time_circuits(stage, timer, circuits))
        n_groups = len(circuit_groups(timer.engine, timer.model, n_distinct, stage.batches))
        seconds = len(self.task) * (n_groups * shared + n_distinct * each)
        return replace(stage, passes=n_distinct * self.times, seconds=seconds * self.times)

    def _time_circuits(self, stage: Stage, timer: Timer, circuits: Sequence[Circuit]) -> tuple[float, float]:
        """Return the seconds per example of the runs that all circuits share, and of one circuit."""
        settings = self.settings
        metric = settings.metric.for_task(self.task)
        job = EvaluateJob(metric, _without_task(settings.ablation), (), (), settings.memory)
        shared, _ = timer.time(self.task, stage, job)
        if not circuits:
            return shared, 0.0
        by_cost = sorted(circuits, key=lambda circuit: len(circuit.nodes))
        places = np.linspace(0, len(by_cost) - 1, min(TIMED_CIRCUITS, len(by_cost))).round().astype(int)
        timed = tuple(by_cost[place] for place in places)
        together, _ = timer.time(self.task, stage, replace(job, circuits=timed))
        # The difference of two measurements may be noise; a circuit doesn't take less than a share of the whole.
        return shared, max(together - shared, together / (len(timed) + 2)) / len(timed)


@dataclass(frozen=True)
class LearnWork(Work):
    """Learning a ranking, and those of its resamples."""

    learner: Learner = field(default_factory=TopKLearner)

    def plan(self, model: Model, engine: Engine) -> Stage:
        cost = self.cost(model)
        any_size = replace(self, settings=replace(self.settings, batch_size=None))
        stage = any_size._stage("learn", model, engine, cost.need, cost.steps)
        label = f"{stage.task} for {self.learner.measure.name}"
        # A batch of another size than a step's would take another time per example.
        size = min(stage.batch_size, cost.batch, cost.part or cost.batch)
        batches, pieces = -(-len(self.task) // size), -(-cost.batch // size)
        return replace(stage, task=label, batches=batches, batch_size=size, need=cost.need.total(size), pieces=pieces)

    def time(self, stage: Stage, timer: Timer) -> Stage:
        """Time one step."""
        cost = self.cost(timer.model)
        seconds, _ = timer.time(self.task, stage, cost.job)
        return replace(stage, seconds=seconds * cost.steps * cost.batch * self.times)

    def cost(self, model: Model) -> LearningCost:
        """Return what the learner says about its cost."""
        settings, ablation = self.settings, _without_task(self.settings.ablation)
        problem = LearningProblem(
            model, self.task, settings.metric, ablation, settings.sizes, settings.memory, level=settings.level,
            positions=settings.positions,
        )  # fmt: skip
        return self.learner.cost(problem)


def forecast(model: Model, works: Iterable[Work], engine: Engine = IN_PROCESS, exact: bool = False) -> Forecast:
    """Forecast the cost of a run with as many workers as the engine has. Raise InputError if it can't fit.

    With `exact`, every stage is timed on a few examples. Otherwise stages are timed only if the run may take minutes,
    judged by the sizes of model and examples. Circuits are selected from the scores of the timed examples.
    """
    works, workers = list(works), engine.workers(model)
    stages = [work.plan(model, engine) for work in works]
    free = {str(device): free_bytes(device) for device in model.transformer.devices}
    available = {name: amount for name, amount in free.items() if amount is not None}
    room = sum(available.values())
    copies = workers if model.transformer.device.type == "cpu" else 1  # other devices have memory of their own
    for stage in stages:
        if available and stage.least * copies > room:
            short = max(1, int(stage.length * room / max(1, stage.least * copies)))
            fewer = ", fewer workers" if copies > 1 else ""
            raise InputError(
                f"one example of {stage.length} tokens needs {stage.least / 1e9:.2f} GB to {stage.name} beside the "
                f"model, but {room / 1e9:.2f} GB are free on {', '.join(available)}; what would fit: prompts of up to "
                f"{short} tokens, dtype='bfloat16', more devices (device='all'){fewer}, a smaller model"
            )
    weights = [] if model.module is None else list(model.module.parameters())
    n_tokens = sum(FORWARD_PASSES[stage.name] * stage.n_tokens for stage in stages)
    rough_seconds = 2 * n_tokens * sum(weight.numel() for weight in weights) / SLOW_FLOPS
    if not weights or exact or rough_seconds >= 2 * LONG_SECONDS:
        timer = Timer(model, engine)
        stages = [work.time(stage, timer) for work, stage in zip(works, stages, strict=True)]
    n_edges = works[0].settings.graph(model.graph, works[0].task).n_edges
    return Forecast(model.name, n_edges, sum(weight.nbytes for weight in weights), available, tuple(stages), workers)


def _without_task(ablation: Ablation) -> Ablation:
    """Return the ablation, or patching, which costs as much, if the ablation needs means over a task."""
    return ablation if type(ablation).prepare is Ablation.prepare else Patching()


@dataclass(frozen=True)
class LearningPlan:
    """How rankings are learned within a budget.

    learner  with the planned steps. None if not even few steps fit into the budget.
    seconds  forecast for both measures; if nothing fits, that of the fewest steps; infinite for lack of memory
    """

    learner: TopKLearner | None
    seconds: float


def plan_learning(
    model: Model, task: Task, settings: Settings, learner: TopKLearner, minutes: float, session: Session
) -> LearningPlan:
    """Return the plan that the session's store has, or make one by timing a step.

    learner  its steps are the most that are planned
    minutes  the budget for the rankings of both measures
    session  its engine's workers share a step
    """
    check_minutes(minutes)
    key = ""
    if session.store.folder is not None:
        kind = (settings.positions, settings.level)
        how = (learner, settings.metric, settings.ablation, settings.sizes, settings.memory, float(minutes), kind)
        key = unit_key("plan", model=model.digest, task=task.digest, how=how)
        if (stored := session.store.find(key)) is not None:
            steps, seconds = stored.about["steps"], stored.about["seconds"]
            return LearningPlan(replace(learner, steps=steps) if steps else None, seconds)
    per_step = _time_step(model, task, settings, learner, 60 * minutes, session)
    planned = fit_budget(learner, per_step, 60 * minutes)
    if math.isfinite(planned.seconds):
        steps = 0 if planned.learner is None else planned.learner.steps
        session.store.save(key, Unit({}, {"steps": steps, "seconds": planned.seconds}))
    return planned


def fit_budget(learner: TopKLearner, step_seconds: float, budget: float) -> LearningPlan:
    """Return the plan for a budget in seconds, if a step of the learner takes `step_seconds`.

    Only the number of steps is reduced: of a wide model, half as many examples per step take more than half the time.
    """
    n_rankings = len(BOTH_MEASURES) * (1 + learner.resamples)
    cost = n_rankings * (1 + CHECK_SHARE) * step_seconds  # of one step of every ranking
    steps, least = int(min(learner.steps, budget // cost)), min(LEAST_STEPS, learner.steps)
    if steps < least:
        return LearningPlan(None, least * cost)
    steps = steps if steps == learner.steps else max(least, steps // 10 * 10)
    return LearningPlan(replace(learner, steps=steps), steps * cost)


def check_minutes(minutes: float) -> None:
    """Raise InputError if a budget isn't a number of minutes of at least 0."""
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 <= minutes < math.inf:
        raise InputError(f"learn_budget is a number of minutes, 0 for no learning, not {minutes!r}")


def _time_step(
    model: Model, task: Task, settings: Settings, learner: TopKLearner, budget: float, session: Session
) -> float:
    """Return the seconds of one step of learning; infinite if an example doesn't fit into memory.

    A large model isn't timed if the budget wouldn't suffice on a fast machine: the result is then that machine's time.
    """
    work = LearnWork(task, settings, learner)
    stage = work.plan(model, session.engine)
    transformer = model.transformer
    free = [free_bytes(device) for device in transformer.devices]
    known_free = [amount for amount in free if amount is not None]
    if known_free and stage.least > sum(known_free):
        return math.inf
    n_weights = 0 if model.module is None else sum(weight.numel() for weight in model.module.parameters())
    speed = FAST_CPU if transformer.device.type == "cpu" else FAST_ACCELERATOR
    bound = 1e-9 + PASS_COST * n_weights * stage.length * learner.batch / speed
    if fit_budget(learner, bound, budget).learner is None:
        return bound
    timed = work.time(stage, Timer(model, session.engine))
    return timed.with_workers(session.engine.workers(model)) / max(1, stage.passes)
