"""The one verb of evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError
from ..methods import check_is
from ..models import Model, make_batch, plan_batches, run_batches
from ..models.batch import choose_batch_size
from ..models.circuits import CircuitPlan, plan_circuit, run_circuit
from ..models.memory import BUDGET, circuit_need
from ..models.prepare import prepare
from ..progress import Progress, showing
from ..store import NOTHING, Columns, Store, Unit, unit_key
from ..tasks import Example, LogitDifference, Metric, Task, check_examples
from .ablations import Ablation, Patching

FloatArray = NDArray[np.float64]
DEFAULT_METRIC, DEFAULT_ABLATION = LogitDifference(), Patching()


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

    plans  what each circuit runs; None for one that is the model itself, or empty
    tick   hears how many circuits are done, where somebody listens; no part of the outcome
    """

    metric: Metric
    ablation: Ablation
    plans: tuple[CircuitPlan | None, ...]
    is_full: tuple[bool, ...]
    of_model: tuple[Metric, ...]
    tick: Callable[[int], None] | None = None

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
            for place, (plan, is_full) in enumerate(zip(self.plans, self.is_full, strict=True)):
                if self.tick is not None:
                    self.tick(place)
                if plan is None:
                    rows.append(full if is_full else empty)
                else:
                    stream = run_circuit(transformer, plan, ready.clean, reference, ready.frame, ready.last)
                    rows.append(self.metric.checked(ready.read_stream(stream, all_logits), clean))
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
    changes no result beyond rounding. All circuits share the clean and the reference run of a batch. The full circuit
    is the model and the empty one is the reference, so neither is run again; further metrics `of_model` cost no run
    either. With a store, finished batches are found again after a stop. `progress` hears of ("evaluate", done, total)
    in examples times circuits.
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
    size = choose_batch_size(batch_size, circuit_need(model.transformer.shape, task.longest), memory)
    job = EvaluateJob(metric, ablation, (), (), tuple(of_model))
    key = "" if store.folder is None else _key(model, task, circuits, job, size)
    unit = store.find(key) or _evaluate(model, task, [c.prune() for c in circuits], job, size, store, key, progress)
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
    circuits: Sequence[Circuit],
    job: EvaluateJob,
    size: int,
    store: Store,
    key: str,
    progress: Progress | None,
) -> Unit:
    """[example, row] the rows of `EvaluateJob`, of circuits that were pruned."""
    batches = plan_batches(task.examples, size)
    columns: Columns = {"found": ((2 + len(job.of_model) + len(circuits),), np.float64)}
    with store.filling(key, len(task), columns) as filling, showing(progress) as report:
        each, total = max(1, len(circuits)), len(task) * max(1, len(circuits))
        report("evaluate", filling.n_done * each, total)

        def tick(circuits_done: int) -> None:
            # The batch at hand counts as a whole one, which it is unless it had to be halved.
            ahead = min(size, len(task) - filling.n_done) * circuits_done
            report("evaluate", filling.n_done * each + ahead, total)

        ready = replace(
            job,
            ablation=job.ablation.prepare(model, task, batches),
            plans=tuple(plan_circuit(c) if 0 < c.n_edges < c.graph.n_edges else None for c in circuits),
            is_full=tuple(circuit.n_edges > 0 for circuit in circuits),
            tick=tick,
        )
        left = [rows for rows in batches if filling.lacks(rows)]
        for rows, values in run_batches(model, task.examples, left, ready):
            filling.put(rows, found=values.T)
            report("evaluate", filling.n_done * each, total)
        return store.finish(key, filling)
