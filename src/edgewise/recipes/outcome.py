"""The circuits of one recipe and their curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..evaluate import Curve, Measure, Resampled, resample
from ..select import Selection
from .recipe import Recipe


@dataclass(frozen=True, eq=False)
class Outcome:
    """The circuits of one recipe for one measure, one per size, and their curve.

    selections  one per size. Read from a folder, circuits are loaded when they are accessed.
    rankings    what the circuits were selected from, one per size. Empty if the outcome was read from a folder.
    chosen_on   the split that the recipe was chosen on, if it was chosen without the evaluated examples. Otherwise
                empty.
    choices     of a portfolio: the name of the recipe that each size takes
    """

    measure: Measure
    recipe: Recipe
    selections: Sequence[Selection]
    curve: Curve
    rankings: tuple[Ranking, ...] = ()
    chosen_on: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        return tuple(selection.circuit for selection in self.selections)

    @cached_property
    def area(self) -> float:
        """CPR, CMD or the area of a custom measure."""
        return self.curve.area(self.measure)

    @cached_property
    def resampled(self) -> Resampled:
        """The area on bootstrap resamples of the evaluated examples: its interval, and paired comparisons."""
        return resample(self.curve, self.measure)

    def __repr__(self) -> str:
        return f"Outcome({self.measure.name} {self.name}: {self.area:.4f})"


def exported_outcome(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the outcome whose circuits are written as files; see `Discovery.exported`."""
    candidates = [outcome for outcome in outcomes if outcome.measure == measure]
    chosen_before = [outcome for outcome in candidates if outcome.chosen_on]
    return chosen_before[-1] if chosen_before else max(candidates, key=lambda outcome: measure.better * outcome.area)
