"""Tuning: choose solver, filter and PNR by cross-validation, without ever looking at the test examples.

Every candidate selects circuits from the scores of all folds but one and is evaluated on that one. Scores are rows, so
one scoring pass serves all folds; the folds' examples together make one curve per candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, Bootstrap, Filter, Shrinkage
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, MEASURES, Comparison, Curve, Measure, compare
from ..io.records import convert_record
from ..method import check_is, from_record
from ..runtime.progress import Progress
from ..runtime.session import DEFAULT_SESSION, Session
from ..select import Greedy, Ilp, TopN
from ..tasks import Task
from .curves import evaluate_selections, learn_rankings, rank_edges, select_recipes
from .recipe import GREEDY, TUNED, Recipe, Recipes, combinations
from .settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from ..models import Model

FOLDS = 4
RULE = "the best area of the curve over all held-out examples; of equals the first, which is the simpler"
PNR = (None, 0.4, 0.5, 0.6, 0.8)
KAPPA = (0.5, 1.0, 2.0)
# The usual intervals need more resamples than the paper's rule; they cost rows, not runs.
RESAMPLES = 200


class TuningRecord(TypedDict):
    """What run.json holds of a tuning."""

    folds: int
    examples: int
    rule: str
    chosen: Mapping[str, Mapping[str, Any]]
    candidates: Mapping[str, Sequence[Mapping[str, Any]]]


class ComparisonRecord(TypedDict):
    """What `Comparison.record` writes."""

    difference: float
    low: float
    high: float
    p: float
    confidence: float


@dataclass(frozen=True)
class Candidate:
    """A recipe and its area on the held-out examples: of all folds together, and of each (None if undefined there)."""

    recipe: Recipe
    area: float
    folds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"method": self.recipe.name, **self.recipe.record(), "area": self.area, "folds": list(self.folds)}


@dataclass(frozen=True)
class Tuning:
    """All candidates, by benchmark, in the order in which equals are preferred.

    lead    benchmark -> the best candidate's area less the baseline's, paired over the held-out examples; the best was
            chosen by looking at them, so this flatters it a little, which the test examples don't
    """

    examples: int
    n_folds: int
    candidates: Mapping[Measure, tuple[Candidate, ...]]
    lead: Mapping[Measure, Comparison]

    def best(self, measure: Measure) -> Candidate:
        """The candidate of the best area."""
        return max(self.candidates[measure], key=lambda one: measure.better * one.area)

    def baseline(self, measure: Measure) -> Candidate:
        """What the others must beat: plain greedy, or the first if that isn't among them."""
        return self.candidates[measure][_baseline([one.recipe for one in self.candidates[measure]])]

    @property
    def chosen(self) -> dict[Measure, tuple[Recipe, ...]]:
        """The best candidates' recipes, under a name of their own: benchmark -> recipes."""
        return {b: (replace(self.best(b).recipe, alias=TUNED),) for b in self.candidates}

    def record(self) -> dict[str, Any]:
        """What was chosen and why, as plain data, for JSON."""
        best = {b.name: self.best(b).record() | self._against(b) for b in self.candidates}
        tried = {b.name: [one.record() for one in found] for b, found in self.candidates.items()}
        about = {"folds": self.n_folds, "examples": self.examples, "rule": RULE}
        return about | {"chosen": best, "candidates": tried}

    @classmethod
    def from_record(cls, record: Any) -> Tuning:
        """Return the tuning that `record` wrote."""
        fields: TuningRecord = convert_record(TuningRecord, record, "tuning")
        candidates: dict[Measure, tuple[Candidate, ...]] = {}
        lead: dict[Measure, Comparison] = {}
        for name, listed in fields["candidates"].items():
            measure = from_record("measure", MEASURES, name, Measure)
            candidates[measure] = tuple(
                Candidate(
                    Recipe.from_record({key: c[key] for key in c if key not in ("method", "area", "folds")}),
                    convert_record(float, c.get("area"), "tuning.area"),
                    convert_record(tuple[float | None, ...], c.get("folds"), "tuning.folds"),
                )
                for c in listed
            )
            chosen = fields["chosen"].get(name, {})
            comparison = chosen.get("against_greedy", chosen.get("against_first"))
            values: ComparisonRecord = convert_record(ComparisonRecord, comparison, f"tuning.chosen.{name}")
            lead[measure] = Comparison(measure, **values)
        if not candidates or not all(candidates.values()):
            raise InputError("tuning has no candidates")
        return cls(fields["examples"], fields["folds"], candidates, lead)

    def _against(self, measure: Measure) -> dict[str, Any]:
        lead, recipe = self.lead[measure].record(), self.baseline(measure).recipe
        return {"against_greedy": lead} if recipe == GREEDY else {"against_first": lead, "baseline": recipe.name}

    def __repr__(self) -> str:
        best = ", ".join(f"{b.name} {self.best(b).recipe.name} {self.best(b).area:.4f}" for b in self.candidates)
        return f"Tuning({best}; {self.examples:,} examples in {self.n_folds} folds)"


def tuning_recipes(bootstrap: Bootstrap, time_limit: float | None = None) -> Recipes:
    """What is tried: every solver with every filter and, for CMD, every PNR; `bootstrap` gives level and seed."""
    filters: tuple[Filter, ...] = (
        NO_FILTER,
        replace(bootstrap, interval="paper"),
        replace(bootstrap, interval="normal", resamples=RESAMPLES),
        replace(bootstrap, interval="percentile", resamples=RESAMPLES),
        *(Shrinkage(kappa) for kappa in KAPPA),
    )
    solvers = (Greedy(), TopN(), Ilp(time_limit))
    return {b: combinations(b, solvers, filters, PNR) for b in BOTH_MEASURES}


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
    settings: Settings = DEFAULTS,
    recipes: Recipes | None = None,
    *,
    seed: int = 0,
    session: Session = DEFAULT_SESSION,
) -> Tuning:
    """Cross-validate recipes on a task whose scores [example, edge] are given, row by row.

    recipes  benchmark -> what is tried, in the order in which equals are preferred; others must beat plain greedy, or
             else the first
    """
    recipes = tuning_recipes(settings.bootstrap) if recipes is None else recipes
    check_is("session", Session, session)
    _check(task, scores, recipes)
    tried = [(b, recipe) for b, some in recipes.items() for recipe in some]
    fold_of = np.random.default_rng(seed).permutation(len(task)) % FOLDS
    held = [np.flatnonzero(fold_of == fold) for fold in range(FOLDS)]
    curves: list[list[Curve]] = []
    with session.reporting() as shown:
        for fold, rows in enumerate(held):
            others = np.flatnonzero(fold_of != fold)
            tried_recipes = [recipe for _, recipe in tried]
            learned = learn_rankings(model, task.part(others), tried_recipes, settings, shown)
            ranked = rank_edges(tried, replace(scores, values=scores.values[others]), None, learned)
            within = shown.with_progress(_within(shown.report, fold))
            selections = select_recipes(ranked, settings, within)
            outcomes, _ = evaluate_selections(model, task.part(rows), ranked, selections, settings, within)
            curves.append([outcome.curve for outcome in outcomes])
    order = np.argsort(np.concatenate(held))
    whole = [Curve.concatenate(parts).subset(order) for parts in zip(*curves, strict=True)]
    found_by: dict[Measure, tuple[Candidate, ...]] = {}
    lead = {}
    for b in recipes:
        numbers = [number for number, (measure, _) in enumerate(tried) if measure == b]
        ours = tuple(
            Candidate(tried[n][1], whole[n].area(b), tuple(_area_or_none(part[n], b) for part in curves))
            for n in numbers
        )
        best = max(range(len(ours)), key=lambda place, ours=ours, b=b: b.better * ours[place].area)  # type: ignore[misc]
        base = _baseline([one.recipe for one in ours])
        found_by[b], lead[b] = ours, compare(whole[numbers[best]], whole[numbers[base]], b)
    return Tuning(len(task), FOLDS, found_by, lead)


def _check(task: Task, scores: EdgeScores, recipes: Recipes) -> None:
    """Refuse what can't be tuned with, before any work is done."""
    if scores.n_examples != len(task):
        raise InputError(f"the scores have {scores.n_examples} rows, but task {task.name!r} has {len(task)} examples")
    if len(task) < FOLDS:
        raise InputError(f"tuning needs at least {FOLDS} examples, one a fold, but task {task.name!r} has {len(task)}")
    if not recipes or not all(recipes.values()):
        raise InputError("tuning needs at least one recipe for every benchmark")


def _baseline(recipes: Sequence[Recipe]) -> int:
    return recipes.index(GREEDY) if GREEDY in recipes else 0


def _within(progress: Progress, fold: int) -> Progress:
    """Progress of one fold's evaluation as progress of all."""

    def report(stage: str, done: int, total: int) -> None:
        if stage == "evaluate":
            progress("tune", fold * total + done, FOLDS * total)

    return report


def _area_or_none(curve: Curve, measure: Measure) -> float | None:
    """A small fold may hold examples only that the empty circuit does as well as the model."""
    try:
        return curve.area(measure)
    except InputError:
        return None
