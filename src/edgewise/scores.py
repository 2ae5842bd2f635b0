"""Edge scores with their example axis, and where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .graph import Graph

CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores of every edge for every example; the score of a data set is the mean over its examples.

    values      [example, edge]; may be memory-mapped. A single row is a data set's mean from elsewhere.
    provenance  model, task, method and settings that they were made with
    """

    graph: Graph
    values: NDArray[np.floating]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 2 or values.shape[1] != self.graph.n_edges or values.shape[0] < 1:
            raise InputError(
                f"scores have shape {values.shape}, but [example, edge] with {self.graph.n_edges} edges is expected"
            )
        for columns in column_chunks(values.shape):
            wrong = ~np.isfinite(values[:, columns])
            if wrong.any():
                example, edge = (int(i[0]) for i in np.nonzero(wrong))
                name = self.graph.edge_names[columns.start + edge]
                raise InputError(
                    f"{int(wrong.sum())} scores are NaN or infinite, the first of edge {name}, example {example}; "
                    "scores must be finite: check the model's dtype (try --dtype float32) or the file"
                )
        view = values.view()
        view.setflags(write=False)
        object.__setattr__(self, "values", view)
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    @property
    def n_examples(self) -> int:
        """The number of examples."""
        return self.values.shape[0]

    def mean(self) -> NDArray[np.float64]:
        """[edge] the score of the data set."""
        means = np.empty(self.graph.n_edges)
        for columns in column_chunks(self.values.shape):
            means[columns] = self.values[:, columns].mean(0, dtype=np.float64)
        return means


def column_chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of the edge axis, such that [example, slice] fits comfortably in memory."""
    examples, edges = shape
    step = max(1, CHUNK_BYTES // (8 * examples))
    for first in range(0, edges, step):
        yield slice(first, min(first + step, edges))
