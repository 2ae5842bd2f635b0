"""The whole flow on one page: model + task -> scores -> ranking -> circuits -> curves.

`discover` calls one function per stage and returns a `Discovery`, which is also what a result folder is read back as.
Recipes say how circuits are selected: a ranking source (scores or a learner), a filter, a share of positive edges (PNR)
and a solver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .core.scores import EdgeScores
from .core.statistics import NO_FILTER, EdgeStatistics, summarise
from .errors import InputError
from .evaluate import Attention, Measure, record_attention, strongest_heads
from .method import check_is
from .models import Model
from .recipes.discovery import Discovery
from .recipes.outcome import Outcome, best_outcome, chosen_outcome
from .recipes.recipe import GREEDY, PORTFOLIO, Recipes, list_recipes, paper_recipes
from .recipes.run_info import decode_prompts, describe_run, warn_of_failure
from .recipes.settings import DEFAULTS, Settings
from .recipes.stability import recipe_overlap
from .recipes.stages import (
    MeasureRecipe,
    evaluate_selections,
    learn_rankings,
    portfolio,
    rank_edges,
    score_task,
    select_recipes,
)
from .recipes.tuning import tune
from .recipes.tuning_result import Tuning
from .runtime.session import DEFAULT_SESSION, Session
from .tasks import Task, check_examples
from .tasks.task import warn_of_overlap, warn_of_sample

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
        Measure -> recipes. By default those of the paper, which learn nothing; `edgewise run` adds `learned_recipes()`
        for graphs of at most 2,000 edges, where learning takes seconds. Recipes with a learner are learned on train.
        Recipes of one name get their hyper-parameters as part of it. A list of (measure, recipe) pairs is evaluated in
        its order, and names are left as they are.
    validation
        Examples that choose the recipe of the best area for each measure, which `Discovery.best` returns. If recipes
        have learners, these choose on the same examples, which also choose a portfolio: a recipe for every size.
        Without them and without tuning, the recipe is chosen on test, and its `chosen_on` says so.
    tune_among
        Recipes of which one more per measure is chosen, by cross-validation on train.
    stability
        How often train is resampled for the overlap of circuits. 0 leaves it out.
    attention
        On how many test examples the heads' attention is kept, from the circuit's worst example to its best.
    seed
        The seed of the folds of tuning and of the resamples of `stability`.
    session
        Store, engine and progress. With a store, a stopped call resumes.

    Returns
    -------
    One outcome per measure and recipe, and what they were made from.

    Warns
    -----
    EdgewiseWarning
        If the model fails the task or answers seem swapped, if evaluated examples are few, copies, or also scored.
    """
    check_is("session", Session, session)
    if type(attention) is not int or attention < 0:
        raise InputError(f"attention is kept on a number of examples, 0 or more, not {attention!r}")
    for task in (train, test) if validation is None else (train, test, validation):
        check_examples(model, task)
    settings = replace(settings, metric=settings.metric.for_task(train))
    model = model.pin()
    pairs = list_recipes(paper_recipes(settings.bootstrap) if recipes is None else recipes)
    if settings.positions:
        _check_positions((train, test) if validation is None else (train, test, validation), pairs)
    warn_of_sample(test)
    warn_of_overlap(train, test, "scored")
    if validation is not None:
        warn_of_overlap(validation, test, "used to choose recipes")
    clock = _Clock()
    with session.reporting() as session:
        with clock.stage("score"):
            scores = score_task(model, train, settings, session)
            # The paper's public script resamples the scores of test.
            resamples_test = any(recipe.filter.on_evaluated for _, recipe in pairs)
            test_scores = score_task(model, test, settings, session) if resamples_test else None
        with clock.stage("bootstrap"):
            statistics = _bootstrap(scores, test_scores, settings)
        with clock.stage("tune"):
            tuning = None
            if tune_among is not None:
                tuning = tune(model, train, scores, settings, tune_among, seed=seed, session=session)
            pairs = _add_tuned(pairs, tuning)
        with clock.stage("learn"):
            learned = learn_rankings(model, train, [recipe for _, recipe in pairs], settings, session, validation)
            ranked = rank_edges(pairs, scores, test_scores, learned)
        with clock.stage("select"):
            selections = select_recipes(ranked, settings, session)
        with clock.stage("evaluate"):
            outcomes, accuracy = evaluate_selections(model, test, ranked, selections, settings, session)
            # Scoring has warned already if the metric is lower on clean prompts.
            if scores.provenance["clean_metric"] > scores.provenance["corrupted_metric"]:
                warn_of_failure(accuracy)
            outcomes = _mark_tuned(outcomes, tuning, train.split)
            validated: tuple[Outcome, ...] = ()
            if validation is not None:
                validated, _ = evaluate_selections(model, validation, ranked, selections, settings, session)
                outcomes = _mark_best(outcomes, validated, validation.split)
            if validation is not None and learned:
                outcomes += tuple(portfolio(validated, outcomes, m, validation.split) for m in _measures(outcomes))
            outcomes = _mark_best(outcomes, outcomes, test.split)  # of measures for which nothing has chosen yet
        with clock.stage("overlap"):
            overlap = _overlap(scores, outcomes, settings, stability, seed, session)
        with clock.stage("attention"):
            patterns = _attention(model, test, outcomes, statistics, attention)
    seconds = clock.seconds | {"total": sum(clock.seconds.values()), "score": scores.provenance["seconds"]}
    return Discovery(
        run=describe_run(model, scores.graph, train, test, accuracy, seed, seconds),
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


def _check_positions(tasks: Sequence[Task], pairs: Sequence[MeasureRecipe]) -> None:
    """Raise InputError if tasks or recipes don't allow circuits of (edge, span) pairs."""
    for task in tasks:
        if task.span_names != tasks[0].span_names:
            raise InputError(
                f"split {tasks[0].split} has the spans {', '.join(tasks[0].span_names) or '(none)'}, but {task.split} "
                f"has {', '.join(task.span_names) or '(none)'}; positions need the same spans in all splits"
            )
    if any(recipe.learner is not None for _, recipe in pairs):
        raise InputError("rankings are learned for edges, not for positions; leave out learners, or positions")


class _Clock:
    """The seconds of every stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def _measures(outcomes: Sequence[Outcome]) -> list[Measure]:
    return list(dict.fromkeys(outcome.measure for outcome in outcomes))


def _bootstrap(scores: EdgeScores, test_scores: EdgeScores | None, settings: Settings) -> EdgeStatistics:
    """Return the statistics of the settings' bootstrap. A single example can't be resampled, so it has no filter."""
    resampled = test_scores if test_scores is not None and settings.bootstrap.on_evaluated else scores
    return summarise(resampled, settings.bootstrap if resampled.n_examples > 1 else NO_FILTER)


def _add_tuned(pairs: list[MeasureRecipe], tuning: Tuning | None) -> list[MeasureRecipe]:
    """Return the pairs with the tuned recipe of every measure as the last of its measure."""
    if tuning is None:
        return pairs
    pairs = pairs + [(measure, recipe) for measure, recipes in tuning.chosen.items() for recipe in recipes]
    measures = list(dict.fromkeys(measure for measure, _ in pairs))
    return sorted(pairs, key=lambda pair: measures.index(pair[0]))


def _mark_tuned(outcomes: tuple[Outcome, ...], tuning: Tuning | None, split: str) -> tuple[Outcome, ...]:
    """Set `chosen_on` of the outcomes of tuned recipes."""
    tuned = {} if tuning is None else tuning.chosen
    return tuple(replace(o, chosen_on=split) if o.recipe in tuned.get(o.measure, ()) else o for o in outcomes)


def _mark_best(outcomes: tuple[Outcome, ...], judged: Sequence[Outcome], split: str) -> tuple[Outcome, ...]:
    """Set `chosen_on` of the outcome that is best in `judged`, for measures with several recipes and none chosen.

    `judged` are outcomes of the same recipes in the same order, on the examples of `split`.
    """
    marked = list(outcomes)
    for measure in _measures(outcomes):
        rows = [row for row, outcome in enumerate(outcomes) if outcome.measure == measure]
        if len(rows) > 1 and chosen_outcome(outcomes, measure) is None:
            best = max(rows, key=lambda row: measure.better * judged[row].area)
            marked[best] = replace(outcomes[best], chosen_on=split)
    return tuple(marked)


def _chosen(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the outcome that was chosen for a measure, or the only one."""
    return chosen_outcome(outcomes, measure) or best_outcome(outcomes, measure)


def _overlap(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, session: Session
) -> dict[Measure, dict[str, FloatArray]]:
    """Return the overlap of greedy's circuits and of the chosen recipe's, over resamples of the scores."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > MAX_OVERLAP_BYTES:
        return {}
    return {
        measure: {
            recipe.name: recipe_overlap(scores, recipe, measure, settings, resamples, seed, session.store)
            for recipe in dict.fromkeys((GREEDY, _chosen(outcomes, measure).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't selected from resampled scores
        }
        for measure in _measures(outcomes)
    }


def _attention(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, n_examples: int
) -> Attention | None:
    """Return the attention of heads that are in the most circuits of the chosen recipes, the strongest first.

    The examples go from the worst to the best of the first measure's chosen circuit.
    """
    if not n_examples:
        return None
    chosen = [_chosen(outcomes, measure) for measure in _measures(outcomes)]
    n_circuits = np.zeros(model.graph.n_nodes)
    for outcome in chosen:
        n_circuits += np.sum([circuit.plain().node_mask for circuit in outcome.circuits], axis=0)
    heads = strongest_heads(model.graph, statistics.graph.plain_score(np.abs(statistics.mean)))
    heads = heads[np.argsort(-n_circuits[heads], kind="stable")]
    measure, curve = chosen[0].measure, chosen[0].curve
    by_example = curve.definition.compute(curve.values[chosen[0].default_size], curve.full, curve.empty)
    order = np.argsort(measure.better * measure.height(by_example), kind="stable")  # undefined ones come last
    order = order[: np.count_nonzero(~np.isnan(by_example))]
    spread = np.linspace(0, len(order) - 1, min(n_examples, len(order))).round().astype(int)
    return record_attention(model, test, order[np.unique(spread)].tolist(), heads.tolist())
