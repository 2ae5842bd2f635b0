"""The one verb of scoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, unknown_name
from ..models import Model, make_batch, plan_batches, run_batches
from ..models.memory import BUDGET, scoring_bytes
from ..models.memory import batch_size as fitting_batch_size
from ..models.prepare import Prepared, prepare
from ..scores import EdgeScores
from ..tasks import Metric, Task, check_lengths, get_metric
from .eap import score_eap
from .eap_ig import score_eap_ig
from .method import BatchScores

METHODS: dict[str, Callable[[Prepared, Metric, int], BatchScores]] = {
    "eap-ig": score_eap_ig,
    "eap": score_eap,
}
Progress = Callable[[int, int], None]


def check_scoring(method: str, steps: int, metric: str) -> Metric:
    """Refuse what can't be scored with, before any work is done; gives the metric."""
    if method not in METHODS:
        raise unknown_name("scoring method", method, list(METHODS))
    if steps < 1:
        raise InputError(f"integrated gradients need at least 1 step, not {steps}")
    measure = get_metric(metric)
    if not measure.differentiable:
        raise InputError(f"metric {metric!r} has no gradient, so edges can't be scored with it; score with another one")
    if measure.flat_at_clean and METHODS[method] is score_eap:
        raise InputError(
            f"metric {metric!r} has no slope at the clean run, where eap takes it, so every score would be 0; "
            "use eap-ig, or another metric"
        )
    return measure


def score_edges(
    model: Model,
    task: Task,
    method: str = "eap-ig",
    steps: int = 5,
    metric: str = "logit-difference",
    batch_size: int | None = None,
    progress: Progress = lambda done, total: None,
    store: Path | None = None,
    about: Mapping[str, Any] | None = None,
    memory: int = BUDGET,
) -> EdgeScores:
    """The score of every edge for every example: [example, edge], in the task's order.

    Batches are planned by length, to fit into `memory` bytes beyond the model if `batch_size` is None; neither their
    size nor their order changes a score. `store` names a file to keep
    the scores in while they are made and used (memory-mapped), for graphs and tasks too large for memory. `about`
    joins the provenance.
    """
    measure = check_scoring(method, steps, metric)
    check_lengths(model, task)
    values = _allocate((len(task), model.graph.n_edges), store)
    contrast = np.zeros((2, len(task)))
    longest = max(example.length for example in task.examples)
    size = batch_size or fitting_batch_size(scoring_bytes(model.graph, longest), memory)
    done = 0
    progress(0, len(task))

    def work(rows: list[int]) -> None:
        nonlocal done
        batch = make_batch(task.examples, rows, model.transformer.device)
        result = METHODS[method](prepare(model.transformer, batch), measure, steps)
        values[rows] = result.values.float().cpu().numpy()
        contrast[:, rows] = np.stack([result.clean_metric.cpu().double(), result.corrupted_metric.cpu().double()])
        done += len(rows)
        progress(done, len(task))

    run_batches(plan_batches(task.examples, size), work)
    clean, corrupted = contrast.mean(1).tolist()
    check_contrast(clean, corrupted, task, metric)
    provenance = {
        "model": model.name,
        "task": task.name,
        "split": task.split,
        "examples": len(task),
        "method": method,
        "steps": steps if method == "eap-ig" else None,
        "metric": metric,
        "clean_metric": clean,
        "corrupted_metric": corrupted,
        **(about or {}),
    }
    return EdgeScores(model.graph, values, provenance)


def check_contrast(clean: float, corrupted: float, task: Task, metric: str) -> None:
    """Refuse a task on which the metric doesn't tell clean from corrupted prompts: no edge could matter."""
    if abs(clean - corrupted) <= 1e-6 * max(abs(clean), abs(corrupted), 1e-6):
        raise InputError(
            f"the metric {metric!r} of task {task.name!r} is {clean:.6g} on clean prompts and {corrupted:.6g} on "
            "corrupted ones: without a difference there is no circuit to find; check the prompts and answers"
        )


def _allocate(shape: tuple[int, int], store: Path | None) -> NDArray[np.float32]:
    if store is None:
        return np.empty(shape, np.float32)
    return np.lib.format.open_memmap(store, mode="w+", dtype=np.float32, shape=shape)
