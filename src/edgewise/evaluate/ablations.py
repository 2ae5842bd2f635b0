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
    """What an edge outside the circuit carries instead of its source's output. Derive from it for a custom ablation.

    shares_prefix  whether `reference` equals the clean run up to the first token in which the prompts differ
    """

    shares_prefix: ClassVar[bool] = False

    def prepare(self, model: Model, task: Task, batches: Sequence[Sequence[int]], engine: Engine) -> Ablation:
        """Return the ablation with what it needs of the task, such as means; by default, itself."""
        return self

    @abstractmethod
    def reference(self, batch: Prepared) -> Trace:
        """Return the run whose sources replace those outside the circuit."""


@dataclass(frozen=True)
class Patching(Ablation):
    """Replace a source by its output on the corrupted prompt."""

    name: ClassVar[str] = "patching"
    shares_prefix: ClassVar[bool] = True

    def reference(self, batch: Prepared) -> Trace:
        return batch.run(batch.corrupted)


@dataclass(frozen=True)
class Zero(Ablation):
    """Replace a source by zeros."""

    name: ClassVar[str] = "zero"

    def reference(self, batch: Prepared) -> Trace:
        n_layers, zeros = batch.model.graph.n_layers, batch.clean * 0
        heads = batch.clean.new_zeros((*batch.clean.shape[:2], batch.model.graph.n_heads, batch.model.d_head))
        return batch.run_from_sources(zeros, [heads] * n_layers, [zeros] * n_layers)


@dataclass(frozen=True)
class Mean(Ablation):
    """Replace a source by its mean output over all positions of the task's clean prompts."""

    name: ClassVar[str] = "mean"
    positional: ClassVar[bool] = False

    def prepare(self, model: Model, task: Task, batches: Sequence[Sequence[int]], engine: Engine) -> Ablation:
        """Return the ablation with the mean of each source [position, ...], the same everywhere unless `positional`.

        The means take one more run of the clean prompts.
        """
        import torch

        from ..runtime.engine import run_batches

        longest = task.longest
        totals: list[Tensor] = []
        count = torch.zeros(longest, device=model.transformer.device)
        for _, (counts, sums) in run_batches(engine, model, task.examples, batches, _position_sums, in_order=True):
            width = len(counts)
            count[:width] += counts
            totals = totals or [part.new_zeros((longest, *part.shape[1:])) for part in sums]
            for total, part in zip(totals, sums, strict=True):
                total[:width] += part
        if self.positional:
            count.clamp_(min=1)  # positions that no token has
            return Means(tuple(total / count.view(-1, *[1] * (total.ndim - 1)).to(total) for total in totals))
        return Means(tuple((total.sum(0) / count.sum().to(total)).expand_as(total) for total in totals))

    def reference(self, batch: Prepared) -> Trace:
        """Raise InputError: `prepare` computes the means first."""
        raise InputError(
            f"ablation {self.name!r} takes means over a task; call prepare(model, task, batches, engine) first"
        )


@dataclass(frozen=True)
class PositionalMean(Mean):
    """Replace a source by its mean output at the same position of the task's clean prompts."""

    name: ClassVar[str] = "positional-mean"
    positional: ClassVar[bool] = True


DEFAULT_ABLATION = Patching()
ABLATIONS: dict[str, type[Ablation]] = {ablation.name: ablation for ablation in (Patching, Zero, Mean, PositionalMean)}


@dataclass(frozen=True, eq=False)
class Means(Ablation):
    """Replace every source by its given mean.

    means  of the embedding, then of the heads of each layer, then of the MLP of each layer; [position, ...] each
    """

    means: tuple[Tensor, ...]

    def reference(self, batch: Prepared) -> Trace:
        positions, dtype = batch.frame.positions, batch.clean.dtype
        means = [mean[positions.to(mean.device)].to(dtype) for mean in self.means]
        n_layers = batch.model.graph.n_layers
        return batch.run_from_sources(means[0], means[1 : 1 + n_layers], means[1 + n_layers :])


def _position_sums(model: Model, examples: Sequence[Example]) -> tuple[Tensor, list[Tensor]]:
    """Return how many tokens of a batch have each position, and the sum of each source's outputs there."""
    import torch

    from ..models import make_batch
    from ..models.prepare import prepare
    from ..models.transformer import at_least_float32

    prepared = prepare(model.transformer, make_batch(examples, model.transformer.device), share_prefix=False)
    # [example, token, position] Not all tokens stand at their position: there is padding, and both answers begin at the
    # position after the prompt.
    positions = torch.nn.functional.one_hot(prepared.frame.positions) * prepared.batch.real[..., None]
    with torch.no_grad():
        trace = prepared.run(prepared.clean)
        outputs = [at_least_float32(output) for output in (trace.embedding, *trace.mix, *trace.mlp_out)]
        return positions.sum((0, 1)), [torch.einsum("btp,bt...->p...", positions.to(o), o) for o in outputs]
