"""Sufficiency and necessity: a circuit compared with random circuits of its size. Count the draws that it wins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .exact_tests import binomial_at_least, draws_needed
from .verification import CircuitTest, VerifySettings, judge

FloatArray = NDArray[np.float64]
RANDOM = "random circuits of its size"
MATCHED = "copies of it with other heads of the same layers"
OUTSIDE = "random circuits of its size that share no edge with it"
# Differences below this share of the span are rounding errors.
ROUNDING = 1e-6


def distance(first: FloatArray, second: FloatArray, span: float) -> FloatArray:
    """Return the mean over examples of |first - second| as a share of the span; rounding errors are 0.

    first, second  [..., example]
    """
    result = np.abs(first - second).mean(-1) / abs(span)
    return np.where(result < ROUNDING, 0.0, result)


def sufficiency(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether a circuit is closer to the model than most random circuits.

    distance          of the circuit from the model
    random_distances  [circuit] of the random circuits from the model
    reference         what the random circuits are, for the null hypothesis

    `p` is exact and binomial. The detail `rank_p` is the chance that a random circuit does as well, which is uniform if
    the circuit is itself a random one.
    """
    name = "sufficiency" if reference == RANDOM else "sufficiency, matched"
    null = f"The circuit is closer to the model than at most {settings.quantile:.0%} of {reference}."
    measured, wins = f"share of {reference} that it beats", distance < random_distances
    return count_wins(name, null, measured, wins, settings, _details(distance, random_distances, wins))


def necessity(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether cutting a circuit changes the model more than cutting most random circuits.

    The parameters and the result are those of `sufficiency`, with distances of the model without a circuit from the
    model. In a small graph, random circuits often share edges with the circuit, and cutting a single one of these may
    change the model as much as cutting the circuit.
    """
    name = "necessity" if reference == RANDOM else "necessity, outside"
    null = f"Cutting the circuit changes the model more than cutting at most {settings.quantile:.0%} of {reference}."
    measured, wins = f"share of {reference} whose cut changes less", distance > random_distances
    return count_wins(name, null, measured, wins, settings, _details(distance, random_distances, wins))


def _details(distance: float, random_distances: FloatArray, wins: NDArray[np.bool_]) -> dict:
    rank_p = (1 + int((~wins).sum())) / (1 + len(wins))
    return {"distance": distance, "rank_p": rank_p, "random": random_distances.tolist()}


def count_wins(
    name: str, null: str, measured: str, wins: NDArray[np.bool_], settings: VerifySettings, details: dict
) -> CircuitTest:
    """Test whether a circuit wins in more than `quantile` of the draws, `wins` [draw]: one-sided, exact, binomial."""
    count, draws = int(wins.sum()), len(wins)
    p = binomial_at_least(count, draws, settings.quantile)
    needed = draws_needed(settings.quantile, settings.alpha)
    verdict, advice = judge(p <= settings.alpha, draws, needed, "random circuits")
    return CircuitTest(name, null, measured, count / draws, p, verdict, advice, {"draws": draws} | details)
