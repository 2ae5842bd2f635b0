"""Portfolios: at every size the recipe that validation prefers, so that a curve takes the best of all of them.

Which ranking and solver is best differs by size. An area is a sum over sizes with positive weights, so choosing the
best height at every size is choosing the best area. The evaluated examples have no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..evaluate import Measure
from .outcome import Outcome
from .recipe import PORTFOLIO, Recipe


def portfolio(validation: Sequence[Outcome], test: Sequence[Outcome], measure: Measure, split: str) -> Outcome:
    """The outcome on test that takes, at every size, the recipe of the best height on validation; of equals the first.

    Both sequences are of the same recipes in the same order; `split` names the examples that were chosen by.
    """
    places = [place for place, outcome in enumerate(test) if outcome.measure == measure]
    heights = [measure.height(validation[place].curve.faithfulness) for place in places]
    chosen = [
        test[places[max(range(len(places)), key=lambda one, size=size: measure.better * heights[one][size])]]  # type: ignore[misc]
        for size in range(len(heights[0]))
    ]
    return mix(chosen, split)


def mix(chosen: Sequence[Outcome], split: str) -> Outcome:
    """The outcome that has, at every size, that size of the outcome chosen for it."""
    first, sizes = chosen[0].curve, range(len(chosen))
    values = first.values.copy()
    for size in sizes:
        values[size] = chosen[size].curve.values[size]
    kept = tuple(chosen[size].curve.kept[size] for size in sizes)
    return Outcome(
        chosen[0].measure,
        Recipe(alias=PORTFOLIO),
        tuple(chosen[size].rankings[size] for size in sizes),
        tuple(chosen[size].selections[size] for size in sizes),
        replace(first, kept=kept, values=values),
        split,
        tuple(one.recipe.name for one in chosen),
    )
