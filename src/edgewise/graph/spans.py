"""SpanGraph: edges at spans of token positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, unknown_name
from .base import BaseGraph, Graph, freeze

MAX_SPANS = 1000


@dataclass(frozen=True)
class SpanGraph(BaseGraph):
    """Pairs of an edge and a span: circuits whose edges act at some token positions only.

    A task names spans: groups of positions that correspond between prompts, such as the first subject. A circuit with
    the pair (edge, span) reads the edge's source at the positions of that span; elsewhere the edge gives the reference.

    A pair has the index `edge * n_spans + span` and a name such as `input->a0.h1<q>@S1`.

    An MLP works on each position alone, so its node exists once per span: `m3@S1` needs a pair in and a pair out, both
    at S1. Attention moves information between positions, so a head is one node that joins all spans: it needs a pair
    in at any span and a pair out at any span. `input` and `logits` are one node each. So again a circuit in which every
    used node has an edge in and an edge out has all its nodes on paths from input to logits.
    """

    plain: Graph
    spans: tuple[str, ...]

    kind: ClassVar[str] = "spans"
    level: ClassVar[str] = "edge"
    unit: ClassVar[str] = "(edge, span) pair"

    def __post_init__(self) -> None:
        if not isinstance(self.plain, Graph):
            raise InputError(f"spans are those of a plain graph, not of a {type(self.plain).__name__}")
        if isinstance(self.spans, str) or not isinstance(self.spans, Sequence):
            raise InputError(f"spans are a sequence of names, not {type(self.spans).__name__}")
        object.__setattr__(self, "spans", tuple(self.spans))
        if not 1 <= len(self.spans) <= MAX_SPANS:
            raise InputError(f"a graph has 1 to {MAX_SPANS:,} spans, not {len(self.spans):,}")
        if not all(isinstance(name, str) and name and name.isprintable() for name in self.spans):
            raise InputError("the names of spans must be printable text that isn't empty")
        if len(set(self.spans)) < len(self.spans):
            raise InputError(f"the names of spans must differ: {', '.join(self.spans)[:100]}")

    @property
    def n_spans(self) -> int:
        """The number of spans."""
        return len(self.spans)

    @property
    def n_edges(self) -> int:
        return self.plain.n_edges * self.n_spans

    @property
    def n_nodes(self) -> int:
        """The number of nodes: input, heads, MLPs at each span, logits."""
        return self.plain.n_nodes + self.plain.n_layers * (self.n_spans - 1)

    @cached_property
    def plain_node(self) -> NDArray[np.int32]:
        return freeze(np.repeat(np.arange(self.plain.n_nodes, dtype=np.int32), self._copies))

    @cached_property
    def _copies(self) -> NDArray[np.int32]:
        """[plain node] How many nodes it has here: MLPs have one per span."""
        copies = np.ones(self.plain.n_nodes, np.int32)
        copies[[self.plain.mlp_source(layer) for layer in range(self.plain.n_layers)]] = self.n_spans
        return copies

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes: MLPs have their span, such as `m3@S1`."""
        names: list[str] = []
        for name, n_copies in zip(self.plain.node_names, self._copies.tolist(), strict=True):
            names += [f"{name}@{span}" for span in self.spans] if n_copies > 1 else [name]
        return tuple(names)

    def _nodes(self, plain_nodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the node [pair] of each edge's node [edge], at every span."""
        first = np.cumsum(self._copies, dtype=np.int32) - self._copies
        nodes = np.repeat(first[plain_nodes], self.n_spans)
        at_span = np.outer(self._copies[plain_nodes] > 1, np.arange(self.n_spans, dtype=np.int32))
        nodes += at_span.ravel().astype(np.int32, copy=False)
        return freeze(nodes)

    @cached_property
    def edge_source(self) -> NDArray[np.int32]:
        return self._nodes(self.plain.edge_source)

    @cached_property
    def edge_target(self) -> NDArray[np.int32]:
        return self._nodes(self.plain.edge_target)

    def edge_name(self, edge: int) -> str:
        """Return the name of a pair, such as `input->a0.h1<q>@S1`."""
        plain_edge, span = divmod(int(edge), self.n_spans)
        return f"{self.plain.edge_name(plain_edge)}@{self.spans[span]}"

    def edge_index(self, name: str) -> int:
        edge, _, span = name.partition("@")
        return self.plain.edge_index(edge) * self.n_spans + self._span_index(span)

    def edges_of(self, name: str) -> NDArray[np.intp]:
        """Return the pairs of an edge, or those out of a node: at one span with a name such as `m3@S1`, else at all."""
        plain_name, at, span = name.partition("@")
        spans = [self._span_index(span)] if at else range(self.n_spans)
        return (self.plain.edges_of(plain_name)[:, None] * self.n_spans + np.array(spans)).ravel()

    def _span_index(self, span: str) -> int:
        if span not in self.spans:
            raise unknown_name("span", span, self.spans)
        return self.spans.index(span)

    def plain_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which edges [edge] have at least one span in a mask [pair]."""
        return np.logical_or.reduce(np.asarray(mask).reshape(-1, self.n_spans), 1)

    def plain_score(self, score: NDArray[Any]) -> NDArray[Any]:
        """Return the scores [edge]: the sums over spans."""
        return np.add.reduce(np.asarray(score).reshape(-1, self.n_spans), 1)

    def from_plain(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the value of a pair's edge, for every pair [pair]: a mask [edge] becomes the mask of all its pairs."""
        return np.repeat(values, self.n_spans)

    def __str__(self) -> str:
        return f"{self.plain}, {self.n_spans} spans: {', '.join(self.spans)[:200]}"
