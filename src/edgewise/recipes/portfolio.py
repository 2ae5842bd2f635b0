"""Portfolios: at every size the recipe that is best on validation.

Which ranking and solver is best differs by size. An area is a sum over sizes with positive weights, so choosing the
best height at every size gives the best area. The evaluated examples are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..evaluate import Measure
from .outcome import Outcome
from .recipe import PORTFOLIO, Recipe


def portfolios(validation: Sequence[Outcome], test: Sequence[Outcome], split: str) -> tuple[Outcome, ...]:
    """Return the portfolio of every measure."""
    return tuple(portfolio(validation, test, m, split) for m in dict.fromkeys(outcome.measure for outcome in test))


def portfolio(validation: Sequence[Outcome], test: Sequence[Outcome], measure: Measure, split: str) -> Outcome:
    """Return the outcome on test that takes, at every size, the recipe of the best height on validation.

    Parameters
    ----------
    validation, test
        Outcomes of the same recipes in the same order. Ties go to the first.
    split
        The name of the examples that recipes are chosen on.
    """
    rows = [row for row, outcome in enumerate(test) if outcome.measure == measure]
    heights = measure.better * np.array([measure.height(validation[row].curve.faithfulness) for row in rows])
    chosen = [test[rows[best]] for best in heights.argmax(0)]
    first, sizes = chosen[0].curve, range(len(chosen))
    curve = replace(
        first,
        kept=tuple(chosen[size].curve.kept[size] for size in sizes),
        values=np.stack([chosen[size].curve.values[size] for size in sizes]),
    )
    return Outcome(
        measure,
        Recipe(alias=PORTFOLIO),
        tuple(chosen[size].selections[size] for size in sizes),
        curve,
        tuple(chosen[size].rankings[size] for size in sizes),
        chosen_on=split,
        choices=tuple(outcome.name for outcome in chosen),
    )
