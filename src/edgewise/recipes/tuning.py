"""Tuning: choose solver, filter and PNR by cross-validation, without the test examples.

Every candidate selects circuits from the scores of all folds but one and is evaluated on that one. Scores are per
example, so one scoring pass serves all folds. The examples of all folds together make one curve per candidate.
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
from ..io.records import Decoders, convert_record
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
RULE = "the best area of the curve over all held-out examples; ties go to the first, which is the simpler"
PNR = (None, 0.4, 0.5, 0.6, 0.8)
KAPPA = (0.5, 1.0, 2.0)
# Normal and percentile intervals need more resamples than the paper's. They cost no runs of the model.
RESAMPLES = 200


class TuningRecord(TypedDict):
    """What `Tuning.record` writes."""

    folds: int
    examples: int
    rule: str
    chosen: Mapping[str, Mapping[str, Any]]
    candidates: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Candidate:
    """A recipe and its area on the held-out examples: of all folds together, and of each (None if undefined there)."""

    recipe: Recipe
    area: float
    folds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"method": self.recipe.name, **self.recipe.record(), "area": self.area, "folds": list(self.folds)}


@dataclass(frozen=True)
class Tuning:
    """The result of a cross-validation.

    Attributes
    ----------
    candidates
        Measure -> candidates. Ties go to the first.
    lead
        Measure -> the best candidate's area minus the baseline's, paired over the held-out examples. The best was
        chosen on these examples, so this is slightly optimistic.
    """

    examples: int
    n_folds: int
    candidates: Mapping[Measure, tuple[Candidate, ...]]
    lead: Mapping[Measure, Comparison]

    def best(self, measure: Measure) -> Candidate:
        """Return the candidate of the best area."""
        return max(self.candidates[measure], key=lambda candidate: measure.better * candidate.area)

    def baseline(self, measure: Measure) -> Candidate:
        """Return the candidate that others are compared with: greedy, or else the first."""
        return self.candidates[measure][_baseline([candidate.recipe for candidate in self.candidates[measure]])]

    @property
    def chosen(self) -> dict[Measure, tuple[Recipe, ...]]:
        """Measure -> the best candidate's recipe, with the alias 'Tuned'."""
        return {measure: (replace(self.best(measure).recipe, alias=TUNED),) for measure in self.candidates}

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        chosen = {}
        for measure in self.candidates:
            lead, baseline = self.lead[measure].record(), self.baseline(measure).recipe
            against = {"against_greedy": lead} if baseline == GREEDY else {"against_first": lead}
            named = {} if baseline == GREEDY else {"baseline": baseline.name}
            chosen[measure.name] = self.best(measure).record() | against | named
        candidates = {m.name: [candidate.record() for candidate in listed] for m, listed in self.candidates.items()}
        about = {"folds": self.n_folds, "examples": self.examples, "rule": RULE}
        return about | {"chosen": chosen, "candidates": candidates}

    @classmethod
    def from_record(cls, record: Any) -> Tuning:
        """Return the tuning that `record` wrote."""
        fields: TuningRecord = convert_record(TuningRecord, record, "tuning")
        candidates: dict[Measure, tuple[Candidate, ...]] = {}
        lead: dict[Measure, Comparison] = {}
        for name, listed in fields["candidates"].items():
            measure = from_record("measure", MEASURES, name, Measure)
            decoders: Decoders = {Recipe: Recipe.from_record, Measure: lambda _, measure=measure: measure}  # type: ignore[misc]
            candidates[measure] = tuple(
                convert_record(Candidate, _split_recipe(candidate), f"tuning.{name}", decoders) for candidate in listed
            )
            chosen = fields["chosen"].get(name, {})
            compared = chosen.get("against_greedy", chosen.get("against_first"))
            compared = {"measure": name, **compared} if isinstance(compared, Mapping) else compared
            lead[measure] = convert_record(Comparison, compared, f"tuning.chosen.{name}", decoders)
        if not candidates or not all(candidates.values()):
            raise InputError("tuning has no candidates")
        return cls(fields["examples"], fields["folds"], candidates, lead)

    def __repr__(self) -> str:
        best = ", ".join(f"{m.name} {self.best(m).recipe.name} {self.best(m).area:.4f}" for m in self.candidates)
        return f"Tuning({best}; {self.examples:,} examples in {self.n_folds} folds)"


def tuning_recipes(bootstrap: Bootstrap, time_limit: float | None = None) -> Recipes:
    """Return the candidates: every solver with every filter and, for CMD, every PNR.

    Level and seed of the bootstraps are those of `bootstrap`.
    """
    filters: tuple[Filter, ...] = (
        NO_FILTER,
        replace(bootstrap, interval="paper"),
        replace(bootstrap, interval="normal", resamples=RESAMPLES),
        replace(bootstrap, interval="percentile", resamples=RESAMPLES),
        *(Shrinkage(kappa) for kappa in KAPPA),
    )
    solvers = (Greedy(), TopN(), Ilp(time_limit))
    return {measure: combinations(measure, solvers, filters, PNR) for measure in BOTH_MEASURES}


def tuning_task(train: Task, validation: Task, test: Task) -> Task:
    """Return the examples of train and validation, each once, without those that are also in test."""
    tested = set(test.examples)
    examples = tuple(e for e in dict.fromkeys((*train.examples, *validation.examples)) if e not in tested)
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
    """Cross-validate recipes on a task.

    Parameters
    ----------
    scores
        Of the task, [example, edge].
    recipes
        Measure -> candidates, by default `tuning_recipes`. Ties go to the first. They are compared with greedy, or with
        the first if greedy isn't among them.
    seed
        Of the folds.
    """
    recipes = tuning_recipes(settings.bootstrap) if recipes is None else recipes
    check_is("session", Session, session)
    if scores.n_examples != len(task):
        raise InputError(f"the scores have {scores.n_examples} rows, but task {task.name!r} has {len(task)} examples")
    if len(task) < FOLDS:
        raise InputError(f"tuning needs at least {FOLDS} examples, one a fold, but task {task.name!r} has {len(task)}")
    if not recipes or not all(recipes.values()):
        raise InputError("tuning needs at least one recipe for every measure")
    pairs = [(measure, recipe) for measure, listed in recipes.items() for recipe in listed]
    fold_of = np.random.default_rng(seed).permutation(len(task)) % FOLDS
    held_out = [np.flatnonzero(fold_of == fold) for fold in range(FOLDS)]
    curves: list[list[Curve]] = []  # [fold][pair]
    with session.reporting() as session:
        for fold, rows in enumerate(held_out):
            others = np.flatnonzero(fold_of != fold)
            learned = learn_rankings(model, task.part(others), [recipe for _, recipe in pairs], settings, session)
            ranked = rank_edges(pairs, replace(scores, values=scores.values[others]), None, learned)
            within = session.with_progress(_fold_progress(session.report, fold))
            selections = select_recipes(ranked, settings, within)
            outcomes, _ = evaluate_selections(model, task.part(rows), ranked, selections, settings, within)
            curves.append([outcome.curve for outcome in outcomes])
    order = np.argsort(np.concatenate(held_out))
    joined = [Curve.concatenate(folds).subset(order) for folds in zip(*curves, strict=True)]
    candidates: dict[Measure, tuple[Candidate, ...]] = {}
    lead: dict[Measure, Comparison] = {}
    for measure in recipes:
        numbers = [number for number, (tried_for, _) in enumerate(pairs) if tried_for == measure]
        candidates[measure] = tuple(
            Candidate(pairs[n][1], joined[n].area(measure), tuple(_area_or_none(fold[n], measure) for fold in curves))
            for n in numbers
        )
        best = int(np.argmax([measure.better * candidate.area for candidate in candidates[measure]]))
        base = _baseline([candidate.recipe for candidate in candidates[measure]])
        lead[measure] = compare(joined[numbers[best]], joined[numbers[base]], measure)
    return Tuning(len(task), FOLDS, candidates, lead)


def _split_recipe(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate's record with the keys of the recipe in an object of their own."""
    recipe = {key: value for key, value in record.items() if key not in ("method", "area", "folds")}
    return {key: record[key] for key in ("area", "folds") if key in record} | {"recipe": recipe}


def _baseline(recipes: Sequence[Recipe]) -> int:
    return recipes.index(GREEDY) if GREEDY in recipes else 0


def _fold_progress(progress: Progress, fold: int) -> Progress:
    """Report the progress of one fold's evaluation as progress of the tuning."""

    def report(stage: str, done: int, total: int) -> None:
        if stage == "evaluate":
            progress("tune", fold * total + done, FOLDS * total)

    return report


def _area_or_none(curve: Curve, measure: Measure) -> float | None:
    """Return None where faithfulness is undefined, which can happen in a small fold."""
    try:
        return curve.area(measure)
    except InputError:
        return None
