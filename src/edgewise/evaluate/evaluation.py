"""The one verb of evaluation."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError
from ..methods import check_is
from ..models import Model, make_batch, plan_batches
from ..models.batch import choose_batch_size
from ..models.circuits import plan_circuits, run_circuits
from ..models.memory import BUDGET, as_bytes, circuit_need, group_circuits
from ..models.prepare import prepare
from ..models.running import Piece, piece_size
from ..progress import Progress, showing
from ..store import NOTHING, Columns, Store, Unit, unit_key
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
    tick      hears how many circuits are done, where somebody listens; no part of the outcome
    """

    metric: Metric
    ablation: Ablation
    circuits: tuple[Circuit, ...]
    of_model: tuple[Metric, ...]
    memory: int = BUDGET
    tick: Callable[[int], None] | None = None

    def part(self, some: slice) -> EvaluateJob:
        """The same of some circuits."""
        return replace(self, circuits=self.circuits[some])

    def __getstate__(self) -> dict[str, Any]:
        """As another process gets it: nobody listens there."""
        return self.__dict__ | {"tick": None}

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
                if self.tick is not None:
                    self.tick(start)
                plan = plan_circuits(left[start:stop], transformer.norms_heads)
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
    store: Store = NOTHING,
    progress: Progress | None = None,
) -> Evaluation:
    """Run circuits, pruned first, on every example of a task.

    Batches fit into `memory` (bytes, or text such as '2GB') beyond the model if `batch_size` is None; how they are cut
    and where they run (`Model.on`) changes no result beyond rounding. All circuits share the clean and the reference
    run of a batch. The full circuit is the model and the empty one is the reference, so neither is run again; further
    metrics `of_model` cost no run either. With a store, finished batches are found again after a stop. `progress` hears
    of ("evaluate", done, total) in examples times circuits.
    """
    for one in (metric, *of_model):
        check_is("metric", Metric, one)
    check_is("ablation", Ablation, ablation)
    check_is("store", Store, store)
    check_examples(model, task)
    if isinstance(circuits, Circuit):
        raise InputError("circuits come in a list, even a single one: [circuit]")
    for circuit in circuits:
        if circuit.graph != model.graph:
            raise InputError(f"the circuit is one of {circuit.graph}, but model {model.name!r} has {model.graph}")
    fits = choose_batch_size(batch_size, circuit_need(model.transformer.shape, task.longest), memory)
    size = batch_size or piece_size(model, model.transformer.device, fits, len(task))
    pruned = tuple(circuit.prune() for circuit in circuits)
    job = EvaluateJob(metric, ablation, pruned, tuple(of_model), as_bytes(memory))
    key = "" if store.folder is None else _key(model, task, circuits, job, size)
    unit = store.find(key) or _evaluate(model, task, job, size, store, key, progress)
    full, empty, *rest = np.ascontiguousarray(unit.arrays["found"].T)
    said = {one.name: values for one, values in zip(of_model, rest, strict=False)}
    return Evaluation(metric, ablation, np.array(rest[len(of_model) :]).reshape(-1, len(task)), full, empty, said)


def _key(model: Model, task: Task, circuits: Sequence[Circuit], job: EvaluateJob, size: int) -> str:
    """What the values are kept under; batches of another size round otherwise."""
    masks = hashlib.sha256(b"".join(np.packbits(circuit.mask).tobytes() for circuit in circuits)).hexdigest()
    how = (job.metric, job.ablation, job.of_model)
    return unit_key("values", model=model.digest, task=task.digest, how=how, circuits=masks, batches=size)


def _evaluate(
    model: Model,
    task: Task,
    job: EvaluateJob,
    size: int,
    store: Store,
    key: str,
    progress: Progress | None,
) -> Unit:
    """[example, row] the rows of `EvaluateJob`."""
    batches, circuits = plan_batches(task.examples, size), job.circuits
    columns: Columns = {"found": ((2 + len(job.of_model) + len(circuits),), np.float64)}
    with store.filling(key, len(task), columns) as filling, showing(progress) as report:
        each, total = max(1, len(circuits)), len(task) * max(1, len(circuits))
        report("evaluate", filling.n_done * each, total)

        def tick(circuits_done: int) -> None:
            # The batch at hand counts as a whole one, which it is unless it had to be halved.
            ahead = min(size, len(task) - filling.n_done) * circuits_done
            report("evaluate", filling.n_done * each + ahead, total)

        ready = replace(job, ablation=job.ablation.prepare(model, task, batches), tick=tick)
        left = [rows for rows in batches if filling.lacks(rows)]
        groups = circuit_groups(model, len(circuits), len(batches))
        pieces = [Piece(ready.part(some), [task.examples[row] for row in rows]) for rows in left for some in groups]
        found = {tuple(rows): _Found(rows, 2 + len(job.of_model), len(circuits)) for rows in left}
        for place, parts in model.engine.run(model, pieces, of=len(batches) * len(groups)):
            batch = found[tuple(left[place // len(groups)])]
            for places, values in parts:
                batch.put(places, groups[place % len(groups)], values)
            if batch.is_whole:
                filling.put(batch.rows, found=batch.values.T)
                del found[tuple(batch.rows)]
                report("evaluate", filling.n_done * each, total)
        return store.finish(key, filling)


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


def circuit_groups(model: Model, circuits: int, batches: int) -> list[slice]:
    """Circuits in groups, so that there are pieces for workers. Each group runs the model once more.

    As with batches, on a CPU they are the same for every engine: circuits that run at once round together.
    """
    if model.transformer.device.type == "cpu":
        wanted = min(circuits // LEAST_GROUP, math.ceil(LEAST_PIECES / batches))
    else:
        wanted = min(circuits, math.ceil(model.engine.workers(model) / batches))
    ends = [round(circuits * part / max(1, wanted)) for part in range(max(1, wanted) + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]
