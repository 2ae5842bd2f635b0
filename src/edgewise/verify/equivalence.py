"""Equivalence: does the circuit beat the model on half of the examples?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .comparisons import ROUNDING
from .exact_tests import equivalence_p, examples_needed
from .verification import CircuitTest, VerifySettings, judge

FloatArray = NDArray[np.float64]


def equivalence(circuit: FloatArray, model: FloatArray, span: float, settings: VerifySettings) -> CircuitTest:
    """Test whether circuit and model have the same chance to have the larger metric.

    circuit, model  [example] the metric of each
    span            the mean difference between the model and the empty circuit

    The detail `difference` is the mean difference as a share of the span. A circuit that is a little better on all
    examples is not equivalent, however small the difference is; a tolerance makes small differences ties.
    """
    difference = (circuit - model) / span
    is_tie = np.abs(difference) <= max(ROUNDING, settings.tolerance)
    wins, ties, n = int(((difference > 0) & ~is_tie).sum()), int(is_tie.sum()), len(difference)
    p, needed = equivalence_p(wins, ties, n, settings.epsilon), examples_needed(settings.epsilon, settings.alpha, n)
    verdict, advice = judge(p <= settings.alpha, n, needed, "examples")
    low, high = 0.5 - settings.epsilon, 0.5 + settings.epsilon
    return CircuitTest(
        name="equivalence",
        null=f"The circuit beats the model on less than {low:.0%} or on more than {high:.0%} of examples.",
        measured="share of examples on which it beats the model",
        statistic=(wins + ties / 2) / n,
        p=p,
        verdict=verdict,
        advice=advice,
        details={"examples": n, "wins": wins, "ties": ties, "difference": float(difference.mean())},
    )
