"""Information flow routes: the share of each source in what a destination reads. No gradient, no counterfactual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, flow_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.forward import Trace
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class InformationFlowRoutes(Scorer):
    """The share of each source in the input of a destination (Ferrando and Voita 2024, arXiv 2403.00824).

    At a position of the clean run, the proximity of a source with output z to a destination with input x is
    max(0, |x| - |x - z|), with L1 norms. A source's share is its proximity divided by the sum over all sources of the
    destination. The score is the mean share over all real positions; a prefix that both prompts share counts, too.

    All heads of a layer read the same stream, so edges from one source to their q, k and v have equal scores. If a norm
    follows attention, a head's output is its part of what the norm returns. The corrupted prompt and the metric
    are only recorded, not used for scores.
    """

    name: ClassVar[str] = "information-flow-routes"
    by_span: ClassVar[bool] = False
    levels: ClassVar[tuple[str, ...]] = ("edge",)

    def check(self, metric: Metric) -> None:
        """Accept every metric: no gradient is needed."""

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of one run and the outputs of all sources."""
        return flow_need(shape, length)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Run the clean prompt with all positions."""
        import torch

        with torch.no_grad():
            runs = (batch.run(embedding) for embedding in (batch.clean, batch.corrupted))
            clean, corrupted = (batch.read_out(run, metric.reads_all_logits) for run in runs)
            whole = batch.with_all_positions()
            values = _edge_shares(whole, whole.run(whole.clean))
            return BatchScores(values, metric.checked(clean, clean), metric.checked(corrupted, clean))


def _edge_shares(batch: Prepared, trace: Trace) -> Tensor:
    """Return the mean shares [example, edge] of a run of all positions."""
    import torch

    graph, real = batch.model.graph, batch.batch.real
    # One reader for the heads of a layer, one for its MLP, and the logits.
    streams = [stream for layer in zip(trace.attention_in, trace.mlp_in, strict=True) for stream in layer]
    readers = torch.stack([stream.to(batch.clean.device) for stream in (*streams, trace.final)], 2)
    parts = []
    for sources in batch.sources(trace).parts:
        moved = readers.to(sources)
        distance = torch.cdist(sources.transpose(1, 2).contiguous(), moved, p=1)
        parts.append((moved.abs().sum(-1)[:, :, None] - distance).clamp(min=0).to(readers.device))
    proximity = torch.cat(parts, 2)  # [example, position, source, reader]
    blocks = []
    for reader, block in enumerate(graph.blocks):
        n_sources = graph.n_sources
        if reader < 2 * graph.n_layers:
            n_sources = (graph.n_mlp_sources if reader % 2 else graph.n_attention_sources)(reader // 2)
        share = proximity[:, :, :n_sources, reader]
        total = share.sum(-1, keepdim=True).clamp(min=torch.finfo(share.dtype).tiny)
        mean = (share / total * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
        blocks.append(mean.repeat_interleave((block.stop - block.start) // n_sources, 1))
    return torch.cat(blocks, 1)
