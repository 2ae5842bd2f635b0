"""score_edges: from a model, a task and a scorer to scores of every edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.scores import EdgeScores
from ..errors import InputError, SwappedWarning, warn
from ..graph import BaseGraph, SpanGraph, check_one_kind, graph_of_level
from ..method import as_record, check_is
from ..models import Model, make_batch, plan_batches
from ..models.memory import BUDGET, Need, add_spans, choose_batch_size
from ..models.prepare import prepare
from ..models.torch_modes import default_torch_modes
from ..runtime.engine import choose_item_size, run_batches, thread_count
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Columns
from ..runtime.unit_keys import unit_key
from ..tasks import DEFAULT_METRIC, Example, Metric, Task, check_examples
from .base import BatchScores, Scorer
from .eap import EapIg

DEFAULT_SCORER = EapIg()


@dataclass(frozen=True)
class ScoreJob:
    """A job: the scores of a batch; `by_span` those of (edge, span) pairs; `level` those of edges, nodes or neurons."""

    scorer: Scorer
    metric: Metric
    by_span: bool = False
    level: str = "edge"

    def __call__(
        self, model: Model, examples: Sequence[Example]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
        """Return scores [example, edge], and the metric [example] of the clean and of the corrupted runs."""
        tokens = make_batch(examples, model.transformer.device)
        batch = prepare(model.transformer, tokens, by_span=self.by_span, level=self.level)
        scores = self.scorer.score(batch, self.metric)
        n_edges = batch.graph.n_edges * (tokens.n_spans if self.by_span else 1)
        _check_scores(scores, self.scorer, len(examples), n_edges)
        # A custom metric or scorer may return tensors that still require gradients.
        metrics = (scores.clean_metric, scores.corrupted_metric)
        clean, corrupted = (metric.detach().cpu().double().numpy() for metric in metrics)
        return scores.values.detach().float().cpu().numpy(), clean, corrupted


@default_torch_modes()
def score_edges(
    model: Model,
    task: Task,
    scorer: Scorer = DEFAULT_SCORER,
    metric: Metric = DEFAULT_METRIC,
    *,
    positions: bool = False,
    level: str = "edge",
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> EdgeScores:
    """Score every edge on every example, or every node, or every neuron (output dimension of a node).

    Changing the batches, or where they run, changes no score beyond rounding. With a store in the session, the scores
    are memory-mapped files, so that they may be larger than memory, and a stopped call resumes after the last finished
    batch.

    Parameters
    ----------
    model, task
        The model, and the examples to score on.
    scorer
        The attribution method.
    metric
        Number per example that edges are scored for; by default the one that suits the task.
    positions
        Score (edge, span) pairs instead of edges: the same scores before the sum over the task's spans.
    level
        What to score: 'edge', 'node' or 'neuron'. A node's score is the sum of those of its out-edges, and of those of
        its neurons.
    batch_size
        Examples per batch. None chooses what fits into `memory`.
    memory
        Bytes that a batch may use beyond the model, or text such as '2GB'.
    session
        Store, engine and progress. Progress is reported as ("score", done, examples).

    Returns
    -------
    EdgeScores
        Scores [example, edge], in the task's order. With `positions`, their graph is a `SpanGraph`, at other levels
        a `NodeGraph` or a `NeuronGraph`.

    Raises
    ------
    InputError
        If the scorer can't use the metric, or the metric doesn't differ between clean and corrupted prompts; with
        `positions`, if the task has no spans or the scorer can't score by span; if it can't score a level.
    """
    check_is("scorer", Scorer, scorer)
    check_is("metric", Metric, metric)
    check_is("session", Session, session)
    check_examples(model, task)
    metric = metric.for_task(task)
    scorer.check(metric)
    model, store = model.pin(), session.store
    graph = graph_of_level(model.graph, level)
    check_one_kind(positions, level)
    scorer.check_kind(positions, level)
    graph = task.span_graph(model.graph) if positions else graph
    fits = choose_batch_size(batch_size, score_need(scorer, graph, model, task), memory)
    size, key = batch_size or choose_item_size(session.engine, model, model.transformer.device, fits, len(task)), ""
    if store.folder is not None:
        kind = {"spans": task.span_digest} if positions else {}
        kind |= {} if level == "edge" else {"level": level}
        # The batch size changes rounding.
        key = unit_key("scores", model=model.digest, task=task.digest, how=(scorer, metric), batches=size, **kind)
    unit = store.find(key)
    if unit is None:
        prepared_scorer = scorer
        if scorer.first_scorer is not None:
            # A pass over all examples. With a store it is a unit of its own, so that it resumes, too.
            first_scores = score_edges(
                model, task, scorer.first_scorer, metric,
                positions=positions, level=level, batch_size=batch_size, memory=memory, session=session,
            )  # fmt: skip
            prepared_scorer = scorer.with_first_scores(first_scores.mean())
        job, batches = ScoreJob(prepared_scorer, metric, positions, level), plan_batches(task.examples, size)
        columns: Columns = {"values": ((graph.n_edges,), np.float32), "metrics": ((2,), np.float64)}
        with store.open_partial(key, len(task), columns) as partial, session.reporting() as reporting:
            reporting.report("score", partial.n_done, len(task))
            missing = [rows for rows in batches if partial.is_missing(rows)]
            for rows, (values, clean, corrupted) in run_batches(
                session.engine, model, task.examples, missing, job, n_items_in_all=len(batches)
            ):
                partial.write_rows(rows, values=values, metrics=np.stack([clean, corrupted], axis=1))
                reporting.report("score", partial.n_done, len(task))
            unit = store.finish(key, partial, {"seconds": partial.seconds})
    clean_metric, corrupted_metric = np.ascontiguousarray(unit.arrays["metrics"].T).mean(1).tolist()
    try:
        check_contrast(clean_metric, corrupted_metric, task, metric)
    except InputError:
        store.delete(key)
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
        "seconds": unit.about["seconds"],
    }
    return EdgeScores(graph, unit.arrays["values"], provenance)


def score_need(scorer: Scorer, graph: BaseGraph, model: Model, task: Task) -> Need:
    """Return the memory that scoring the edges of a graph needs beyond the model."""
    shape = model.transformer.shape
    need = scorer.need(shape, task.longest)
    if isinstance(graph, SpanGraph):
        return add_spans(need, shape, graph.n_spans)
    if graph != model.graph:  # neurons are many: two copies of their scores
        return replace(need, each=need.each + 2 * shape.sum_itemsize * graph.n_edges)
    return need


def check_contrast(clean: float, corrupted: float, task: Task, metric: Metric) -> None:
    """Raise InputError if the mean metric is the same on clean and corrupted prompts: then no edge matters."""
    if abs(clean - corrupted) <= 1e-6 * max(abs(clean), abs(corrupted), 1e-6):
        raise InputError(
            f"the metric {metric.name!r} of task {task.name!r} is {clean:.6g} on clean prompts and {corrupted:.6g} on "
            "corrupted ones: without a difference there is no circuit to find; check the prompts and answers"
        )
    if clean < corrupted:
        warn(
            f"the metric {metric.name!r} of task {task.name!r} is lower on clean prompts ({clean:.4g}) than on "
            f"corrupted ones ({corrupted:.4g}): correct and incorrect, or clean and corrupted, may be swapped",
            SwappedWarning,
        )


def _check_scores(scores: object, scorer: Scorer, examples: int, edges: int) -> None:
    """Raise InputError if a custom scorer returns something else than scores of the expected shapes."""
    if not isinstance(scores, BatchScores):
        raise InputError(f"scorer {scorer.name!r} must return BatchScores, not {type(scores).__name__}")
    expected = {"values": (examples, edges), "clean_metric": (examples,), "corrupted_metric": (examples,)}
    for name, expected_shape in expected.items():
        shape = tuple(getattr(getattr(scores, name), "shape", ()))
        if shape != expected_shape:
            raise InputError(f"scorer {scorer.name!r} gave {name} of shape {shape}, but {expected_shape} is expected")
