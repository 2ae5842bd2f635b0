"""How stable a circuit is: would other training examples have given the same one? Rows of scores only, no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import summarise
from ..errors import InputError
from ..evaluate import Measure
from ..runtime.session import Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from .curves import selection_key, settings_key
from .recipe import Recipe, select_circuits
from .settings import Settings


def jaccard(one: Circuit, other: Circuit) -> float:
    """Shared edges as a share of the edges of either; two empty circuits are the same."""
    if one.graph != other.graph:
        raise InputError(f"circuits of two graphs have no edges to share: one of {one.graph}, one of {other.graph}")
    either = int(np.count_nonzero(one.mask | other.mask))
    return int(np.count_nonzero(one.mask & other.mask)) / either if either else 1.0


def overlap(
    scores: EdgeScores,
    select: Callable[[EdgeScores], Sequence[Circuit]],
    resamples: int = 10,
    seed: int = 0,
) -> NDArray[np.float64]:
    """[size] the mean Jaccard overlap of the circuits that `select` makes of resampled examples, over all pairs.

    Two empty circuits agree on nothing, so such pairs are left out; NaN where all are.
    """
    if resamples < 2:
        raise InputError(f"an overlap needs at least 2 resamples, not {resamples}")
    if scores.n_examples < 2:
        raise InputError("these scores have a single row, which can't be resampled; score with edgewise")
    drawn = np.random.default_rng(seed).integers(scores.n_examples, size=(resamples, scores.n_examples))
    found = [select(replace(scores, values=scores.values[np.sort(rows)])) for rows in drawn]
    return pairwise_overlap(found)


def pairwise_overlap(found: Sequence[Sequence[Circuit]]) -> NDArray[np.float64]:
    """[size] the mean Jaccard overlap over all pairs of several curves' circuits; NaN where all are empty."""
    pairs = np.array(
        [[_overlap(a, b) for a, b in zip(one, other, strict=True)] for one, other in combinations(found, 2)]
    )
    counts = (~np.isnan(pairs)).sum(0)
    return np.where(counts > 0, np.nansum(pairs, axis=0) / np.maximum(counts, 1), np.nan)


def _overlap(one: Circuit, other: Circuit) -> float:
    return jaccard(one, other) if one.n_edges or other.n_edges else float("nan")


def mean_overlap(by_size: NDArray[np.float64], shares: Sequence[float]) -> float:
    """The mean over the sizes that leave a choice: all edges always overlap, and no edges have nothing to. Without
    such a size, 1."""
    chosen = [value for value, share in zip(by_size, shares, strict=True) if share < 1 and not np.isnan(value)]
    return float(np.mean(chosen)) if chosen else 1.0


def recipe_overlap(
    scores: EdgeScores, recipe: Recipe, measure: Measure, settings: Settings, resamples: int = 10, seed: int = 0
) -> NDArray[np.float64]:
    """[size] the overlap of a recipe's circuits."""

    def select(rows: EdgeScores) -> list[Circuit]:
        ranking = summarise(rows, recipe.filter).ranking
        return [selection.circuit for selection in select_circuits(ranking, recipe, measure, settings)]

    return overlap(scores, select, resamples, seed)


def overlap_by_size(
    scores: EdgeScores,
    recipe: Recipe,
    measure: Measure,
    settings: Settings,
    resamples: int,
    seed: int,
    session: Session,
) -> NDArray[np.float64]:
    """Return the overlap [size] of a recipe's circuits over resamples of the scores; NaN where all are empty."""
    how = (*settings_key(settings), resamples, seed)
    key = unit_key("overlap", scores=scores.digest, recipe=selection_key(measure, recipe), how=how)
    unit = session.store.find(key)
    if unit is None:
        overlap = recipe_overlap(scores, recipe, measure, settings, resamples, seed)
        unit = session.store.save(key, Unit({"overlap": overlap}))
    return unit.arrays["overlap"]


def ranking_overlap(
    ranking: Ranking, recipe: Recipe, measure: Measure, settings: Settings
) -> NDArray[np.float64] | None:
    """[size] the overlap of a recipe's circuits over the resamples of a ranking; None if it has fewer than two."""
    if ranking.resampled is None or len(ranking.resampled) < 2:
        return None
    found = [
        [s.circuit for s in select_circuits(replace(ranking, value=row, resampled=None), recipe, measure, settings)]
        for row in ranking.resampled
    ]
    return pairwise_overlap(found)
