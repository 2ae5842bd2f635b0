"""How much memory a batch needs, and how many examples fit into it."""

from __future__ import annotations

from ..graph import Graph

BUDGET = 1_000_000_000
MOST = 64


def scoring_bytes(graph: Graph, length: int) -> int:
    """What scoring one example needs: differences of all sources, gradients of a layer, traces of all layers."""
    streams = graph.n_sources + 8 * graph.n_heads + 40 * graph.n_layers
    return 4 * streams * length * graph.d_model


def circuit_bytes(graph: Graph, length: int) -> int:
    """What running circuits on one example needs: changes of all sources, inputs of a layer, two traces."""
    streams = graph.n_sources + 6 * graph.n_heads + 16 * graph.n_layers
    return 4 * streams * length * graph.d_model


def batch_size(bytes_per_example: int, budget: int = BUDGET) -> int:
    """Examples per batch that fit into a budget of bytes, at least one."""
    return max(1, min(MOST, budget // bytes_per_example))
