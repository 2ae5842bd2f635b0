"""Compare scores with a known circuit, as in InterpBench."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..core.circuit import Circuit
from ..errors import InputError


def auroc(score: ArrayLike, truth: Circuit) -> float:
    """Return the chance that a random edge of the circuit scores higher than a random other one. Ties count half."""
    inside, score = truth.mask, np.asarray(score, np.float64)
    if score.shape != inside.shape:
        raise InputError(f"there are {score.shape} scores for {inside.shape} edges")
    n_in, n_out = int(inside.sum()), int((~inside).sum())
    if not n_in or not n_out:
        raise InputError("AUROC needs a known circuit that has some edges and lacks some")
    _, index, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[index]
    return float((rank[inside].sum() - n_in * (n_in + 1) / 2) / (n_in * n_out))
