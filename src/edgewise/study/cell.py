"""The results of a study as values: a recipe's curves over seeds, a model on a task, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..evaluate import BOTH_MEASURES, Curve, Measure, Resampled, mean_resampled, resample
from ..recipes.recipe import Recipe
from ..recipes.run_info import ModelAccuracy
from .baselines import BASELINES
from .plan import Plan


@dataclass(frozen=True, eq=False)
class Repeats:
    """The curves of one recipe, one per seed, and the seed that each one's examples were drawn with."""

    measure: Measure
    recipe: Recipe
    curves: tuple[Curve, ...]
    data_seeds: tuple[int, ...]

    @cached_property
    def areas(self) -> NDArray[np.float64]:
        """[seed] CPR or CMD."""
        return np.array([curve.area(self.measure) for curve in self.curves])

    @property
    def mean(self) -> float:
        """The mean area over seeds."""
        return float(self.areas.mean())

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds. None for a single one."""
        return float(self.areas.std(ddof=1)) if len(self.curves) > 1 else None

    @cached_property
    def resampled(self) -> Resampled:
        """The mean area over seeds, on resampled examples. Seeds that share examples share resamples."""
        curves = zip(self.curves, self.data_seeds, strict=True)
        return mean_resampled([resample(curve, self.measure, seed=seed) for curve, seed in curves])


@dataclass(frozen=True, eq=False)
class Cell:
    """The results of a model on a task.

    examples    split -> number of examples
    accuracy    of the model on the test examples, mean over seeds
    validation  measure -> every recipe, in the plan's order
    test        measure -> for every combination of methods the hyper-parameters that were best on validation. Greedy is
                first.
    overlap     measure -> 'greedy' or 'chosen' -> for every draw of examples, the mean overlap of circuits over
                resamples of train. Empty for rankings that were learned without resamples.
    """

    model: str
    task: str
    examples: Mapping[str, int]
    accuracy: ModelAccuracy
    validation: Mapping[Measure, tuple[Repeats, ...]]
    test: Mapping[Measure, tuple[Repeats, ...]]
    overlap: Mapping[Measure, Mapping[str, tuple[float, ...]]]

    def chosen(self, measure: Measure) -> Recipe:
        """Return the recipe that was best on validation."""
        return best_informed(self.validation[measure]).recipe

    def tested(self, measure: Measure) -> dict[str, Repeats]:
        """Return the results on test by the recipe's name, which doesn't include hyper-parameters."""
        return {repeats.recipe.name: repeats for repeats in self.test[measure]}


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: a cell for every model and task, in the order of the paper's columns, tasks first."""

    plan: Plan
    cells: tuple[Cell, ...]

    def __repr__(self) -> str:
        return f"Study({', '.join(f'{cell.task} x {cell.model}' for cell in self.cells)}; {self.plan.seeds} seeds)"


def best(listed: Sequence[Repeats]) -> Repeats:
    """Return the repeats of the best mean area. Ties go to the first, which is the simpler."""
    return max(listed, key=lambda repeats: repeats.measure.better * repeats.mean)


def best_informed(listed: Sequence[Repeats]) -> Repeats:
    """Return the best of the repeats whose circuits are not random."""
    return best([repeats for repeats in listed if not isinstance(repeats.recipe.solver, BASELINES)])


def by_name(listed: Sequence[Repeats]) -> dict[str, list[Repeats]]:
    """Group by the recipe's name, which doesn't include hyper-parameters."""
    groups: dict[str, list[Repeats]] = {}
    for repeats in listed:
        groups.setdefault(repeats.recipe.name, []).append(repeats)
    return groups


def recipes_to_test(validation: Mapping[Measure, Sequence[Repeats]]) -> list[tuple[Measure, Recipe]]:
    """Return for every combination of methods the hyper-parameters that were best on validation."""
    return [(m, best(group).recipe) for m in BOTH_MEASURES for group in by_name(validation[m]).values()]


def collect_repeats(
    recipes: Sequence[tuple[Measure, Recipe]], curves: Iterable[Sequence[Curve]], data_seeds: tuple[int, ...]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Return measure -> repeats, from the curves [recipe][seed]."""
    rows = [Repeats(m, recipe, tuple(row), data_seeds) for (m, recipe), row in zip(recipes, curves, strict=True)]
    return {measure: tuple(row for row in rows if row.measure == measure) for measure in BOTH_MEASURES}
