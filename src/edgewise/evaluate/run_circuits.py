"""The one verb of evaluation."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..method import check_is
from ..models import Model, make_batch, plan_batches
from ..models.batch import choose_batch_size
from ..models.circuits import plan_circuits, run_circuits
from ..models.memory import BUDGET, as_bytes, circuit_need, group_circuits
from ..models.prepare import prepare
from ..runtime.engine import Engine, WorkItem, choose_item_size
from ..runtime.partial_unit import Columns
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..tasks import Example, LogitDifference, Metric, Task, check_examples
from .ablations import Ablation, Patching

FloatArray = NDArray[np.float64]
DEFAULT_METRIC, DEFAULT_ABLATION = LogitDifference(), Patching()
# Circuits are cut into groups until there are so many pieces, or so few circuits in each.
LEAST_PIECES, LEAST_GROUP = 8, 25


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metric of circuits on every example of a task, in the task's order.

    values       [circuit, example]; `full` (the whole model) and `empty` (the empty circuit) are [example]
    of_model     further metrics of the whole model, by name: [example]
    """

    metric: Metric
    ablation: Ablation
    values: FloatArray
    full: FloatArray
    empty: FloatArray
    of_model: Mapping[str, FloatArray] = field(default_factory=dict)

    def __repr__(self) -> str:
        circuits, examples = self.values.shape
        return f"Evaluation({circuits:,} circuits x {examples:,} examples, {self.metric.name}, {self.ablation.name})"


@dataclass(frozen=True, eq=False)
class EvaluateJob:
    """The metric of circuits on a batch: a pure job, which any process that has the model can do.

    circuits  pruned; equal ones run once, and several at a time, as many as fit into `memory` bytes
    """

    metric: Metric
    ablation: Ablation
    circuits: tuple[Circuit, ...]
    of_model: tuple[Metric, ...]
    memory: int = BUDGET

    def __call__(self, model: Model, examples: Sequence[Example]) -> FloatArray:
        """[row, example] the metric of the model, of the empty circuit, further metrics of the model, all circuits."""
        transformer, all_logits = model.transformer, self.metric.reads_all_logits
        with torch.no_grad():
            ready = prepare(transformer, make_batch(examples, transformer.device), self.ablation.shares_prefix)
            reference = self.ablation.reference(ready)
            run = ready.run(ready.clean)
            clean = ready.read_out(run, all_logits)
            said = ready.read_out(run, True) if self.of_model else clean
            full = self.metric.checked(clean, clean)
            empty = self.metric.checked(ready.read_out(reference, all_logits), clean)
            rows = [full, empty, *(metric.checked(said, said) for metric in self.of_model)]
            found = {Circuit.empty(model.graph): empty, Circuit.full(model.graph): full}
            left = list(dict.fromkeys(circuit for circuit in self.circuits if circuit not in found))
            for start, stop in group_circuits(transformer.shape, left, len(full), ready.clean.shape[1], self.memory):
                plan = plan_circuits(left[start:stop], transformer.has_post_norm)
                streams = run_circuits(transformer, plan, ready.clean, reference, ready.frame, ready.last)
                for circuit, stream in zip(left[start:stop], streams, strict=True):
                    found[circuit] = self.metric.checked(ready.read_stream(stream, all_logits), clean)
            rows += [found[circuit] for circuit in self.circuits]
            return torch.stack(rows).cpu().double().numpy()


def evaluate_circuits(
    model: Model,
    task: Task,
    circuits: Sequence[Circuit],
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    *,
    of_model: Sequence[Metric] = (),
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Evaluation:
    """Run circuits, pruned first, on every example of a task.

    Batches fit into `memory` (bytes, or text such as '2GB') beyond the model if `batch_size` is None; how they are cut
    and where they run changes no result beyond rounding. All circuits share the clean and the reference
    run of a batch. The full circuit is the model and the empty one is the reference, so neither is run again; further
    metrics `of_model` cost no run either. With a store in the session, a stopped call resumes after the last finished
    batch. Progress is reported as ("evaluate", done, total) in examples times circuits.
    """
    for one in (metric, *of_model):
        check_is("metric", Metric, one)
    check_is("ablation", Ablation, ablation)
    check_is("session", Session, session)
    store = session.store
    check_examples(model, task)
    if isinstance(circuits, Circuit):
        raise InputError("circuits come in a list, even a single one: [circuit]")
    for circuit in circuits:
        if circuit.graph != model.graph:
            raise InputError(f"the circuit is one of {circuit.graph}, but model {model.name!r} has {model.graph}")
    fits = choose_batch_size(batch_size, circuit_need(model.transformer.shape, task.longest), memory)
    size = batch_size or choose_item_size(session.engine, model, model.transformer.device, fits, len(task))
    pruned = tuple(circuit.prune() for circuit in circuits)
    job = EvaluateJob(metric, ablation, pruned, tuple(of_model), as_bytes(memory))
    key = "" if store.folder is None else _key(session.engine, model, task, job, size)
    unit = store.find(key) or _evaluate(model, task, job, size, key, session)
    full, empty, *rest = np.ascontiguousarray(unit.arrays["found"].T)
    said = {one.name: values for one, values in zip(of_model, rest, strict=False)}
    return Evaluation(metric, ablation, np.array(rest[len(of_model) :]).reshape(-1, len(task)), full, empty, said)


def _key(engine: Engine, model: Model, task: Task, job: EvaluateJob, size: int) -> str:
    """What the values are kept under; other batches, or other circuits at once, round otherwise."""
    masks = hashlib.sha256(b"".join(np.packbits(circuit.mask).tobytes() for circuit in job.circuits)).hexdigest()
    how = (job.metric, job.ablation, job.of_model)
    at_once = (size, job.memory, len(circuit_groups(engine, model, len(job.circuits), -(-len(task) // size))))
    return unit_key("values", model=model.digest, task=task.digest, how=how, circuits=masks, batches=at_once)


def _evaluate(model: Model, task: Task, job: EvaluateJob, size: int, key: str, session: Session) -> Unit:
    """[example, row] the rows of `EvaluateJob`."""
    batches, circuits, n_model = plan_batches(task.examples, size), job.circuits, 2 + len(job.of_model)
    engine, columns = session.engine, _columns(n_model + len(circuits))
    with session.store.open_partial(key, len(task), columns) as filling, session.reporting() as shown:
        each = max(1, len(circuits))
        done, total = filling.n_done * each, len(task) * each
        shown.report("evaluate", done, total)
        ready = replace(job, ablation=job.ablation.prepare(model, task, batches, engine))
        groups = circuit_groups(engine, model, len(circuits), len(batches))
        jobs = [replace(ready, circuits=circuits[some]) for some in groups]
        found = [_Found(rows, n_model, len(circuits)) for rows in batches if filling.is_missing(rows)]
        pieces = [WorkItem(job, [task.examples[row] for row in batch.rows]) for batch in found for job in jobs]
        for place, parts in engine.run(model, pieces, planned=len(batches) * len(groups)):
            batch, some = found[place // len(groups)], groups[place % len(groups)]
            for places, values in parts:
                batch.put(places, some, values)
            if batch.is_whole:
                filling.write_rows(batch.rows, found=batch.values.T)
            done += max(1, some.stop - some.start) * len(batch.rows)
            shown.report("evaluate", done, total)
        return session.store.finish(key, filling)


def _columns(rows: int) -> Columns:
    return {"found": ((rows,), np.float64)}


class _Found:
    """What is known of a batch: [row, example] the rows of `EvaluateJob`, as groups of circuits come in."""

    def __init__(self, rows: Sequence[int], of_model: int, circuits: int) -> None:
        self.rows, self.values = list(rows), np.empty((of_model + circuits, len(rows)))
        self._of_model, self._lacking = of_model, max(1, circuits) * len(rows)

    def put(self, examples: Sequence[int], circuits: slice, values: FloatArray) -> None:
        """Values of some circuits on some of its examples; those of the model come with every group."""
        start = self._of_model
        self.values[:start, examples] = values[:start]
        self.values[start + circuits.start : start + circuits.stop, examples] = values[start:]
        self._lacking -= max(1, circuits.stop - circuits.start) * len(examples)

    @property
    def is_whole(self) -> bool:
        return not self._lacking


def circuit_groups(engine: Engine, model: Model, circuits: int, batches: int) -> list[slice]:
    """Circuits in groups, so that there are pieces for workers. Each group runs the model once more.

    As with batches, on a CPU they are the same for every engine: circuits that run at once round together.
    """
    if model.transformer.device.type == "cpu":
        wanted = min(circuits // LEAST_GROUP, math.ceil(LEAST_PIECES / batches))
    else:
        wanted = min(circuits, math.ceil(engine.workers(model) / batches))
    ends = [round(circuits * part / max(1, wanted)) for part in range(max(1, wanted) + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]
