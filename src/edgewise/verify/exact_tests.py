"""Exact tests of counts, Holm's correction, and how many draws or examples a test needs. No model, no SciPy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def binomial_at_least(count: int, draws: int, chance: float) -> float:
    """Return the probability of `count` or more successes in `draws` of a chance strictly between 0 and 1."""
    return _sum_probabilities(range(max(0, count), draws + 1), draws, chance)


def binomial_at_most(count: int, draws: int, chance: float) -> float:
    """Return the probability of `count` or fewer successes in `draws` of a chance strictly between 0 and 1."""
    return _sum_probabilities(range(0, min(count, draws) + 1), draws, chance)


def _sum_probabilities(counts: range, draws: int, chance: float) -> float:
    """Return the probability of these numbers of successes, by logarithms, so that many draws do not underflow."""
    yes, no, all_ways = math.log(chance), math.log1p(-chance), math.lgamma(draws + 1)
    logs = [all_ways - math.lgamma(k + 1) - math.lgamma(draws - k + 1) + k * yes + (draws - k) * no for k in counts]
    return min(1.0, math.fsum(map(math.exp, logs)))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return corrected[np.argsort(order, kind="stable")]


def equivalence_p(wins: int, ties: int, examples: int, epsilon: float) -> float:
    """Return the p-value of two one-sided tests: the chance to win lies outside 1/2 +- epsilon.

    A tie counts as half a win. Half a win is rounded against the circuit in both tests.
    """
    too_high = binomial_at_most(wins + math.ceil(ties / 2), examples, 0.5 + epsilon)
    too_low = binomial_at_least(wins + math.floor(ties / 2), examples, 0.5 - epsilon)
    return max(too_high, too_low)


def draws_needed(chance: float, alpha: float, tests: int = 1) -> int:
    """Return how many draws a test of a chance needs to be significant if all of them succeed."""
    return math.ceil(math.log(alpha / tests) / math.log(chance) - 1e-9)


def examples_needed(epsilon: float, alpha: float, examples: int = 0) -> int:
    """Return how many examples the test of equivalence needs to be significant if wins and losses are equal.

    An odd number can't have equal wins and losses. If `examples`, the present number, is odd and not enough though a
    smaller even number is, one more is needed.
    """
    pairs = 1
    while equivalence_p(pairs, 0, 2 * pairs, epsilon) > alpha:
        pairs *= 2
    too_few, enough = pairs // 2, pairs
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if equivalence_p(middle, 0, 2 * middle, epsilon) > alpha:
            too_few = middle
        else:
            enough = middle
    is_odd_and_few = examples > 2 * enough and equivalence_p(examples // 2, 0, examples, epsilon) > alpha
    return examples + 1 if is_odd_and_few else 2 * enough
