"""How stable a circuit is: would other training examples have given the same one? Rows of scores only, no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .circuit import Circuit
from .errors import InputError
from .recipes import Recipe, Settings, select_circuits
from .scores import EdgeScores
from .statistics import summarise


def jaccard(one: Circuit, other: Circuit) -> float:
    """Shared edges as a share of the edges of either; two empty circuits are the same."""
    either = int(np.count_nonzero(one.mask | other.mask))
    return int(np.count_nonzero(one.mask & other.mask)) / either if either else 1.0


def overlap(
    scores: EdgeScores,
    select: Callable[[EdgeScores], Sequence[Circuit]],
    resamples: int = 10,
    seed: int = 0,
) -> NDArray[np.float64]:
    """[size] the mean Jaccard overlap of the circuits that `select` makes of resampled examples, over all pairs."""
    if resamples < 2:
        raise InputError(f"an overlap needs at least 2 resamples, not {resamples}")
    if scores.n_examples < 2:
        raise InputError("these scores have a single row, which can't be resampled; score with edgewise")
    drawn = np.random.default_rng(seed).integers(scores.n_examples, size=(resamples, scores.n_examples))
    found = [select(replace(scores, values=scores.values[np.sort(rows)])) for rows in drawn]
    return np.mean(
        [[jaccard(a, b) for a, b in zip(one, other, strict=True)] for one, other in combinations(found, 2)], axis=0
    )


def recipe_overlap(
    scores: EdgeScores, recipe: Recipe, benchmark: str, settings: Settings, resamples: int = 10, seed: int = 0
) -> NDArray[np.float64]:
    """[size] the overlap of a recipe's circuits."""

    def select(rows: EdgeScores) -> list[Circuit]:
        selections = select_circuits(summarise(rows, recipe.filter), recipe, benchmark, settings)
        return [selection.circuit for selection in selections]

    return overlap(scores, select, resamples, seed)
