"""The outputs of all sources of a run, and their differences between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .forward import Trace
from .gradients import NormSlope
from .transformer import Transformer, at_least_float32


@dataclass(frozen=True, eq=False)
class Sources:
    """A vector per source and position, at least float32.

    parts  [batch, source, position, d_model] consecutive sources; one part per range of layers on one device
    """

    parts: tuple[Tensor, ...]

    def view(self, first: int, count: int) -> Tensor:
        """Return a view [batch, source, position, d_model] of `count` sources, all in one part."""
        for part in self.parts:
            if first < part.shape[1]:
                return part[:, first : first + count]
            first -= part.shape[1]
        raise IndexError(f"there is no source {first} after the last one")


def norm_heads(model: Transformer, sources: Sources, post_norms: Sequence[NormSlope]) -> Sources:
    """Return changes of sources with those of heads after the norm that follows attention, to first order."""
    if not post_norms:
        return sources
    normed, n_heads = Sources(tuple(part.clone() for part in sources.parts)), model.graph.n_heads
    for index, slope in enumerate(post_norms):
        first = model.graph.attention_sources(index)
        normed.view(first, n_heads)[:] = slope.times(sources.view(first, n_heads))
    return normed


def stack_sources(model: Transformer, trace: Trace, minus: Trace | None = None) -> Sources:
    """Return the outputs of all sources of a run, minus those of another run, before any norm after attention."""

    def read(name: str, index: int | slice) -> Tensor:
        values = at_least_float32(getattr(trace, name)[index])
        # The runs are similar, so a half-precision difference would have few digits.
        return values if minus is None else values - at_least_float32(getattr(minus, name)[index])

    graph, (batch, length, width) = model.graph, trace.embedding.shape
    with torch.no_grad():
        embedding = read("embedding", slice(None))
        counts = [len(span) * (graph.n_heads + 1) for span in model.spans]
        counts[0] += 1  # `input`
        parts = [
            embedding.new_empty((batch, count, length, width), device=model.layers[span.start].device)
            for count, span in zip(counts, model.spans, strict=True)
        ]
        sources = Sources(tuple(parts))
        sources.view(0, 1)[:, 0] = embedding
        for index, layer in enumerate(model.layers):
            heads = torch.einsum("bphe,dhe->bhpd", read("mix", index), at_least_float32(layer.out))
            sources.view(graph.attention_sources(index), graph.n_heads)[:] = heads
            sources.view(graph.mlp_source(index), 1)[:, 0] = read("mlp_out", index)
    return sources
