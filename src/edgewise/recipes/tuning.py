"""Tuning: choose solver, filter and PNR by cross-validation, without the test examples.

Every candidate selects circuits from the scores of all folds but one and is evaluated on that one. Scores are per
example, so one scoring pass serves all folds. The examples of all folds together make one curve per candidate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, Bootstrap, Filter, Shrinkage
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Comparison, Curve, Measure, compare
from ..method import check_is
from ..runtime.progress import ignore_progress
from ..runtime.session import DEFAULT_SESSION, Session
from ..select import Greedy, Ilp, TopN
from ..tasks import Task
from .discovery import Candidate, Tuning, find_baseline
from .recipe import Recipes, combinations
from .settings import DEFAULTS, Settings
from .stages import attach_rankings, evaluate_selections, learn_rankings, select_recipes, summarise_filters

if TYPE_CHECKING:
    from ..models import Model

FOLDS = 4
PNR = (None, 0.4, 0.5, 0.6, 0.8)
KAPPA = (0.5, 1.0, 2.0)
# Normal and percentile intervals need more resamples than the paper's. They cost no runs of the model.
RESAMPLES = 200


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
    """Return the examples of train and validation, each once, without those that share a prompt with test."""
    distinct = dict.fromkeys((*train.examples, *validation.examples))
    examples = tuple(example for example in distinct if not test.has_prompt_of(example))
    if len(examples) < 2 * FOLDS:
        raise InputError(
            f"task {train.name!r} has {len(examples)} examples of train and validation that aren't also test's, but "
            f"tuning needs at least {2 * FOLDS}; give the file a `split` column, or leave tuning out"
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
        measure -> candidates, by default `tuning_recipes`. Ties go to the first. They are compared with greedy, or with
        the first if greedy isn't among them.
    seed
        Of the folds.

    Returns
    -------
    Tuning
        All candidates with their areas on held-out examples, and the best recipe of each measure.

    Examples
    --------
    >>> edgewise.tune(model, train, edgewise.score_edges(model, train)).chosen
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
    by_fold: list[list[Curve]] = []  # [fold][pair]
    with session.reporting() as session:
        quiet = session.with_progress(ignore_progress)
        for rows in held_out:
            session.report("tune", len(by_fold), FOLDS)
            others = np.setdiff1d(np.arange(len(task)), rows)
            learned = learn_rankings(model, task.part(others), pairs, settings, session)
            by_filter = summarise_filters(
                [recipe.filter for _, recipe in pairs], replace(scores, values=scores.values[others])
            )
            ranked = attach_rankings(pairs, by_filter, learned)
            selections = select_recipes(ranked, settings, quiet)
            outcomes, _ = evaluate_selections(model, task.part(rows), ranked, selections, settings, quiet)
            by_fold.append([outcome.curve for outcome in outcomes])
        session.report("tune", FOLDS, FOLDS)
    order = np.argsort(np.concatenate(held_out))
    curves = [Curve.concatenate(folds).subset(order) for folds in zip(*by_fold, strict=True)]
    candidates: dict[Measure, tuple[Candidate, ...]] = {}
    lead: dict[Measure, Comparison] = {}
    for measure, listed in recipes.items():
        first = pairs.index((measure, listed[0]))
        candidates[measure] = tuple(
            Candidate(recipe, curves[n].area(measure), tuple(_area_or_none(fold[n], measure) for fold in by_fold))
            for n, recipe in enumerate(listed, start=first)
        )
        best = int(np.argmax([measure.better * candidate.area for candidate in candidates[measure]]))
        lead[measure] = compare(curves[first + best], curves[first + find_baseline(listed)], measure)
    return Tuning(len(task), FOLDS, candidates, lead)


def _area_or_none(curve: Curve, measure: Measure) -> float | None:
    """Return None where faithfulness is undefined, which can happen in a small fold."""
    try:
        return curve.area(measure)
    except InputError:
        return None
