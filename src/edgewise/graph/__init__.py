"""Graphs: what a circuit can consist of.

`Graph` has a model's edges, `SpanGraph` its edges at spans of tokens, `NodeGraph` its nodes and `NeuronGraph` the
output dimensions of its nodes.
"""

from ..errors import InputError, unknown_name
from .base import LETTERS, BaseGraph, Graph, frozen, size_to_edges
from .levels import NeuronGraph, NodeGraph, SpanGraph

# Kinds of graphs other than `Graph`, by the name in their records. Records of `Graph` have no kind.
KINDS: dict[str, type[BaseGraph]] = {kind.kind: kind for kind in (SpanGraph, NodeGraph, NeuronGraph)}
LEVELS = ("edge", "node", "neuron")


def graph_of_level(plain: Graph, level: str) -> BaseGraph:
    """Return the graph whose circuits consist of a model's edges, nodes or neurons."""
    if level not in LEVELS:
        raise unknown_name("level", level, LEVELS)
    return {"edge": plain, "node": NodeGraph(plain), "neuron": NeuronGraph(plain)}[level]


def check_one_kind(positions: bool, level: str) -> None:
    """Raise InputError for positions of nodes or neurons: only edges have spans."""
    if positions and level != "edge":
        raise InputError(f"positions are of edges, not of {level}s; give one of positions=True and level={level!r}")
