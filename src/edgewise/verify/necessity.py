"""Necessity: does cutting the circuit change the model more than cutting random circuits of its size?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .settings import CircuitTest, VerifySettings
from .sufficiency import count_wins

FloatArray = NDArray[np.float64]


RANDOM, OUTSIDE = "random circuits of its size", "random circuits of its size that share no edge with it"


def necessity(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether cutting a circuit changes the model more than cutting most random circuits.

    Parameters
    ----------
    distance
        Of the model without the circuit from the model.
    random_distances
        [circuit] Of the model without each random circuit from the model.
    settings
        Quantile and significance level.
    reference
        What the random circuits are, for the null hypothesis.

    Returns
    -------
    CircuitTest
        In a small graph, random circuits often share edges with the circuit, and cutting a single one of these may
        change the model as much as cutting the circuit.
    """
    name = "necessity" if reference == RANDOM else "necessity, outside"
    null = f"Cutting the circuit changes the model more than cutting at most {settings.quantile:.0%} of {reference}."
    wins = int((distance > random_distances).sum())
    as_large = int((random_distances >= distance).sum())
    return count_wins(name, null, f"share of {reference} whose cut changes less", wins, len(random_distances),
        settings, {
            "distance": distance, "rank_p": (1 + as_large) / (1 + len(random_distances)),
            "random": random_distances.tolist(),
        },
    )  # fmt: skip
