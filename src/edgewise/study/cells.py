"""What a study found: for every model and task, the curves of every recipe, one per seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..evaluate import Curve, Measure, Resampled, mean_of, resample
from ..recipes.outcome import Competence
from ..recipes.recipe import Recipe
from .plan import Plan


@dataclass(frozen=True, eq=False)
class Repeats:
    """One recipe's curves, one per seed, and the seed that each one's examples were drawn with."""

    measure: Measure
    recipe: Recipe
    curves: tuple[Curve, ...]
    data_seeds: tuple[int, ...]

    @property
    def areas(self) -> NDArray[np.float64]:
        """[seed] CPR or CMD."""
        return np.array([curve.area(self.measure) for curve in self.curves])

    @property
    def mean(self) -> float:
        """The mean area over seeds."""
        return float(self.areas.mean())

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None for a single one."""
        return float(self.areas.std(ddof=1)) if len(self.curves) > 1 else None

    @cached_property
    def resampled(self) -> Resampled:
        """The mean area over seeds, on resampled examples; seeds that share examples share resamples."""
        curves = zip(self.curves, self.data_seeds, strict=True)
        return mean_of([resample(curve, self.measure, seed=seed) for curve, seed in curves])


@dataclass(frozen=True, eq=False)
class Cell:
    """A model on a task.

    competence  how well the model does the task on the test examples, mean over seeds
    validation  every recipe, in the plan's order: benchmark -> recipes
    test        for every combination the recipe that was best on validation, plain greedy first
    overlap     benchmark -> of 'greedy' and of the 'chosen' recipe, for every draw of examples: the mean Jaccard
                overlap of circuits over resamples of train; none for rankings that were learned without resamples
    """

    model: str
    task: str
    examples: Mapping[str, int]
    competence: Competence
    validation: Mapping[Measure, tuple[Repeats, ...]]
    test: Mapping[Measure, tuple[Repeats, ...]]
    overlap: Mapping[Measure, Mapping[str, tuple[float, ...]]]

    def chosen(self, measure: Measure) -> Recipe:
        """The combination, with its hyper-parameters, that was best on validation."""
        return best(self.validation[measure]).recipe

    def on_test(self, measure: Measure, recipe: Recipe) -> Repeats:
        """A recipe's curves on test."""
        return next(one for one in self.test[measure] if one.recipe == recipe)


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: a cell for every model and task, tasks first, as the paper's columns."""

    plan: Plan
    cells: tuple[Cell, ...]

    def __repr__(self) -> str:
        return f"Study({', '.join(f'{cell.task} x {cell.model}' for cell in self.cells)}; {self.plan.seeds} seeds)"


def best(repeats: Sequence[Repeats]) -> Repeats:
    """That of the best mean area; of equals the first, which is the simpler."""
    return max(repeats, key=lambda one: one.measure.better * one.mean)


def by_name(repeats: Sequence[Repeats]) -> dict[str, list[Repeats]]:
    """Grouped by combination, in their order: hyper-parameters differ within a group."""
    groups: dict[str, list[Repeats]] = {}
    for one in repeats:
        groups.setdefault(one.recipe.name, []).append(one)
    return groups
