"""The one verb of scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.scores import EdgeScores
from ..errors import InputError
from ..method import as_record, check_is
from ..models import Model, make_batch, plan_batches
from ..models.batch import choose_batch_size
from ..models.memory import BUDGET
from ..models.prepare import prepare
from ..runtime.engine import Engine, choose_item_size, run_batches, thread_count
from ..runtime.partial_unit import Columns
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..tasks import Example, LogitDifference, Metric, Task, check_examples
from .base import BatchScores, Scorer
from .eap_ig import EapIg

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
    session: Session = DEFAULT_SESSION,
) -> EdgeScores:
    """The score of every edge for every example: [example, edge], in the task's order.

    Batches are planned by length, to fit into `memory` (bytes, or '2GB') beyond the model if `batch_size` is None; how
    they are cut, and where they run, changes no score beyond rounding. With a store in the session, scores lie on disk,
    memory-mapped, so that they may be larger than memory, and a stopped call resumes after the last finished batch.
    """
    check_scoring(scorer, metric)
    check_is("session", Session, session)
    store = session.store
    check_examples(model, task)
    size = _batch_size(session.engine, model, task, scorer, batch_size, memory)
    key = "" if store.folder is None else _key(model, task, scorer, metric, size)
    found = store.find(key) or _score(model, task, ScoreJob(scorer, metric), size, key, session)
    clean_metric, corrupted_metric = np.ascontiguousarray(found.arrays["metrics"].T).mean(1).tolist()
    try:
        check_contrast(clean_metric, corrupted_metric, task, metric)
    except InputError:
        store.delete(key)  # what is refused leaves nothing behind
        raise
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
        "batch_size": size,
        "threads": thread_count(),
        "seconds": found.about["seconds"],
    }
    return EdgeScores(model.graph, found.arrays["values"], provenance)


def has_partial_scores(
    session: Session,
    model: Model,
    task: Task,
    scorer: Scorer = DEFAULT_SCORER,
    metric: Metric = DEFAULT_METRIC,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
) -> bool:
    """Whether a store has scores, or some batches of them, that `score_edges` would go on from."""
    size = _batch_size(session.engine, model, task, scorer, batch_size, memory)
    return session.store.has(_key(model, task, scorer, metric, size))


def _batch_size(engine: Engine, model: Model, task: Task, scorer: Scorer, asked: int | None, memory: int | str) -> int:
    fits = choose_batch_size(asked, scorer.need(model.transformer.shape, task.longest), memory)
    return asked or choose_item_size(engine, model, model.transformer.device, fits, len(task))


def _key(model: Model, task: Task, scorer: Scorer, metric: Metric, size: int) -> str:
    """What the scores are kept under; batches of another size round otherwise."""
    return unit_key("scores", model=model.digest, task=task.digest, how=(scorer, metric), batches=size)


def _score(model: Model, task: Task, job: ScoreJob, size: int, key: str, session: Session) -> Unit:
    """Scores [example, edge] and the metric of clean and corrupted runs [example, 2]."""
    batches = plan_batches(task.examples, size)
    columns: Columns = {"values": ((model.graph.n_edges,), np.float32), "metrics": ((2,), np.float64)}
    with session.store.open_partial(key, len(task), columns) as filling, session.reporting() as shown:
        shown.report("score", filling.n_done, len(task))
        left = [rows for rows in batches if filling.is_missing(rows)]
        for rows, (values, clean, corrupted) in run_batches(
            session.engine, model, task.examples, left, job, planned=len(batches)
        ):
            filling.write_rows(rows, values=values, metrics=np.stack([clean, corrupted], axis=1))
            shown.report("score", filling.n_done, len(task))
        return session.store.finish(key, filling, {"seconds": filling.seconds})


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
