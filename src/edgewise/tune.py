"""Tuning: choose solver, filter and PNR by cross-validation, without ever looking at the test examples.

Every candidate selects circuits from the scores of all folds but one and is evaluated on that one. Scores are rows, so
one scoring pass serves all folds; the folds' examples together make one curve per candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .circuit import Circuit
from .errors import InputError
from .evaluate.curve import BETTER, Curve, size_to_edges
from .evaluate.intervals import Comparison, compare
from .evaluate.verb import evaluate_circuits
from .models import Model
from .recipes import RANK_OF, Recipe, Settings, select_circuits
from .scores import EdgeScores
from .statistics import Bootstrap, Filter, Shrinkage, summarise
from .tasks import Task

Progress = Callable[[str, int, int], None]
FOLDS = 4
TUNED = "Tuned"
RULE = "the best area of the curve over all held-out examples; of equals the first, which is the simpler"
SOLVERS = ("greedy", "top-n", "ilp")
PNR = (None, 0.4, 0.5, 0.6, 0.8)
KAPPA = (0.5, 1.0, 2.0)
# The usual intervals need more resamples than the paper's rule; they cost rows, not runs.
RESAMPLES = 200


@dataclass(frozen=True)
class Candidate:
    """A recipe and its area on the held-out examples: of all folds together, and of each (None if undefined there)."""

    recipe: Recipe
    area: float
    folds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        recipe = self.recipe
        kind = None if recipe.filter is None else {"kind": type(recipe.filter).__name__, **vars(recipe.filter)}
        about = {"method": recipe.name, "solver": recipe.solver, "filter": kind, "pnr": recipe.pnr}
        return about | {"area": self.area, "folds": list(self.folds)}


@dataclass(frozen=True)
class Tuning:
    """All candidates, by benchmark, in the order in which equals are preferred.

    lead    benchmark -> the best candidate's area less greedy's, paired over the held-out examples; the best was chosen
            by looking at them, so this flatters it a little, which the test examples don't
    """

    examples: int
    n_folds: int
    candidates: Mapping[str, tuple[Candidate, ...]]
    lead: Mapping[str, Comparison]

    def best(self, benchmark: str) -> Candidate:
        """The candidate of the best area."""
        return max(self.candidates[benchmark], key=lambda one: BETTER[benchmark] * one.area)

    def chosen(self, benchmark: str) -> Recipe:
        """The best candidate's recipe, under a name of its own."""
        return replace(self.best(benchmark).recipe, alias=TUNED)

    def record(self) -> dict[str, Any]:
        """What was chosen and why, as plain data, for JSON."""
        return {
            "folds": self.n_folds,
            "examples": self.examples,
            "rule": RULE,
            "chosen": {b: self.best(b).record() | {"against_greedy": self.lead[b].record()} for b in self.candidates},
            "candidates": {b: [one.record() for one in found] for b, found in self.candidates.items()},
        }


def candidates(bootstrap: Bootstrap, benchmark: str) -> tuple[Recipe, ...]:
    """What is tried: every solver with every filter and, for CMD, every PNR; `bootstrap` gives level and seed."""
    filters: tuple[Filter | None, ...] = (
        None,
        replace(bootstrap, interval="paper"),
        replace(bootstrap, interval="normal", resamples=RESAMPLES),
        replace(bootstrap, interval="percentile", resamples=RESAMPLES),
        *(Shrinkage(kappa) for kappa in KAPPA),
    )
    shares = PNR if benchmark == "CMD" else (None,)
    return tuple(Recipe(solver, way, pnr) for solver in SOLVERS for way in filters for pnr in shares)


def tuning_task(train: Task, validation: Task, test: Task) -> Task:
    """The examples of train and validation, each once, without any that is also one of test's."""
    kept = set(test.examples)
    examples = tuple(e for e in dict.fromkeys((*train.examples, *validation.examples)) if e not in kept)
    if len(examples) < 2 * FOLDS:
        raise InputError(
            f"task {train.name!r} has {len(examples)} examples of train and validation that aren't also test's, but "
            f"tuning needs at least {2 * FOLDS}; give the file a `split` column, or leave --tune out"
        )
    return Task(train.name, "train + validation", examples)


def tune(
    model: Model,
    task: Task,
    scores: EdgeScores,
    settings: Settings,
    progress: Progress = lambda stage, done, total: None,
    seed: int = 0,
) -> Tuning:
    """Cross-validate all candidates on a task whose scores [example, edge] are given, row by row."""
    tried = [(b, recipe) for b in RANK_OF for recipe in candidates(settings.bootstrap, b)]
    fold_of = np.random.default_rng(seed).permutation(len(task)) % FOLDS
    values = np.empty((len(tried), len(settings.sizes), len(task)))
    full, empty = np.empty((2, len(task)))
    progress("tune", 0, FOLDS)
    for fold in range(FOLDS):
        held = np.flatnonzero(fold_of == fold)
        rows = replace(scores, values=scores.values[fold_of != fold])
        chosen = _select(rows, tried, settings)
        circuits = list(dict.fromkeys(circuit for row in chosen for circuit in row))
        place = {circuit: number for number, circuit in enumerate(circuits)}
        part = Task(task.name, task.split, tuple(task.examples[row] for row in held))
        found = evaluate_circuits(
            model, part, circuits, settings.metric, settings.ablation, settings.batch_size,
            _within(progress, fold), settings.memory,
        )  # fmt: skip
        full[held], empty[held] = found.full, found.empty
        values[:, :, held] = found.values[[[place[circuit] for circuit in row] for row in chosen]]
    asked = tuple(size_to_edges(share, model.graph.n_edges) for share in settings.sizes)

    def curve(number: int, where: slice | NDArray[np.intp] = slice(None)) -> Curve:
        part = values[number][:, where]
        return Curve(settings.sizes, asked, asked, part, full[where], empty[where], settings.faithfulness)

    parts = [np.flatnonzero(fold_of == fold) for fold in range(FOLDS)]
    found_by: dict[str, list[Candidate]] = {b: [] for b in RANK_OF}
    lead = {}
    for benchmark, ours in found_by.items():
        numbers = [number for number, (b, _) in enumerate(tried) if b == benchmark]
        for number in numbers:
            folds = tuple(_area_or_none(curve(number, where), benchmark) for where in parts)
            ours.append(Candidate(tried[number][1], curve(number).area(benchmark), folds))
        best = max(range(len(ours)), key=lambda place: BETTER[benchmark] * ours[place].area)
        lead[benchmark] = compare(curve(numbers[best]), curve(numbers[0]), benchmark)
    return Tuning(len(task), FOLDS, {b: tuple(found) for b, found in found_by.items()}, lead)


def _within(progress: Progress, fold: int) -> Callable[[int, int], None]:
    """Progress of one fold as progress of all."""
    return lambda done, total: progress("tune", fold * total + done, FOLDS * total)


def _area_or_none(curve: Curve, benchmark: str) -> float | None:
    """A small fold may hold examples only that the empty circuit does as well as the model."""
    try:
        return curve.area(benchmark)
    except InputError:
        return None


def _select(rows: EdgeScores, tried: list[tuple[str, Recipe]], settings: Settings) -> list[list[Circuit]]:
    """Every candidate's circuits, one per size."""
    statistics = {way: summarise(rows, way) for way in dict.fromkeys(recipe.filter for _, recipe in tried)}
    return [
        [s.circuit for s in select_circuits(statistics[recipe.filter], recipe, benchmark, settings)]
        for benchmark, recipe in tried
    ]
