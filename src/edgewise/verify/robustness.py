"""Robustness: is the circuit still better than random circuits under other ablations, metrics and examples?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .exact_tests import binomial_at_least, draws_needed, holm
from .settings import FAILS, PASSES, TOO_FEW, CircuitTest, VerifySettings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Condition:
    """A circuit under one condition.

    name          such as 'ablation: zero'
    faithfulness  of the circuit
    wins, draws   how many of the random circuits it beats
    """

    name: str
    faithfulness: float
    wins: int
    draws: int


def robustness(conditions: Sequence[Condition], skipped: Sequence[str], settings: VerifySettings) -> CircuitTest:
    """Test sufficiency under every condition, corrected for their number.

    Parameters
    ----------
    conditions
        At least one.
    skipped
        Names of conditions under which the model and the empty circuit have the same metric.
    settings
        Quantile and significance level.

    Returns
    -------
    CircuitTest
        The circuit passes if it is sufficient under every condition. The detail `conditions` has a row for each.
    """
    corrected = holm([binomial_at_least(c.wins, c.draws, settings.quantile) for c in conditions])
    is_met = corrected <= settings.alpha
    needed = draws_needed(settings.quantile, settings.alpha, len(conditions))
    draws = min(condition.draws for condition in conditions)
    rows = [
        {"condition": c.name, "faithfulness": c.faithfulness, "share": c.wins / c.draws, "p": p, "passes": bool(met)}
        for c, p, met in zip(conditions, corrected.tolist(), is_met, strict=True)
    ]
    return CircuitTest(
        name="robustness",
        null=f"Under some condition, the circuit is closer to the model than at most {settings.quantile:.0%} of random "
        "circuits of its size.",
        measured="share of conditions under which it is sufficient",
        statistic=float(is_met.mean()),
        p=float(corrected.max()),
        verdict=TOO_FEW if draws < needed else PASSES if is_met.all() else FAILS,
        advice=f"needs at least {needed} random circuits, not {draws}" if draws < needed else "",
        details={"draws": draws, "conditions": rows, "skipped": list(skipped)},
    )
