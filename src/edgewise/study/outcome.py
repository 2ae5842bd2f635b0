"""What a study found: for every model and task, the curves of every recipe, one per seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..evaluate.curve import BETTER, Curve
from ..evaluate.intervals import Resampled, mean_of, resample
from ..recipes import Recipe
from .plan import Plan


@dataclass(frozen=True, eq=False)
class Repeats:
    """One recipe's curves, one per seed, and the seed that each one's examples were drawn with."""

    benchmark: str
    recipe: Recipe
    curves: tuple[Curve, ...]
    data_seeds: tuple[int, ...]

    @property
    def areas(self) -> NDArray[np.float64]:
        """[seed] CPR or CMD."""
        return np.array([curve.area(self.benchmark) for curve in self.curves])

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
        return mean_of([resample(curve, self.benchmark, seed=seed) for curve, seed in curves])


@dataclass(frozen=True, eq=False)
class Cell:
    """A model on a task.

    validation  every recipe, in the plan's order: benchmark -> recipes
    test        for every combination the recipe that was best on validation, plain greedy first
    overlap     benchmark -> of 'greedy' and of the 'chosen' recipe, for every draw of examples: the mean Jaccard
                overlap of circuits over resamples of train
    accuracy    of the model on the test examples, mean over seeds
    beats       how often its correct answer beats the incorrect one there; None if the metric doesn't say
    """

    model: str
    task: str
    examples: Mapping[str, int]
    accuracy: float
    beats: float | None
    validation: Mapping[str, tuple[Repeats, ...]]
    test: Mapping[str, tuple[Repeats, ...]]
    overlap: Mapping[str, Mapping[str, tuple[float, ...]]]

    def chosen(self, benchmark: str) -> Recipe:
        """The combination, with its hyper-parameters, that was best on validation."""
        return best(self.validation[benchmark]).recipe

    def on_test(self, benchmark: str, recipe: Recipe) -> Repeats:
        """A recipe's curves on test."""
        return next(one for one in self.test[benchmark] if one.recipe == recipe)


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: a cell for every model and task, tasks first, as the paper's columns."""

    plan: Plan
    cells: tuple[Cell, ...]


def best(repeats: Sequence[Repeats]) -> Repeats:
    """That of the best mean area; of equals the first, which is the simpler."""
    return max(repeats, key=lambda one: BETTER[one.benchmark] * one.mean)


def by_name(repeats: Sequence[Repeats]) -> dict[str, list[Repeats]]:
    """Grouped by combination, in their order: hyper-parameters differ within a group."""
    groups: dict[str, list[Repeats]] = {}
    for one in repeats:
        groups.setdefault(one.recipe.name, []).append(one)
    return groups
