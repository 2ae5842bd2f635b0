"""Graphs: what a circuit can consist of. `Graph` has a model's edges, `SpanGraph` its edges at spans of tokens."""

from .base import LETTERS, BaseGraph, Graph, frozen, size_to_edges
from .spans import SpanGraph

# Kinds of graphs other than `Graph`, by the name in their records. Records of `Graph` have no kind.
KINDS: dict[str, type[BaseGraph]] = {kind.kind: kind for kind in (SpanGraph,)}
