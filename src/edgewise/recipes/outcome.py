"""The result of one recipe: a circuit per size, and their faithfulness curve. Needs no torch."""

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
class RankedRecipe:
    """A recipe, the measure that it is for, and the ranking that it selects from."""

    measure: Measure
    recipe: Recipe
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class Outcome:
    """The circuits of one recipe for one measure, one per size, and their curve.

    Attributes
    ----------
    selections
        One per size. Read from a folder, circuits are loaded when they are accessed.
    rankings
        What the circuits were selected from, one per size. Empty if the outcome was read from a folder.
    chosen_on
        The split that the recipe was chosen on, if it was chosen without the evaluated examples. Otherwise empty.
    choices
        Of a portfolio: the name of the recipe that each size takes.
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
        """The name of the recipe."""
        return self.recipe.name

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        """The circuits, one per size."""
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


@dataclass(frozen=True)
class ModelAccuracy:
    """How well the model does a task, as shares of the examples.

    Attributes
    ----------
    top
        Examples whose most likely next token is a correct answer.
    beats
        Examples whose correct answer has a higher logit than the incorrect one.
    """

    top: float
    beats: float
