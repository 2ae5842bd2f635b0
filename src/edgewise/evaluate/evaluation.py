"""The one verb of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from ..circuit import Circuit
from ..errors import InputError
from ..methods import check_is
from ..models import Model, make_batch, plan_batches, run_batches
from ..models.batch import choose_batch_size
from ..models.circuits import CircuitPlan, plan_circuit, run_circuit
from ..models.memory import BUDGET, circuit_bytes
from ..models.prepare import prepare
from ..progress import Progress, showing
from ..tasks import Example, LogitDifference, Metric, Task, check_lengths
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
    progress: Progress | None = None,
) -> Evaluation:
    """Run circuits, pruned first, on every example of a task.

    Batches fit into `memory` (bytes, or text such as '2GB') beyond the model if `batch_size` is None; their size
    changes no result beyond rounding. All circuits share the clean and the reference run of a batch. The full circuit
    is the model and the empty one is the reference, so neither is run again; further metrics `of_model` cost no run
    either. `progress` hears of ("evaluate", done, total) in examples times circuits.
    """
    for one in (metric, *of_model):
        check_is("metric", Metric, one)
    check_is("ablation", Ablation, ablation)
    check_lengths(model, task)
    if isinstance(circuits, Circuit):
        raise InputError("circuits come in a list, even a single one: [circuit]")
    for circuit in circuits:
        if circuit.graph != model.graph:
            raise InputError(f"the circuit is one of {circuit.graph}, but model {model.name!r} has {model.graph}")
    pruned = [circuit.prune() for circuit in circuits]
    size = choose_batch_size(batch_size, circuit_bytes(model.graph, task.longest), memory)
    batches = plan_batches(task.examples, size)
    plans = tuple(plan_circuit(c) if 0 < c.n_edges < c.graph.n_edges else None for c in pruned)
    of_model = tuple(of_model)
    is_full = tuple(circuit.n_edges > 0 for circuit in pruned)
    found = np.empty((2 + len(of_model) + len(circuits), len(task)))
    with showing(progress) as report:
        each, done = max(1, len(circuits)), 0
        report("evaluate", 0, len(task) * each)

        def tick(circuits_done: int) -> None:
            # The batch at hand counts as a whole one, which it is unless it had to be halved.
            ahead = min(size, len(task) - done) * circuits_done
            report("evaluate", done * each + ahead, len(task) * each)

        job = EvaluateJob(metric, ablation.prepare(model, task, batches), plans, is_full, of_model, tick)
        for rows, values in run_batches(model, task.examples, batches, job):
            found[:, rows] = values
            done += len(rows)
            report("evaluate", done * each, len(task) * each)
    full, empty, *further = found[: 2 + len(of_model)]
    names = [one.name for one in of_model]
    return Evaluation(metric, ablation, found[2 + len(of_model) :], full, empty, dict(zip(names, further, strict=True)))
