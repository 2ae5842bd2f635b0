"""The one verb of scoring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..methods import as_record, check_is
from ..models import Model, make_batch, plan_batches, run_batches
from ..models.batch import choose_batch_size
from ..models.memory import BUDGET
from ..models.prepare import prepare
from ..progress import Progress, showing
from ..scores import EdgeScores
from ..tasks import Example, LogitDifference, Metric, Task, check_lengths
from .eap_ig import EapIg
from .scorer import BatchScores, Scorer

DEFAULT_SCORER, DEFAULT_METRIC = EapIg(), LogitDifference()


@dataclass(frozen=True)
class ScoreJob:
    """The scores of a batch: a pure job, which any process that has the model can do."""

    scorer: Scorer
    metric: Metric

    def __call__(
        self, model: Model, examples: Sequence[Example]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
        """Scores [example, edge], and the metric [example] of the clean and of the corrupted runs."""
        batch = prepare(model.transformer, make_batch(examples, model.transformer.device))
        found = self.scorer.score(batch, self.metric)
        _check_found(found, self.scorer, len(examples), model.graph.n_edges)
        # One's own metric or scorer may return what still requires gradients: a view of the logits does.
        metrics = (found.clean_metric, found.corrupted_metric)
        clean, corrupted = (part.detach().cpu().double().numpy() for part in metrics)
        return found.values.detach().float().cpu().numpy(), clean, corrupted


def score_edges(
    model: Model,
    task: Task,
    scorer: Scorer = DEFAULT_SCORER,
    metric: Metric = DEFAULT_METRIC,
    *,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    file: Path | None = None,
    progress: Progress | None = None,
) -> EdgeScores:
    """The score of every edge for every example: [example, edge], in the task's order.

    Batches are planned by length, to fit into `memory` (bytes, or '2GB') beyond the model if `batch_size` is None;
    neither their size nor their order changes a score beyond rounding. `file` names a .npy to keep the scores in while
    they are made and used (memory-mapped), for graphs and tasks too large for memory. `progress` hears of ("score",
    done, total); without it, a terminal or a notebook shows a bar.
    """
    started = time.perf_counter()
    check_scoring(scorer, metric)
    check_lengths(model, task)
    values = _allocate((len(task), model.graph.n_edges), file)
    contrast = np.zeros((2, len(task)))
    size = choose_batch_size(batch_size, scorer.bytes_per_example(model.graph, task.longest), memory)
    batches = plan_batches(task.examples, size)
    with showing(progress) as report:
        done = 0
        report("score", done, len(task))
        for rows, (some, clean, corrupted) in run_batches(model, task.examples, batches, ScoreJob(scorer, metric)):
            values[rows], contrast[0, rows], contrast[1, rows] = some, clean, corrupted
            done += len(rows)
            report("score", done, len(task))
    clean_metric, corrupted_metric = contrast.mean(1).tolist()
    check_contrast(clean_metric, corrupted_metric, task, metric)
    provenance = {
        "model": model.name,
        "task": task.name,
        "split": task.split,
        "examples": len(task),
        "method": scorer.name,
        **as_record(scorer),
        "metric": metric.name,
        "clean_metric": clean_metric,
        "corrupted_metric": corrupted_metric,
        "seconds": time.perf_counter() - started,
    }
    return EdgeScores(model.graph, values, provenance)


def check_scoring(scorer: Scorer, metric: Metric) -> None:
    """Refuse what can't be scored with, before any work is done."""
    check_is("scorer", Scorer, scorer)
    check_is("metric", Metric, metric)
    scorer.check(metric)


def check_contrast(clean: float, corrupted: float, task: Task, metric: Metric) -> None:
    """Refuse a task on which the metric doesn't tell clean from corrupted prompts: no edge could matter."""
    if abs(clean - corrupted) <= 1e-6 * max(abs(clean), abs(corrupted), 1e-6):
        raise InputError(
            f"the metric {metric.name!r} of task {task.name!r} is {clean:.6g} on clean prompts and {corrupted:.6g} on "
            "corrupted ones: without a difference there is no circuit to find; check the prompts and answers"
        )


def _check_found(found: object, scorer: Scorer, examples: int, edges: int) -> None:
    """Refuse what a scorer of one's own mustn't return."""
    expected = {"values": (examples, edges), "clean_metric": (examples,), "corrupted_metric": (examples,)}
    if not isinstance(found, BatchScores):
        raise InputError(f"scorer {scorer.name!r} must return BatchScores, not {type(found).__name__}")
    for name, shape in expected.items():
        given = tuple(getattr(getattr(found, name), "shape", ()))
        if given != shape:
            raise InputError(f"scorer {scorer.name!r} gave {name} of shape {given}, but {shape} is expected")


def _allocate(shape: tuple[int, int], file: Path | None) -> NDArray[np.float32]:
    if file is None:
        return np.empty(shape, np.float32)
    return np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
