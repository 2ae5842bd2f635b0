"""What is tried and what it came to: the values on the way from rankings to curves. They need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.ranking import Ranking
from ..evaluate import Curve, Measure
from ..select import Selection
from .recipe import Recipe


@dataclass(frozen=True, eq=False)
class RankedRecipe:
    """A recipe, the measure that it is for, and the ranking that it selects from."""

    measure: Measure
    recipe: Recipe
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one recipe came to, for one of the benchmark's two metrics: a circuit per size, and their curve.

    rankings   that the circuits were selected from, one per size
    chosen_on  the examples that it was chosen by, if it was chosen before anybody looked at the evaluated ones
    choices    of a portfolio: the method that each size takes
    """

    measure: Measure
    recipe: Recipe
    rankings: tuple[Ranking, ...]
    selections: tuple[Selection, ...]
    curve: Curve
    chosen_on: str = ""
    choices: tuple[str, ...] = ()

    @property
    def area(self) -> float:
        """CPR or CMD."""
        return self.curve.area(self.measure)

    def __repr__(self) -> str:
        return f"Outcome({self.measure.name} {self.recipe.name}: {self.area:.4f})"


@dataclass(frozen=True)
class Competence:
    """How well the model does the task: how often its top answer is right, and the correct one beats the incorrect."""

    top: float
    beats: float


@dataclass(frozen=True, eq=False)
class Measured:
    """The outcomes of all recipes that were tried on a task, in their order, and how well the model does it.

    seconds   that selecting and evaluating took
    selected  the circuits of every recipe, one per size
    """

    outcomes: tuple[Outcome, ...]
    competence: Competence
    seconds: Mapping[str, float]
    selected: tuple[tuple[Selection, ...], ...]

    @property
    def curves(self) -> list[Curve]:
        """Every outcome's curve."""
        return [outcome.curve for outcome in self.outcomes]
