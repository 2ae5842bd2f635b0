"""Stability: the overlap of circuits that are selected from resampled training examples. Needs no model."""

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
from ..runtime import NO_STORE, Store, Unit, unit_key
from .recipe import Recipe, select_circuits, selection_key, settings_key
from .settings import Settings


def jaccard(circuit: Circuit, other: Circuit) -> float:
    """Return the shared edges as a share of the edges of either circuit. 1 for two empty circuits.

    Parameters
    ----------
    circuit, other
        Circuits of the same graph.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> edgewise.jaccard(Circuit.full(graph), Circuit.empty(graph))
    0.0
    """
    if circuit.graph != other.graph:
        raise InputError(
            f"circuits of two graphs have no edges to share: one of {circuit.graph.describe()}, "
            f"one of {other.graph.describe()}"
        )
    n_either = int(np.count_nonzero(circuit.mask | other.mask))
    return int(np.count_nonzero(circuit.mask & other.mask)) / n_either if n_either else 1.0


def overlap(
    scores: EdgeScores, select: Callable[[EdgeScores], Sequence[Circuit]], resamples: int = 10, seed: int = 0
) -> NDArray[np.float64]:
    """Return the mean overlap [size] of circuits over all pairs of resamples of the examples.

    Parameters
    ----------
    select
        Returns a circuit per size from scores.

    Returns
    -------
    The mean Jaccard overlap per size. Pairs of two empty circuits are left out; NaN where all are empty.
    """
    if resamples < 2:
        raise InputError(f"an overlap needs at least 2 resamples, not {resamples}")
    if scores.n_examples < 2:
        raise InputError("these scores have a single row, which can't be resampled; score with edgewise")
    drawn = np.random.default_rng(seed).integers(scores.n_examples, size=(resamples, scores.n_examples))
    return _pairwise_overlap([select(replace(scores, values=scores.values[np.sort(rows)])) for rows in drawn])


def _pairwise_overlap(selected: Sequence[Sequence[Circuit]]) -> NDArray[np.float64]:
    """Return the mean overlap [size] over all pairs of resamples, from circuits [resample][size]."""
    pairs = np.array(
        [
            [jaccard(a, b) if a.n_edges or b.n_edges else float("nan") for a, b in zip(first, second, strict=True)]
            for first, second in combinations(selected, 2)
        ]
    )
    counts = (~np.isnan(pairs)).sum(0)
    return np.where(counts > 0, np.nansum(pairs, axis=0) / np.maximum(counts, 1), np.nan)


def mean_overlap(by_size: NDArray[np.float64], shares: Sequence[float]) -> float:
    """Return the mean over the sizes that leave a choice: not those of empty circuits or of the full model. Else 1."""
    values = [value for value, share in zip(by_size, shares, strict=True) if share < 1 and not np.isnan(value)]
    return float(np.mean(values)) if values else 1.0


def recipe_overlap(
    scores: EdgeScores,
    recipe: Recipe,
    measure: Measure,
    settings: Settings,
    resamples: int = 10,
    seed: int = 0,
    store: Store = NO_STORE,
) -> NDArray[np.float64]:
    """Return the overlap [size] of a recipe's circuits over resamples of the scores; see `overlap`."""

    def select(rows: EdgeScores) -> list[Circuit]:
        ranking = summarise(rows, recipe.filter).ranking
        return [selection.circuit for selection in select_circuits(ranking, recipe, measure, settings)]

    how = (*settings_key(settings), resamples, seed)
    key = unit_key("overlap", scores=scores.digest, recipe=selection_key(measure, recipe), how=how)
    unit = store.find(key) or store.save(key, Unit({"overlap": overlap(scores, select, resamples, seed)}))
    return unit.arrays["overlap"]


def ranking_overlap(
    ranking: Ranking, recipe: Recipe, measure: Measure, settings: Settings
) -> NDArray[np.float64] | None:
    """Return the overlap [size] of a recipe's circuits over the resamples of a ranking. None for fewer than two."""
    if ranking.resampled is None or len(ranking.resampled) < 2:
        return None
    rankings = [replace(ranking, value=row, resampled=None) for row in ranking.resampled]
    selected = [select_circuits(each, recipe, measure, settings) for each in rankings]
    return _pairwise_overlap([[selection.circuit for selection in selections] for selections in selected])
