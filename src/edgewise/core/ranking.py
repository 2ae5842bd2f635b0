"""A ranking: one value per edge, which selection reads; and combinations of several."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import BaseGraph, frozen
from ..io.arrays import read_array, write_array
from ..io.atomic import SCORE_FILES, atomic_folder, write_json
from ..io.records import convert_record, read_versioned_json

RANKING_FORMAT, RANKING_VERSION = "edgewise-ranking", 1
# Ways to combine rankings.
HOW = ("ranks", "values")
# The name of their method in `origin`.
COMBINED = "combined"


class RankingRecord(TypedDict):
    """The content of ranking.json."""

    graph: BaseGraph
    signed: bool
    origin: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The importance of every edge. `EdgeStatistics` makes rankings; any vector [edge] can be one.

    value      [edge] the signed score, or a value of at least 0 if the ranking has no signs
    signed     whether signs have a meaning: an edge with a positive value helps the task
    kept       [edge] whether an edge passed the filter; None without a filter
    origin     how the ranking was made, as plain data
    resampled  [resample, edge] values from resampled examples; None if they weren't computed
    """

    graph: BaseGraph
    value: NDArray[np.floating]
    signed: bool = True
    kept: NDArray[np.bool_] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    resampled: NDArray[np.floating] | None = None

    def __post_init__(self) -> None:
        value = frozen(self.value, np.float64)
        if value.shape != (self.graph.n_edges,):
            raise InputError(f"a ranking has shape {value.shape}, but the graph has {self.graph.n_edges} edges")
        check_finite(self.graph, "values of a ranking", value)
        if not self.signed and (value < 0).any():
            least = f"the smallest is {value.min():g}, of edge {self.graph.edge_name(int(value.argmin()))}"
            raise InputError(f"a ranking without signs has values of at least 0, but {least}; shift all above 0")
        resampled = self.resampled
        if resampled is not None and resampled.shape[1:] != value.shape:
            shapes = f"shape {resampled.shape}, but [resample, edge] with {self.graph.n_edges} edges is expected"
            raise InputError(f"resampled values of a ranking have {shapes}")
        if resampled is not None and not np.isfinite(resampled).all():
            n_wrong = int((~np.isfinite(resampled)).sum())
            raise InputError(f"{n_wrong} resampled values of a ranking are NaN or infinite; they must be finite")
        if self.kept is not None:
            object.__setattr__(self, "kept", frozen(self.kept, bool))
            if self.kept.shape != value.shape:
                raise InputError(f"kept has shape {self.kept.shape}, but the graph has {self.graph.n_edges} edges")
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "origin", MappingProxyType(dict(self.origin)))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that a selection depends on."""
        digest = hashlib.sha256(repr((self.graph, self.signed)).encode())
        digest.update(self.value.tobytes())
        digest.update(b"" if self.kept is None else np.packbits(self.kept).tobytes())
        return digest.hexdigest()

    def confidence(self, k: int) -> NDArray[np.float64]:
        """Return how often [edge] each edge is among the best k over the resamples. It needs no signs."""
        if self.resampled is None:
            raise InputError("this ranking wasn't resampled; learn it with resamples=10")
        best = np.argsort(-self.resampled, axis=1, kind="stable")[:, :k]
        return np.bincount(best.ravel(), minlength=self.graph.n_edges) / len(self.resampled)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder with `ranking.npy` [1 + resample, edge] and `ranking.json`, atomically.

        If edges were filtered, `kept.npy` [edge] says which passed.
        """
        rows = [self.value[None]] + ([] if self.resampled is None else [self.resampled])
        about = {"graph": self.graph.record(), "signed": self.signed, "origin": dict(self.origin)}
        with atomic_folder(Path(folder), overwrite, SCORE_FILES) as draft:
            write_array(draft / "ranking.npy", np.concatenate(rows))
            if self.kept is not None:
                write_array(draft / "kept.npy", self.kept)
            write_json(draft / "ranking.json", {"format": RANKING_FORMAT, "version": RANKING_VERSION} | about)

    @classmethod
    def load(cls, folder: str | Path) -> Ranking:
        """Return the ranking of a folder that `save` wrote."""
        folder = Path(folder)
        about = read_versioned_json(folder / "ranking.json", RANKING_FORMAT, RANKING_VERSION)
        record = convert_record(RankingRecord, about, str(folder / "ranking.json"))
        values = read_array(folder / "ranking.npy", "f", (None, record["graph"].n_edges))
        if not len(values):
            raise InputError(f"{folder} isn't a complete ranking: ranking.npy has no rows")
        resampled = values[1:] if len(values) > 1 else None
        has_filter = os.path.isfile(folder / "kept.npy")
        passed = read_array(folder / "kept.npy", "b1", (record["graph"].n_edges,)) if has_filter else None
        try:
            return cls(record["graph"], values[0], record["signed"], passed, record["origin"], resampled)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None

    @staticmethod
    def is_folder(path: str | Path) -> bool:
        """Return whether a folder holds a ranking rather than scores."""
        return os.path.isfile(Path(path) / "ranking.json")

    def __repr__(self) -> str:
        return f"Ranking({self.graph.n_edges:,} edges, {'signed' if self.signed else 'without signs'})"


def combine_rankings(
    rankings: Sequence[Ranking],
    how: str = "ranks",
    weights: Sequence[float] | None = None,
    rank: str | None = None,
) -> Ranking:
    """Return the weighted mean of several rankings.

    Parameters
    ----------
    rankings
        Of the same graph.
    how
        'ranks': the mean of sign(value) times the rank of |value|, from 1 / edges for the smallest to 1; tied values
        share their mean rank. 'values': the mean of the values, each ranking divided by its root mean square.
    weights
        One per ranking, at least 0; only their ratios matter. By default all are equal.
    rank
        'absolute' combines absolute values, as CMD wants; the result has no signs. 'signed' combines signed values, as
        CPR wants; an edge of a ranking without signs counts as helpful. By default 'signed' if all rankings have signs.

    Returns
    -------
    Ranking
        Without resampled values. An edge is kept if it passed the filter of every ranking that has one.

    Raises
    ------
    InputError
        If there are no rankings, they are of different graphs, or the weights don't fit.

    Examples
    --------
    >>> combine_rankings([summarise(scores).ranking, learned], weights=[1, 2])
    """
    if not rankings or not all(isinstance(ranking, Ranking) for ranking in rankings):
        raise InputError(f"combine_rankings takes at least one Ranking, not {rankings!r}")
    graph = rankings[0].graph
    for place, ranking in enumerate(rankings):
        if ranking.graph != graph:
            first, other = (each.count(each.n_edges) for each in (graph, ranking.graph))
            raise InputError(
                f"rankings are of different graphs: the first has {first} ({graph}), number {place + 1} has {other} "
                f"({ranking.graph}); combine rankings of one model and level"
            )
    if how not in HOW or rank not in (None, "absolute", "signed"):
        raise InputError(f"how must be {' or '.join(HOW)} and rank absolute or signed, not {how!r} and {rank!r}")
    rank = rank or ("signed" if all(ranking.signed for ranking in rankings) else "absolute")
    shares = np.ones(len(rankings)) if weights is None else np.asarray(weights, np.float64)
    if shares.shape != (len(rankings),) or not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
        raise InputError(f"{len(rankings)} rankings need as many weights, at least 0 and not all 0, not {weights!r}")
    scaled = []
    for ranking in rankings:
        value = np.abs(ranking.value) if rank == "absolute" else ranking.value
        if how == "ranks":
            scaled.append(np.sign(value) * tied_ranks(np.abs(value)) / len(value))
        else:
            value = value / (np.abs(value).max() or 1.0)  # so that squares neither overflow nor vanish
            scaled.append(value / (np.sqrt((value**2).mean()) or 1.0))
    masks = [ranking.kept for ranking in rankings if ranking.kept is not None]
    method = {"name": COMBINED, "how": how, "rank": rank, "weights": (shares / shares.sum()).tolist()}
    return Ranking(
        graph,
        shares @ np.stack(scaled) / shares.sum(),
        signed=rank == "signed" and any(ranking.signed for ranking in rankings),
        kept=np.logical_and.reduce(masks) if masks else None,
        origin={"method": method, "rankings": [dict(ranking.origin).get("method") for ranking in rankings]},
    )


def tied_ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the rank of each value, 1 for the smallest. Equal values share the mean of their ranks."""
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[index], np.float64)


def check_finite(graph: BaseGraph, what: str, values: NDArray[np.floating]) -> None:
    """Raise InputError if values [edge] aren't finite; `what` says in the plural what they are."""
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        first = f"the first is {values[wrong[0]]} of edge {graph.edge_name(int(wrong[0]))}"
        raise InputError(f"{len(wrong)} {what} are NaN or infinite, {first}; they must be finite")
