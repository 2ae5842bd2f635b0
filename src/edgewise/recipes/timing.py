"""Time parts of a run on a few examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, Filter, summarise
from ..models import Model, plan_batches
from ..runtime.engine import Engine, threads_for, use_threads
from ..tasks import Example, Task
from .recipe import select_circuits
from .settings import Settings
from .stages import MeasureRecipe

T = TypeVar("T")
Job = Callable[[Model, Sequence[Example]], Any]
# Seconds after which no further recipe is sampled.
SELECT_SECONDS = 5.0
# A job that takes longer than this on one example isn't run again; one that takes longer on a batch is timed on an
# example.
LONG_JOB, LONG_BATCH = 3.0, 10.0


@dataclass(frozen=True)
class Stage:
    """The cost of a part of a run.

    name                 'score', 'select', 'learn', 'evaluate', 'verify' or 'robustness' (one of its tests)
    task                 the examples, and the measure that is learned for
    examples, length     number of examples, and tokens of the longest
    batches, batch_size  number of batches, and examples in the largest
    passes               how often all batches are run: the number of circuits, or of learning steps (each of a single
                         batch); for 'select' the number of recipes
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

    def repeat(self, times: int) -> Stage:
        """Return the cost of several repetitions."""
        seconds = None if self.seconds is None else times * self.seconds
        return replace(self, passes=times * self.passes, seconds=seconds)

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


@dataclass(frozen=True, eq=False)
class Sample:
    """What recipes select from the scores of a few examples. It stands for what they select from all of them.

    circuits    the distinct circuits of the sampled recipes, without the empty and the full one
    n_distinct  how many distinct circuits all recipes select, roughly
    seconds     of selecting the circuits of all recipes, roughly
    """

    circuits: tuple[Circuit, ...]
    n_distinct: int
    seconds: float


def sample_circuits(scores: EdgeScores, pairs: Sequence[MeasureRecipe], settings: Settings) -> Sample:
    """Select circuits by as many recipes as a few seconds allow, in random order, and extrapolate to all."""
    rankings: dict[Filter, Ranking] = {}
    distinct: dict[Circuit, None] = {}
    counts: list[int] = []
    started = time.perf_counter()
    for row in np.random.default_rng(0).permutation(len(pairs)):
        measure, recipe = pairs[row]
        chosen_filter = recipe.filter if scores.n_examples > 1 else NO_FILTER
        if chosen_filter not in rankings:
            rankings[chosen_filter] = summarise(scores, chosen_filter).ranking
        # A learned ranking isn't known yet, so scores stand for it.
        selections = select_circuits(rankings[chosen_filter], replace(recipe, learner=None), measure, settings)
        distinct |= dict.fromkeys(selection.circuit.prune() for selection in selections)
        counts.append(len(distinct))
        if time.perf_counter() - started > SELECT_SECONDS:
            break
    share, half = len(pairs) / len(counts), counts[max(0, len(counts) // 2 - 1)]
    # Recipes repeat each other's circuits: the number of distinct ones grows as a power of the number of recipes.
    power = min(1.0, float(np.log2(counts[-1] / half))) if len(counts) > 3 else 1.0
    seconds = (time.perf_counter() - started) * share
    inner = tuple(circuit for circuit in distinct if 0 < circuit.n_edges < circuit.graph.n_edges)
    return Sample(inner, round(counts[-1] * share**power), seconds)
