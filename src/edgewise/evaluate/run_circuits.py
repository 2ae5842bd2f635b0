"""evaluate_circuits: the metric of circuits on every example of a task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.circuit import Circuit, masks_digest
from ..errors import InputError
from ..graph import BaseGraph, SpanGraph
from ..method import check_is
from ..models import Model, make_batch, plan_batches
from ..models.memory import BUDGET, choose_batch_size, circuit_need, parse_bytes
from ..models.prepare import prepare
from ..models.torch_modes import default_torch_modes
from ..runtime.engine import Engine, WorkItem, choose_item_size
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Columns
from ..runtime.unit_keys import unit_key
from ..tasks import DEFAULT_METRIC, Example, Metric, Task, check_examples
from .ablations import DEFAULT_ABLATION, Ablation
from .measures import faithfulness

FloatArray = NDArray[np.float64]
# Circuits are split into groups until there are 8 work items, but each group has at least 25 circuits.
MIN_ITEMS, MIN_GROUP = 8, 25
# The text of a result shows the means of this many circuits or knock-outs.
SHOWN_MEANS = 5


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

    @property
    def faithfulness(self) -> FloatArray:
        """[circuit] MIB's faithfulness: 0 for the empty circuit, 1 for the model."""
        return faithfulness(self.values.mean(1), self.full.mean(), self.empty.mean())

    def __repr__(self) -> str:
        circuits, examples = self.values.shape
        shape = f"{circuits:,} circuit{'s' * (circuits != 1)} x {examples:,} examples"
        means = ", ".join(f"{mean:.4g}" for mean in self.values[:SHOWN_MEANS].mean(1)) + ", ..." * (
            circuits > SHOWN_MEANS
        )
        model = f"model {self.full.mean():.4g}, empty circuit {self.empty.mean():.4g}"
        circuits_text = f", circuits {means}" if circuits else ""
        return f"Evaluation({shape}, {self.metric.name}, {self.ablation.name}; means: {model}{circuits_text})"


@dataclass(frozen=True, eq=False)
class EvaluateJob:
    """A job: the metric of circuits on a batch.

    circuits  pruned. Equal ones run once, and several at a time: as many as fit into `memory` bytes
    of_model  further metrics of the whole model
    """

    metric: Metric
    ablation: Ablation
    circuits: tuple[Circuit, ...]
    of_model: tuple[Metric, ...]
    memory: int = BUDGET

    def __call__(self, model: Model, examples: Sequence[Example]) -> FloatArray:
        """Return [row, example]: the metric of the model, of the empty circuit, `of_model`, and of every circuit."""
        transformer, all_logits = model.transformer, self.metric.reads_all_logits
        with torch.no_grad():
            batch = prepare(transformer, make_batch(examples, transformer.device), self.ablation.shares_prefix)
            reference = self.ablation.reference(batch)
            run = batch.run(batch.clean)
            clean = batch.read_out(run, all_logits)
            readout = batch.read_out(run, True) if self.of_model else clean
            full = self.metric.checked(clean, clean)
            empty = self.metric.checked(batch.read_out(reference, all_logits), clean)
            rows = [full, empty, *(metric.checked(readout, readout) for metric in self.of_model)]
            values = dict[Circuit, torch.Tensor]()
            for graph in dict.fromkeys(circuit.graph for circuit in self.circuits):
                if not (nothing := Circuit.empty(graph)).plain().n_edges:  # unscored nodes are in every circuit
                    values[nothing] = empty
                values[Circuit.full(graph)] = full
                distinct = dict.fromkeys(circuit for circuit in self.circuits if circuit.graph == graph)
                left = [circuit for circuit in distinct if circuit not in values]
                for circuit, stream in zip(left, batch.run_circuits(left, reference, self.memory), strict=True):
                    values[circuit] = self.metric.checked(batch.read_stream(stream, all_logits), clean)
            rows += [values[circuit] for circuit in self.circuits]
            return torch.stack(rows).cpu().double().numpy()


@default_torch_modes()
def evaluate_circuits(
    model: Model,
    task: Task,
    circuits: Sequence[Circuit],
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    *,
    of_model: Sequence[Metric] = (),
    rows: Iterable[int] | None = None,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Evaluation:
    """Run circuits on every example of a task, or on some of them.

    All circuits of a batch share its clean and its reference run. The full circuit is the model and the empty one is
    the reference, so neither runs again. Changing the batches, or where they run, changes no result beyond rounding.
    With a store in the session, a stopped call resumes after the last finished batch.

    Parameters
    ----------
    model, task
        The model, and the examples to run it on.
    circuits
        They are pruned first.
    metric
        Number per example; by default the one that suits the task.
    ablation
        What replaces the edges outside a circuit.
    of_model
        Further metrics of the whole model, which need no further run.
    rows
        The places of the examples to run; all by default. Means that an ablation takes are those of the whole task.
    batch_size, memory
        As in `score_edges`.
    session
        Store, engine and progress. Progress is reported as ("evaluate", done, total) in examples times circuits.

    Returns
    -------
    Evaluation
        Values [circuit, example], in the order of the task, or of `rows`.

    Raises
    ------
    InputError
        If a circuit is of another graph than the model's, or of other spans than the task's; if a metric is NaN or
        infinite, as it is where half precision overflows.
    """
    for each in (metric, *of_model):
        check_is("metric", Metric, each)
    check_is("ablation", Ablation, ablation)
    check_is("session", Session, session)
    check_examples(model, task)
    metric = metric.for_task(task)
    model, whole = model.pin(), task
    rows = None if rows is None else list(rows)
    for place in rows or ():
        if not isinstance(place, Integral) or isinstance(place, bool) or not 0 <= place < len(whole):
            raise InputError(
                f"rows are the places of examples, whole numbers from 0 to {len(whole) - 1} for task {whole.name!r}, "
                f"but {place!r} was given"
            )
    task = whole if rows is None else whole.part([int(place) for place in rows])
    if not isinstance(circuits, Sequence) or not all(isinstance(circuit, Circuit) for circuit in circuits):
        raise InputError(
            "circuits come in a list, even a single one: [circuit]; what `solve` returns has one as `.circuit`"
        )
    for graph in dict.fromkeys(circuit.graph for circuit in circuits):
        check_graph(graph, model, task)
    size = _choose_size(model, task, batch_size, memory, session.engine)
    pruned = tuple(circuit.prune() for circuit in circuits)
    job = EvaluateJob(metric, ablation, pruned, tuple(of_model), parse_bytes(memory))
    key = "" if session.store.folder is None else _key(model, whole, rows, job, size, session.engine)
    unit = session.store.find(key)
    if unit is None:
        batches, n_circuits, n_model = plan_batches(task.examples, size), len(pruned), 2 + len(of_model)
        columns: Columns = {"metric": ((n_model + n_circuits,), np.float64)}  # [example, row] with the rows of the job
        with session.store.open_partial(key, len(task), columns) as partial, session.reporting() as reporting:
            per_example = max(1, n_circuits)
            done, total = partial.n_done * per_example, len(task) * per_example
            reporting.report("evaluate", done, total)
            all_batches = batches if rows is None else plan_batches(whole.examples, size)
            prepared = replace(job, ablation=ablation.prepare(model, whole, all_batches, session.engine))
            groups = circuit_groups(session.engine, model, n_circuits, len(batches))
            jobs = [replace(prepared, circuits=pruned[group]) for group in groups]
            missing = [list(rows) for rows in batches if partial.is_missing(rows)]
            new_values = [np.empty((n_model + n_circuits, len(rows))) for rows in missing]
            n_left = [per_example * len(rows) for rows in missing]
            items = [WorkItem(each, [task.examples[row] for row in rows]) for rows in missing for each in jobs]
            for index, parts in session.engine.run(model, items, n_items_in_all=len(batches) * len(groups)):
                batch, group = index // len(groups), groups[index % len(groups)]
                for examples, part in parts:
                    # Every group has the rows of the model.
                    new_values[batch][:n_model, examples] = part[:n_model]
                    new_values[batch][n_model + group.start : n_model + group.stop, examples] = part[n_model:]
                n_done = max(1, group.stop - group.start) * len(missing[batch])
                n_left[batch] -= n_done
                if not n_left[batch]:
                    partial.write_rows(missing[batch], metric=new_values[batch].T)
                done += n_done
                reporting.report("evaluate", done, total)
            unit = session.store.finish(key, partial)
    is_wrong = ~np.isfinite(unit.arrays["metric"]).all(1)
    if is_wrong.any():  # means and faithfulness would hide which value it is
        session.store.delete(key)
        raise InputError(
            f"the metric {metric.name!r} of the model or of a circuit is NaN or infinite on {int(is_wrong.sum()):,} of "
            f"the {len(task):,} examples of task {task.name!r}, the first is number {int(is_wrong.argmax()) + 1}; "
            "check the model's dtype (try dtype='float32')"
        )
    full, empty, *rest = np.ascontiguousarray(unit.arrays["metric"].T)
    model_values = {further.name: values for further, values in zip(of_model, rest, strict=False)}
    values = np.array(rest[len(of_model) :]).reshape(-1, len(task))
    return Evaluation(metric, ablation, values, full, empty, model_values)


@default_torch_modes()
def prepare_ablation(
    model: Model,
    task: Task,
    ablation: Ablation,
    *,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Ablation:
    """Return the ablation with what it needs of the task, such as means.

    `evaluate_circuits` takes it in place of the ablation. If it is called several times, means are computed once.
    """
    check_examples(model, task)
    model = model.pin()
    size = _choose_size(model, task, batch_size, memory, session.engine)
    return ablation.prepare(model, task, plan_batches(task.examples, size), session.engine)


def _choose_size(model: Model, task: Task, batch_size: int | None, memory: int | str, engine: Engine) -> int:
    """Return how many examples a batch has."""
    fits = choose_batch_size(batch_size, circuit_need(model.transformer.shape, task.longest), memory)
    return batch_size or choose_item_size(engine, model, model.transformer.device, fits, len(task))


def check_graph(graph: BaseGraph, model: Model, task: Task) -> None:
    """Raise InputError if circuits of a graph can't run: it is another model's, or its spans aren't the task's."""
    if graph.plain != model.graph:
        raise InputError(f"the circuit is one of {graph.plain}, but model {model.name!r} has {model.graph}")
    if isinstance(graph, SpanGraph) and graph.spans != task.span_names:
        raise InputError(
            f"the circuit has the spans {', '.join(graph.spans)}, but task {task.name!r} has "
            f"{', '.join(task.span_names) or 'none'}; run it on a task of the same spans"
        )


def _key(model: Model, task: Task, rows: Sequence[int] | None, job: EvaluateJob, size: int, engine: Engine) -> str:
    """Return the key of the values. Changing the batches, or the circuits that run at once, changes rounding."""
    masks, n_examples = masks_digest(job.circuits), len(task if rows is None else rows)
    batches = (size, job.memory, len(circuit_groups(engine, model, len(job.circuits), -(-n_examples // size))))
    how = (job.metric, job.ablation, job.of_model)
    kinds = [repr(circuit.graph) for circuit in job.circuits if circuit.graph != model.graph]
    kind: dict[str, Any] = {"graphs": kinds, "spans": task.span_digest} if kinds else {}
    if rows is not None:
        kind["rows"] = [*map(int, rows)]
    return unit_key("values", model=model.digest, task=task.digest, how=how, circuits=masks, batches=batches, **kind)


def circuit_groups(engine: Engine, model: Model, circuits: int, batches: int) -> list[slice]:
    """Split circuits into groups, so that all workers have work items. Each group runs the model once more.

    On a CPU the groups don't depend on the engine: which circuits run at once changes rounding.
    """
    if model.transformer.device.type == "cpu":
        groups = min(circuits // MIN_GROUP, math.ceil(MIN_ITEMS / batches))
    else:
        groups = min(circuits, math.ceil(engine.workers(model) / batches))
    ends = [round(circuits * part / max(1, groups)) for part in range(max(1, groups) + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]
