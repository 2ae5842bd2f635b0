"""Exact patching: the effect of leaving out one edge at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..method import check_is
from ..models.memory import Need, Shape, circuits_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer
from .eap import EapIg

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class Exact(Scorer):
    """The metric of the model minus that of the circuit of all edges (or nodes, or neurons) but one.

    best  how many edges to patch: those with the largest absolute mean score by the scorer `of` on all examples. The
          others score 0, so they rank last by absolute value. None patches all edges, which takes one run per edge
          and example.
    """

    name: ClassVar[str] = "exact"
    by_span: ClassVar[bool] = False
    max_edges: ClassVar[int | None] = 2000  # it runs the model once per edge
    best: int | None = None
    of: Scorer = field(default_factory=EapIg)

    def __post_init__(self) -> None:
        check_is("scorer", Scorer, self.of)
        if self.best is not None and self.best < 1:
            raise InputError(f"exact patching needs at least 1 edge, not best={self.best}")

    def check(self, metric: Metric) -> None:
        """Raise InputError if the scorer that chooses the edges can't use the metric."""
        if self.best is not None:
            self.of.check(metric)

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of several circuits."""
        return circuits_need(shape, length)

    @property
    def first_scorer(self) -> Scorer | None:
        """The scorer that chooses the edges."""
        return None if self.best is None else self.of

    def with_first_scores(self, mean: NDArray[np.float64]) -> Scorer:
        """Return the scorer of the best edges by `mean` [edge]; equal ones in the order of edges."""
        order = np.argsort(-np.abs(mean), kind="stable")[: self.best]
        return ExactEdges(tuple(np.sort(order).tolist()))

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        if self.best is not None:
            raise InputError(f"exact patching of the best {self.best} edges reads all examples: call score_edges")
        return ExactEdges(tuple(range(batch.graph.n_edges))).score(batch, metric)


@dataclass(frozen=True)
class ExactEdges(Scorer):
    """Exact patching of given edges, one at a time. All others score 0."""

    edges: tuple[int, ...]

    def check(self, metric: Metric) -> None:
        """Accept every metric: no gradient is needed."""

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of several circuits."""
        return circuits_need(shape, length)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        """Run the circuits of all edges but one, several at a time."""
        import torch

        with torch.no_grad():
            reference, all_logits, graph = batch.run(batch.corrupted), metric.reads_all_logits, batch.graph
            clean = batch.read_out(batch.run(batch.clean), all_logits)
            full = metric.checked(clean, clean)
            values = batch.clean.new_zeros((len(full), graph.n_edges), dtype=full.dtype)
            everything = np.ones(graph.n_edges, bool)
            circuits = []
            for edge in self.edges:
                mask = everything.copy()
                mask[edge] = False
                circuits.append(Circuit(graph, mask).prune())
            shape, (n_examples, length, _) = batch.model.shape, batch.clean.shape
            budget = self.need(shape, length).total(n_examples)
            for edge, stream in zip(self.edges, batch.run_circuits(circuits, reference, budget), strict=True):
                values[:, edge] = full - metric.checked(batch.read_stream(stream, all_logits), clean)
            corrupted = metric.checked(batch.read_out(reference, all_logits), clean)
            return BatchScores(values, full, corrupted)
