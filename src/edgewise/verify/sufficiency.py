"""Sufficiency: is the circuit closer to the model than random circuits of its size?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .exact_tests import binomial_at_least, draws_needed
from .settings import FAILS, PASSES, TOO_FEW, CircuitTest, VerifySettings

FloatArray = NDArray[np.float64]
RANDOM, MATCHED = "random circuits of its size", "copies of it with other heads of the same layers"


def sufficiency(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether a circuit is closer to the model than most random circuits.

    Parameters
    ----------
    distance
        Of the circuit from the model.
    random_distances
        [circuit] Of the random circuits from the model.
    settings
        Quantile and significance level.
    reference
        What the random circuits are, for the null hypothesis.

    Returns
    -------
    CircuitTest
        Its `p` is exact and binomial. The detail `rank_p` is the chance that a random circuit does as well, which is
        uniform if the circuit is itself a random one.
    """
    name = "sufficiency" if reference == RANDOM else "sufficiency, matched"
    null = f"The circuit is closer to the model than at most {settings.quantile:.0%} of {reference}."
    wins = int((distance < random_distances).sum())
    as_good = int((random_distances <= distance).sum())
    return count_wins(name, null, f"share of {reference} that it beats", wins, len(random_distances), settings, {
        "distance": distance, "rank_p": (1 + as_good) / (1 + len(random_distances)),
        "random": random_distances.tolist(),
    })  # fmt: skip


def count_wins(
    name: str, null: str, measured: str, wins: int, draws: int, settings: VerifySettings, details: dict
) -> CircuitTest:
    """Test whether a circuit wins in more than `quantile` of the draws: one-sided, exact, binomial."""
    p, needed = binomial_at_least(wins, draws, settings.quantile), draws_needed(settings.quantile, settings.alpha)
    verdict = TOO_FEW if draws < needed else PASSES if p <= settings.alpha else FAILS
    advice = f"needs at least {needed} random circuits, not {draws}" if draws < needed else ""
    return CircuitTest(name, null, measured, wins / draws, p, verdict, advice, {"draws": draws} | details)
