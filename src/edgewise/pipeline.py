"""The whole flow on one page: model + task -> scores -> ranking -> circuits -> curves.

`discover` calls one function per stage and returns a `Discovery`, which is also what a result folder is read back as.
Recipes say how circuits are selected: a ranking source (scores or a learner), a filter, a share of positive edges (PNR)
and a solver.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .core.scores import EdgeScores
from .core.statistics import NO_FILTER, EdgeStatistics, summarise
from .errors import InputError
from .evaluate import Attention, Measure, record_attention, strongest_heads
from .method import check_is
from .models import Model
from .recipes.curves import (
    MeasureRecipe,
    evaluate_selections,
    learn_rankings,
    portfolio,
    rank_edges,
    score_task,
    select_recipes,
)
from .recipes.discovery import Discovery, Outcome, decode_prompts, describe_run, exported_outcome
from .recipes.recipe import GREEDY, PORTFOLIO, Recipes, list_recipes, paper_recipes
from .recipes.settings import DEFAULTS, Settings
from .recipes.stability import recipe_overlap
from .recipes.tuning import tune
from .runtime.session import DEFAULT_SESSION, Session
from .tasks import Task

# Each resample copies the scores: larger ones than this many bytes are not resampled for the overlap.
MAX_OVERLAP_BYTES = 2_000_000_000
FloatArray = NDArray[np.float64]


def discover(
    model: Model,
    train: Task,
    test: Task,
    settings: Settings = DEFAULTS,
    recipes: Recipes | Sequence[MeasureRecipe] | None = None,
    *,
    validation: Task | None = None,
    tune_among: Recipes | None = None,
    stability: int = 0,
    attention: int = 3,
    seed: int = 0,
    session: Session = DEFAULT_SESSION,
) -> Discovery:
    """Score edges on `train`, select circuits by every recipe at every size, evaluate them on `test`.

    Parameters
    ----------
    recipes
        Measure -> recipes. By default those of the paper. Recipes with a learner are learned on train. Recipes of one
        name get their hyper-parameters as part of it. A list of (measure, recipe) pairs is evaluated in its order, and
        names are left as they are.
    validation
        Examples by which a portfolio chooses the best recipe of every size. None leaves the portfolio out.
    tune_among
        Recipes of which one more per measure is chosen, by cross-validation on train.
    stability
        How often train is resampled for the overlap of circuits. 0 leaves it out.
    attention
        On how many test examples the heads' attention is kept, from the circuit's worst example to its best.
    seed
        Of the folds of tuning and of the resamples of `stability`.
    session
        Store, engine and progress. With a store, a stopped call resumes.

    Returns
    -------
    One outcome per measure and recipe, and what they were made from.
    """
    check_is("session", Session, session)
    if type(attention) is not int or attention < 0:
        raise InputError(f"attention is kept on a number of examples, 0 or more, not {attention!r}")
    pairs = list_recipes(paper_recipes(settings.bootstrap) if recipes is None else recipes)
    seconds: dict[str, float] = {}
    started = time.perf_counter()

    def end_stage(stage: str) -> None:
        seconds[stage] = time.perf_counter() - started - sum(seconds.values())

    with session.reporting() as session:
        scores, test_scores = score_task(model, train, settings, session), None
        if any(recipe.filter.on_evaluated for _, recipe in pairs):  # as the paper's public script does
            test_scores = score_task(model, test, settings, session)
        end_stage("score")
        resampled = test_scores if test_scores is not None and settings.bootstrap.on_evaluated else scores
        # A single example can't be resampled.
        statistics = summarise(resampled, settings.bootstrap if resampled.n_examples > 1 else NO_FILTER)
        end_stage("bootstrap")
        tuning, tuned = None, {}
        if tune_among is not None:
            tuning = tune(model, train, scores, settings, tune_among, seed=seed, session=session)
            tuned = tuning.chosen
            pairs += [(measure, recipe) for measure, recipes in tuned.items() for recipe in recipes]
            measures = list(dict.fromkeys(measure for measure, _ in pairs))
            pairs.sort(key=lambda pair: measures.index(pair[0]))  # the tuned recipe is the last of its measure
        end_stage("tune")
        learned = learn_rankings(model, train, [recipe for _, recipe in pairs], settings, session)
        ranked = rank_edges(pairs, scores, test_scores, learned)
        end_stage("learn")
        selections = select_recipes(ranked, settings, session)
        end_stage("select")
        outcomes, accuracy = evaluate_selections(model, test, ranked, selections, settings, session)
        outcomes = tuple(
            replace(o, chosen_on=train.split) if o.recipe in tuned.get(o.measure, ()) else o for o in outcomes
        )
        if validation is not None:
            validated, _ = evaluate_selections(model, validation, ranked, selections, settings, session)
            measures = list(dict.fromkeys(outcome.measure for outcome in outcomes))
            outcomes += tuple(portfolio(validated, outcomes, m, validation.split) for m in measures)
        end_stage("evaluate")
        overlap = _overlap(scores, outcomes, settings, stability, seed, session)
        end_stage("overlap")
        patterns = _attention(model, test, outcomes, statistics, attention)
        end_stage("attention")
    seconds |= {"total": sum(seconds.values()), "score": scores.provenance["seconds"]}
    return Discovery(
        run=describe_run(model, train, test, accuracy, seed, seconds),
        settings=settings,
        statistics=statistics,
        outcomes=outcomes,
        learned=learned,
        tuning=tuning,
        overlap=overlap,
        prompts=decode_prompts(test.examples, model.tokenizer),
        attention=patterns,
        load_scores=lambda: scores,
    )


def _overlap(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, session: Session
) -> dict[Measure, dict[str, FloatArray]]:
    """Return the overlap of greedy's circuits and of the exported recipe's, over resamples of the scores."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > MAX_OVERLAP_BYTES:
        return {}
    return {
        measure: {
            recipe.name: recipe_overlap(scores, recipe, measure, settings, resamples, seed, session.store)
            for recipe in dict.fromkeys((GREEDY, exported_outcome(outcomes, measure).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't selected from resampled scores
        }
        for measure in dict.fromkeys(outcome.measure for outcome in outcomes)
    }


def _attention(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, n_examples: int
) -> Attention | None:
    """Return the attention of heads that are in the most exported circuits, the strongest first.

    The examples go from the worst to the best of the first measure's exported circuit.
    """
    if not n_examples:
        return None
    measures = dict.fromkeys(outcome.measure for outcome in outcomes)
    exported = [exported_outcome(outcomes, measure) for measure in measures]
    n_circuits = np.zeros(model.graph.n_nodes)
    for outcome in exported:
        n_circuits += np.sum([circuit.nodes for circuit in outcome.circuits], axis=0)
    heads = strongest_heads(model.graph, np.abs(statistics.mean))
    heads = heads[np.argsort(-n_circuits[heads], kind="stable")]
    measure, curve = exported[0].measure, exported[0].curve
    by_example = curve.definition.compute(curve.values[curve.default_size], curve.full, curve.empty)
    order = np.argsort(measure.better * measure.height(by_example), kind="stable")  # undefined ones come last
    order = order[: np.count_nonzero(~np.isnan(by_example))]
    spread = np.linspace(0, len(order) - 1, min(n_examples, len(order))).round().astype(int)
    return record_attention(model, test, order[np.unique(spread)].tolist(), heads.tolist())
