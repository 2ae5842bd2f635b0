"""Edge scores per example, and their folder: `scores.npy` [example, edge] and `scores.json`, which says of what."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph
from ..io.arrays import read_array, write_array
from ..io.atomic import SCORE_FILES, atomic_folder, write_json
from ..io.formats import check_level, read_edge_file
from ..io.records import convert_record, read_versioned_json
from .notebook import MAX_ROWS, data_frame, edge_columns, html_table

if TYPE_CHECKING:
    from pandas import DataFrame

CHUNK_BYTES = 64 * 2**20
SCORES_FORMAT, SCORES_VERSION = "edgewise-scores", 1


class ScoresRecord(TypedDict):
    """The content of scores.json."""

    graph: BaseGraph
    examples: int
    provenance: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores of every edge on every example. The score of a data set is the mean over its examples.

    values      [example, edge], perhaps memory-mapped. A file of another tool has one row, the mean over its data set.
    provenance  model, task, method and settings that made the scores
    """

    graph: BaseGraph
    values: NDArray[np.floating]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = np.asanyarray(self.values)
        if values.ndim != 2 or values.shape[1] != self.graph.n_edges or values.shape[0] < 1:
            raise InputError(
                f"scores have shape {values.shape}, but [example, edge] with {self.graph.n_edges} edges is expected"
            )
        for columns in column_chunks(values.shape):
            wrong = ~np.isfinite(values[:, columns])
            if wrong.any():
                example, edge = (int(i[0]) for i in np.nonzero(wrong))
                name = self.graph.edge_name(columns.start + edge)
                raise InputError(
                    f"{int(wrong.sum())} scores are NaN or infinite, the first of edge {name}, example {example}; "
                    "scores must be finite: check the model's dtype (try dtype='float32') or the file"
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
        """Return the score [edge] of the data set."""
        means = np.empty(self.graph.n_edges)
        for columns in column_chunks(self.values.shape):
            means[columns] = self.values[:, columns].mean(0, dtype=np.float64)
        return means

    @cached_property
    def digest(self) -> str:
        """A hash of the values."""
        digest = hashlib.sha256(repr((self.graph, self.values.shape, str(self.values.dtype))).encode())
        for row in self.values:
            digest.update(np.ascontiguousarray(row).tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, path: str | Path, level: str | None = None) -> EdgeScores:
        """Return the scores of a folder made by `edgewise score` or `edgewise run`, or of an EAP-IG json or pt.

        `level` says which scores of a file to read, of edges, nodes or neurons. By default those that it is about.

        Arrays of folders are memory-mapped. Files have no example axis: their scores are one row.
        """
        path = Path(path)
        if not os.path.isdir(path) and path.suffix:
            content = read_edge_file(path, level)
            return cls(content.graph, content.require_scores()[None], {"file": path.name})
        folder = path / "scores" if os.path.isdir(path / "scores") else path
        if not os.path.isfile(folder / "scores.json"):
            raise InputError(
                f"{path} holds no scores; give a folder made by `edgewise score` or `edgewise run`, or an EAP-IG json "
                "or pt"
            )
        about = read_versioned_json(folder / "scores.json", SCORES_FORMAT, SCORES_VERSION)
        record = convert_record(ScoresRecord, about, str(folder / "scores.json"))
        check_level(path, record["graph"], level)
        values = read_array(folder / "scores.npy", "f", (record["examples"], record["graph"].n_edges))
        try:
            return cls(record["graph"], values, record["provenance"])
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder of scores atomically."""
        with atomic_folder(Path(folder), overwrite, SCORE_FILES) as draft:
            fill_folder(draft, self)

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with a row per edge: edge, source, destination, input; mean, sd over examples."""
        spread = np.full(self.graph.n_edges, np.nan)
        for columns in column_chunks(self.values.shape) if self.n_examples > 1 else ():
            spread[columns] = self.values[:, columns].std(0, ddof=1, dtype=np.float64)
        return data_frame(edge_columns(self.graph, range(self.graph.n_edges)) | {"mean": self.mean(), "sd": spread})

    def _repr_html_(self) -> str:
        mean = self.mean()
        order = np.argsort(-np.abs(mean), kind="stable")[:MAX_ROWS].tolist()
        rows = [(self.graph.edge_name(edge), float(mean[edge])) for edge in order]
        return html_table(repr(self), ("strongest edges", "mean score"), rows, len(mean))

    def __repr__(self) -> str:
        about = ", ".join(str(self.provenance[name]) for name in ("method", "task", "file") if name in self.provenance)
        return f"EdgeScores({self.n_examples:,} examples x {self.graph.n_edges:,} edges{f', {about}' * bool(about)})"


def column_chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of the edge axis such that [example, slice] fits easily into memory."""
    examples, edges = shape
    step = max(1, CHUNK_BYTES // (8 * examples))
    for first in range(0, edges, step):
        yield slice(first, min(first + step, edges))


def fill_folder(folder: Path, scores: EdgeScores) -> None:
    """Write scores into an existing folder."""
    write_array(folder / "scores.npy", scores.values)
    about = {"graph": scores.graph.record(), "examples": scores.n_examples, "provenance": dict(scores.provenance)}
    write_json(folder / "scores.json", {"format": SCORES_FORMAT, "version": SCORES_VERSION} | about)
