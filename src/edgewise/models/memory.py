"""How many examples fit into memory at once."""

from __future__ import annotations

from .transformer import Transformer

BUDGET = 1_000_000_000
MOST = 64


def scoring_batch_size(model: Transformer, length: int, budget: int = BUDGET) -> int:
    """Examples per batch when scoring: differences of all sources, gradients of a layer, traces of all layers."""
    graph = model.graph
    streams = graph.n_sources + 8 * graph.n_heads + 40 * graph.n_layers
    return _clamp(budget // (4 * streams * length * graph.d_model))


def circuit_batch_size(model: Transformer, length: int, budget: int = BUDGET) -> int:
    """Examples per batch when running circuits: changes of all sources, inputs of the widest layer, two traces."""
    graph = model.graph
    streams = graph.n_sources + 6 * graph.n_heads + 16 * graph.n_layers
    return _clamp(budget // (4 * streams * length * graph.d_model))


def _clamp(examples: int) -> int:
    return max(1, min(MOST, examples))
