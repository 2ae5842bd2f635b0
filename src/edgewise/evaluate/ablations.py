"""Ablations: what a destination reads in place of a source that is outside the circuit.

Torch is imported where it is used, so that the command line can list ablations without waiting for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import InputError
from ..method import Method

if TYPE_CHECKING:
    from torch import Tensor

    from ..models import Model
    from ..models.forward import Trace
    from ..models.prepare import Prepared
    from ..runtime.engine import Engine
    from ..tasks import Example, Task


class Ablation(Method, ABC):
    """What replaces edges outside a circuit. Derive from it for an ablation of one's own.

    shares_prefix  whether runs agree up to the first token in which the prompts differ
    """

    shares_prefix: ClassVar[bool] = False

    def prepare(self, model: Model, task: Task, batches: Sequence[Sequence[int]], engine: Engine) -> Ablation:
        """The ablation once it has seen the task, for those that must; by default, as it is."""
        return self

    @abstractmethod
    def reference(self, batch: Prepared) -> Trace:
        """The run whose sources stand in for those outside the circuit."""


@dataclass(frozen=True)
class Patching(Ablation):
    """The source's output on the corrupted prompt."""

    name: ClassVar[str] = "patching"
    shares_prefix: ClassVar[bool] = True

    def reference(self, batch: Prepared) -> Trace:
        """The corrupted run."""
        return batch.run(batch.corrupted)


@dataclass(frozen=True)
class Zero(Ablation):
    """Nothing."""

    name: ClassVar[str] = "zero"

    def reference(self, batch: Prepared) -> Trace:
        """A run in which every source gives zeros."""
        n_layers, nothing = batch.model.graph.n_layers, batch.clean * 0
        heads = batch.clean.new_zeros((*batch.clean.shape[:2], batch.model.graph.n_heads, batch.model.d_head))
        return batch.run_from_sources(nothing, [heads] * n_layers, [nothing] * n_layers)


@dataclass(frozen=True)
class Mean(Ablation):
    """The source's mean output over all positions of the task's clean prompts."""

    name: ClassVar[str] = "mean"
    positional: ClassVar[bool] = False

    def prepare(self, model: Model, task: Task, batches: Sequence[Sequence[int]], engine: Engine) -> Ablation:
        """With the means, which take one more run of the clean prompts."""
        return Means(_means(model, task, batches, engine, self.positional))

    def reference(self, batch: Prepared) -> Trace:
        """Not without a task: means are taken by `prepare`."""
        raise InputError(
            f"ablation {self.name!r} takes means over a task; call prepare(model, task, batches, engine) first"
        )


@dataclass(frozen=True)
class PositionalMean(Mean):
    """The source's mean output at the same position of the task's clean prompts."""

    name: ClassVar[str] = "positional-mean"
    positional: ClassVar[bool] = True


ABLATIONS: dict[str, type[Ablation]] = {one.name: one for one in (Patching, Zero, Mean, PositionalMean)}


@dataclass(frozen=True, eq=False)
class Means(Ablation):
    """Means that are known: per source of a `Trace` (embedding, then mixes, then MLPs) [position, ...]."""

    means: tuple[Tensor, ...]

    def reference(self, batch: Prepared) -> Trace:
        """A run in which every source gives its mean."""
        positions, dtype = batch.frame.positions, batch.clean.dtype
        here = [mean[positions.to(mean.device)].to(dtype) for mean in self.means]
        n_layers = batch.model.graph.n_layers
        return batch.run_from_sources(here[0], here[1 : 1 + n_layers], here[1 + n_layers :])


def _means(
    model: Model, task: Task, batches: Sequence[Sequence[int]], engine: Engine, positional: bool
) -> tuple[Tensor, ...]:
    """Per source its mean [position, ...], the same at every position unless `positional`."""
    import torch

    from ..runtime.engine import run_batches

    longest = task.longest
    totals: list[Tensor] = []
    count = torch.zeros(longest, device=model.transformer.device)
    for _, (real, sums) in run_batches(engine, model, task.examples, batches, _position_sums, in_order=True):
        width = len(real)
        count[:width] += real
        totals = totals or [one.new_zeros((longest, *one.shape[1:])) for one in sums]
        for total, one in zip(totals, sums, strict=True):
            total[:width] += one
    if positional:
        return tuple(total / count.view(-1, *[1] * (total.ndim - 1)).to(total) for total in totals)
    return tuple((total.sum(0) / count.sum().to(total)).expand_as(total) for total in totals)


def _position_sums(model: Model, examples: Sequence[Example]) -> tuple[Tensor, list[Tensor]]:
    """How many prompts of a batch reach each position, and per source the sum of its outputs there."""
    import torch

    from ..models import make_batch
    from ..models.prepare import prepare
    from ..models.transformer import at_least_float32

    batch = make_batch(examples, model.transformer.device, "right")  # columns are positions
    ready = prepare(model.transformer, batch, share_prefix=False)
    with torch.no_grad():
        trace = ready.run(ready.clean)
        outputs = [at_least_float32(output) for output in (trace.embedding, *trace.mix, *trace.mlp_out)]
        return batch.real.sum(0), [torch.einsum("bp,bp...->p...", batch.real.to(o), o) for o in outputs]
