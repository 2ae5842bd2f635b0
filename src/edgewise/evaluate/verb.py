"""The one verb of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError, unknown_name
from ..models import Model, make_batch, plan_batches, run_batches
from ..models.circuits import plan_circuit, run_circuit
from ..models.forward import read_out
from ..models.memory import BUDGET, circuit_bytes
from ..models.memory import batch_size as fitting_batch_size
from ..models.prepare import prepare
from ..tasks import Task, check_lengths, get_metric
from .ablations import ABLATIONS

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metric of circuits on every example of a task, in the task's order.

    values       [circuit, example]; `full` (the whole model) and `empty` (the empty circuit) are [example]
    """

    metric: str
    ablation: str
    values: FloatArray
    full: FloatArray
    empty: FloatArray


def evaluate_circuits(
    model: Model,
    task: Task,
    circuits: Sequence[Circuit],
    metric: str = "logit-difference",
    ablation: str = "patching",
    batch_size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    memory: int = BUDGET,
) -> Evaluation:
    """Run circuits, pruned first, on every example of a task.

    Batches fit into `memory` bytes beyond the model if `batch_size` is None; their size changes no result.
    All circuits share the clean and the reference run of a batch. The full circuit is the model and the empty one is
    the reference, so neither is run again. `progress` hears of examples times circuits: (done, total).
    """
    if ablation not in ABLATIONS:
        raise unknown_name("ablation", ablation, list(ABLATIONS))
    for circuit in circuits:
        if circuit.graph != model.graph:
            raise InputError(f"the circuit is one of {circuit.graph}, but model {model.name!r} has {model.graph}")
    measure = get_metric(metric)
    check_lengths(model, task)
    pruned = [circuit.prune() for circuit in circuits]
    longest = max(example.length for example in task.examples)
    size = batch_size or fitting_batch_size(circuit_bytes(model.graph, longest), memory)
    batches = plan_batches(task.examples, size)
    values = np.empty((len(circuits), len(task)))
    full, empty = np.empty((2, len(task)))
    plans = {index: plan_circuit(c) for index, c in enumerate(pruned) if 0 < c.n_edges < c.graph.n_edges}
    transformer, done, total = model.transformer, 0, len(task) * max(1, len(circuits))
    progress(0, total)
    with torch.no_grad():
        reference_of = ABLATIONS[ablation].prepare(model, task, batches)

        def work(rows: list[int]) -> None:
            nonlocal done
            batch = make_batch(task.examples, rows, transformer.device)
            ready = prepare(transformer, batch, ABLATIONS[ablation].shares_prefix)
            reference = reference_of(batch, ready)
            clean = ready.read_out(ready.run(ready.clean), measure.reads_all_logits)
            full[rows] = measure.value(clean, clean).cpu().double()
            empty[rows] = measure.value(ready.read_out(reference, measure.reads_all_logits), clean).cpu().double()
            for index, circuit in enumerate(pruned):
                progress(done + len(rows) * index, total)
                values[index, rows] = full[rows] if circuit.n_edges else empty[rows]
                if index in plans:
                    stream = run_circuit(transformer, plans[index], ready.clean, reference, ready.frame, ready.last)
                    readout = read_out(transformer, stream, batch.answers, measure.reads_all_logits)
                    values[index, rows] = measure.value(readout, clean).cpu().double()
            done += len(rows) * max(1, len(pruned))
            progress(done, total)

        run_batches(batches, work)
    return Evaluation(metric, ablation, values, full, empty)
