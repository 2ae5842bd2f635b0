"""The circuits of one recipe and their curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.notebook import data_frame, from_report
from ..core.ranking import Ranking
from ..errors import InputError
from ..evaluate import Curve, Measure, Resampled, resample
from ..select import Selection
from .recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Outcome:
    """The circuits of one recipe for one measure, one per size, and their curve.

    selections  one per size. Read from a folder, circuits are loaded when they are accessed.
    rankings    what the circuits were selected from, one per size. Empty if the outcome was read from a folder.
    chosen_on   the split whose examples chose this recipe among others: that of a validation task, that of train if
                the recipe was tuned, or the evaluated split itself. Empty if the recipe wasn't chosen.
    choices     of a portfolio: the name of the recipe that each size takes
    validation  faithfulness [size] on validation examples, which choose the default size. Empty without such examples
    """

    measure: Measure
    recipe: Recipe
    selections: Sequence[Selection]
    curve: Curve
    rankings: tuple[Ranking, ...] = ()
    chosen_on: str = ""
    choices: tuple[str, ...] = ()
    validation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.validation) not in (0, len(self.curve.shares)):
            raise InputError(f"{len(self.curve.shares)} sizes can't have {len(self.validation)} values on validation")

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

    @property
    def default_size(self) -> int:
        """Index of the size to show by default: the smallest that is faithful by the measure; see `sized_on`."""
        return self.curve.default_size(self.measure, self.sizing_faithfulness)

    @property
    def sizing_faithfulness(self) -> NDArray[np.float64]:
        """Faithfulness [size] on the examples that choose the default size."""
        return np.array(self.validation) if self.validation else self.curve.faithfulness

    @property
    def sized_on(self) -> str:
        """The examples that choose the default size, in words: those of validation, else the evaluated ones."""
        return "validation" if self.validation else "the evaluated examples"

    def circuit(self, size: float | None = None) -> Circuit:
        """Return the circuit of a size.

        Parameters
        ----------
        size
            A float is a share of the edges, such as 0.05; an int is the number of edges that was asked for. By default
            the smallest that is faithful by the measure, on validation if there was such a task, else on test.

        Examples
        --------
        >>> discovery.best("CMD").circuit(0.05).edges
        """
        index = self.default_size if size is None else self.curve.index_of(size)
        circuit: Circuit = self.selections[index].circuit
        return circuit

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with a row per size: measure, recipe, and the columns of `Curve.to_frame`."""
        n_sizes = len(self.curve.shares)
        frame = self.curve.to_frame()
        return data_frame({"measure": [self.measure.name] * n_sizes, "recipe": [self.name] * n_sizes} | dict(frame))

    def plot(self) -> Figure:
        """Return a matplotlib figure of faithfulness by size, with the area that the measure integrates."""
        figure: Figure = from_report("figures", "plot_outcome")(self)
        return figure

    def __repr__(self) -> str:
        chosen = f", chosen on {self.chosen_on}" if self.chosen_on else ""
        return f"Outcome({self.measure.name} {self.name}: {self.area:.4f}{chosen})"


def list_measures(outcomes: Iterable[Outcome]) -> tuple[Measure, ...]:
    """Return the measures that have outcomes."""
    return tuple(dict.fromkeys(outcome.measure for outcome in outcomes))


def best_outcome(outcomes: Iterable[Outcome], measure: Measure) -> Outcome:
    """Return the outcome of the best area of a measure on the evaluated examples. Ties go to the first."""
    candidates = (outcome for outcome in outcomes if outcome.measure == measure)
    return max(candidates, key=lambda outcome: measure.better * outcome.area)


def chosen_outcome(outcomes: Iterable[Outcome], measure: Measure) -> Outcome | None:
    """Return the outcome that was chosen for a measure by `choose_outcomes`; None if none was.

    A portfolio comes last, and counts before the single recipe that was chosen by tuning or validation.
    """
    chosen = [outcome for outcome in outcomes if outcome.measure == measure and outcome.chosen_on]
    return chosen[-1] if chosen else None
