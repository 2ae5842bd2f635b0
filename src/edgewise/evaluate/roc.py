"""Scores against a known circuit, as in InterpBench: does the ranking find its edges?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..core.circuit import Circuit
from ..errors import InputError


def auroc(score: ArrayLike, truth: Circuit) -> float:
    """The chance that a random edge of the known circuit scores higher than a random other edge; ties count half."""
    inside, score = truth.mask, np.asarray(score, np.float64)
    if score.shape != inside.shape:
        raise InputError(f"there are {score.shape} scores for {inside.shape} edges")
    n_in, n_out = int(inside.sum()), int((~inside).sum())
    if not n_in or not n_out:
        raise InputError("AUROC needs a known circuit that has some edges and lacks some")
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[inside].sum() - n_in * (n_in + 1) / 2) / (n_in * n_out))
