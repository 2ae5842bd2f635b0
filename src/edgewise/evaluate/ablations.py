"""Ablations: what a destination reads in place of a source that is outside the circuit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models import Batch, Model, make_batch
from ..models.circuits import reference_from_sources
from ..models.forward import Trace
from ..models.prepare import Prepared, prepare
from ..models.transformer import at_least_float32
from ..tasks import Task

Reference = Callable[[Batch, Prepared], Trace]


@dataclass(frozen=True)
class Ablation:
    """prepare: (model, task, batches of rows) -> how to make a batch's reference.

    shares_prefix: whether runs agree up to the first token in which the prompts differ.
    """

    prepare: Callable[[Model, Task, list[list[int]]], Reference]
    shares_prefix: bool


def _patching(model: Model, task: Task, batches: list[list[int]]) -> Reference:
    """The source's output on the corrupted prompt."""
    return lambda batch, ready: ready.run(ready.corrupted)


def _zero(model: Model, task: Task, batches: list[list[int]]) -> Reference:
    """Nothing."""

    def reference(batch: Batch, ready: Prepared) -> Trace:
        width = (*ready.clean.shape[:2], model.graph.n_heads, model.transformer.d_head)
        sources = _sources(
            ready.clean * 0,
            [ready.clean.new_zeros(width)] * model.graph.n_layers,
            [ready.clean * 0] * model.graph.n_layers,
        )
        return reference_from_sources(model.transformer, sources, ready.frame)

    return reference


def _mean(model: Model, task: Task, batches: list[list[int]]) -> Reference:
    """The source's mean output over all positions of the task's clean prompts."""
    return _means(model, task, batches, positional=False)


def _positional_mean(model: Model, task: Task, batches: list[list[int]]) -> Reference:
    """The source's mean output at the same position of the task's clean prompts."""
    return _means(model, task, batches, positional=True)


ABLATIONS: dict[str, Ablation] = {
    "patching": Ablation(_patching, shares_prefix=True),
    "zero": Ablation(_zero, shares_prefix=False),
    "mean": Ablation(_mean, shares_prefix=False),
    "positional-mean": Ablation(_positional_mean, shares_prefix=False),
}


def _means(model: Model, task: Task, batches: list[list[int]], positional: bool) -> Reference:
    longest = max(example.length for example in task.examples)
    totals: list[Tensor] | None = None
    count = torch.zeros(longest, device=model.transformer.device)
    for rows in batches:
        batch = make_batch(task.examples, rows, model.transformer.device)
        ready = prepare(model.transformer, batch, share_prefix=False)
        trace = ready.run(ready.clean)
        real, width = batch.real, batch.real.shape[1]
        count[:width] += real.sum(0)
        outputs = [at_least_float32(output) for output in (trace.embedding, *trace.mix, *trace.mlp_out)]
        sums = [torch.einsum("bp,bp...->p...", real.to(output.dtype), output) for output in outputs]
        if totals is None:
            totals = [one.new_zeros((longest, *one.shape[1:])) for one in sums]
        for total, one in zip(totals, sums, strict=True):
            total[:width] += one
    assert totals is not None
    if positional:
        means = [total / count.view(-1, *[1] * (total.ndim - 1)).to(total.dtype) for total in totals]
    else:
        means = [(total.sum(0) / count.sum().to(total.dtype)).expand_as(total) for total in totals]

    def reference(batch: Batch, ready: Prepared) -> Trace:
        here = [mean[ready.frame.positions].to(ready.clean.dtype) for mean in means]
        n_layers = model.graph.n_layers
        sources = _sources(here[0], here[1 : 1 + n_layers], here[1 + n_layers :])
        return reference_from_sources(model.transformer, sources, ready.frame)

    return reference


def _sources(embedding: Tensor, mix: list[Tensor], mlp_out: list[Tensor]) -> Trace:
    """A trace that says what the sources give, and nothing of what they read."""
    return Trace(embedding, (), (), (), (), tuple(mix), (), tuple(mlp_out), embedding)
