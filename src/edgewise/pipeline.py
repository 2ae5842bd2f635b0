"""The whole flow on one page: model + task -> scores -> ranking -> circuits -> curves.

`discover` calls one function per stage and returns a `Discovery`, which is also what a result folder is read back as.
Recipes say how circuits are selected: a ranking source (scores or a learner), a filter, a share of positive edges (PNR)
and a solver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .core.ranking import Ranking
from .errors import InputError
from .evaluate import Measure
from .learn import TopKLearner
from .method import check_is
from .models import Model
from .recipes import stages
from .recipes.discovery import Discovery, Outcome
from .recipes.forecast import check_minutes, plan_learning
from .recipes.recipe import Recipes, calibrated_recipes, learned_recipes, list_recipes, merge_recipes, paper_recipes
from .recipes.run_info import decode_prompts, describe_run, warn_of_failure
from .recipes.settings import DEFAULTS, LEARN_MINUTES, Settings
from .recipes.tuning import tune
from .runtime.session import DEFAULT_SESSION, Session
from .tasks import Task, check_examples
from .tasks.checks import warn_of_overlap, warn_of_sample


def discover(
    model: Model,
    train: Task,
    test: Task,
    settings: Settings = DEFAULTS,
    recipes: Recipes | Sequence[stages.MeasureRecipe] | None = None,
    *,
    validation: Task | None = None,
    tune_among: Recipes | None = None,
    learn_budget: float = LEARN_MINUTES,
    learn_from: Mapping[Measure, Ranking] | None = None,
    stability: int = 0,
    attention: int = 3,
    seed: int = 0,
    made_from: Mapping[str, Any] | None = None,
    session: Session = DEFAULT_SESSION,
) -> Discovery:
    """Score edges on `train`, select circuits by every recipe at every size, evaluate them on `test`.

    Parameters
    ----------
    recipes
        Measure -> recipes. By default those of the paper, and those on learned rankings if they can be learned within
        `learn_budget`. Recipes with a learner are learned on train. If recipes share a name, their hyper-parameters are
        added to it. A list of (measure, recipe) pairs is evaluated in its order, and names are left as they are.
    validation
        Examples that choose the recipe of the best area for each measure, which `Discovery.best` returns. Learners use
        the same examples to choose their parameters. If there are learners, a portfolio is also chosen: one recipe per
        size. Without validation and without tuning, the recipe is chosen on test, and its `chosen_on` says so.
    tune_among
        Recipes of which one more per measure is chosen, by cross-validation on train.
    learn_budget
        Minutes for learning the rankings of both measures, if no recipes are given; 0 for no learning. The number of
        steps is adapted to the budget; if too few fit, scores are only calibrated. Given recipes are learned as they
        are.
    learn_from
        Measure -> ranking that learning starts from, instead of scores. `read_start(folder)` reads those of a run.
    stability
        Number of resamples of train for the overlap of circuits. 0: no overlap.
    attention
        Number of test examples on which the heads' attention is recorded, from the circuit's worst example to its best.
    seed
        Seed of the folds of tuning and of the resamples of `stability`.
    made_from
        Inputs to record in the result (`RunInfo.made_from`), as plain data.
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
    if not isinstance(settings, Settings):
        raise InputError(f"settings must be Settings, not {settings!r}; recipes and validation are given by name")
    if type(attention) is not int or attention < 0:
        raise InputError(f"attention must be a whole number of examples, at least 0, not {attention!r}")
    check_minutes(learn_budget)
    _check_tasks(model, train, test, validation, settings)
    settings = replace(settings, metric=settings.metric.for_task(train.join(test, validation)))
    model, clock = model.pin(), _Clock()
    if recipes is None:
        recipes = _default_recipes(model, train, settings, learn_budget, seed, session)
    pairs = list_recipes(recipes)
    for learner in {recipe.learner for _, recipe in pairs if recipe.learner is not None}:
        learner.check_kind(settings.positions, settings.level)
    with session.reporting() as session:
        with clock.stage("score"):
            scores, test_scores = stages.score_tasks(model, train, test, pairs, settings, session)
        with clock.stage("tune"):
            tuning = None
            if tune_among is not None:
                tuning = tune(model, train, scores, settings, tune_among, seed=seed, session=session)
            pairs = stages.add_tuned(pairs, tuning)
        with clock.stage("learn"):
            learned = stages.learn_rankings(model, train, pairs, settings, session, validation, learn_from)
        with clock.stage("rank"):
            reported = stages.choose_reported_filter(settings.bootstrap, scores, test_scores)
            filters = [reported, *(recipe.filter for _, recipe in pairs)]
            by_filter = stages.summarise_filters(filters, scores, test_scores)
            ranked = stages.attach_rankings(pairs, by_filter, learned)
        with clock.stage("select"):
            selections = stages.select_recipes(ranked, settings, session)
        with clock.stage("evaluate"):
            outcomes, accuracy = stages.evaluate_selections(model, test, ranked, selections, settings, session)
            validated: tuple[Outcome, ...] = ()
            if validation is not None:
                validated, _ = stages.evaluate_selections(model, validation, ranked, selections, settings, session)
            if stages.prefers_clean(scores):  # otherwise scoring has warned already
                warn_of_failure(accuracy)
        outcomes = stages.choose_outcomes(outcomes, validated, tuning, train, test, validation)
        with clock.stage("overlap"):
            overlap = stages.overlap_of_chosen(scores, outcomes, settings, stability, seed, session)
        with clock.stage("attention"):
            patterns = stages.attention_of_chosen(model, test, outcomes, by_filter[reported], attention)
    # The total is of this call. Scoring counts the time of earlier calls that were stopped, too.
    seconds = clock.seconds | {"total": sum(clock.seconds.values()), "score": scores.provenance["seconds"]}
    return Discovery(
        run=describe_run(model, scores.graph, train, test, accuracy, seed, seconds, made_from or {}),
        settings=settings,
        statistics=by_filter[reported],
        outcomes=outcomes,
        learned=learned,
        tuning=tuning,
        overlap=overlap,
        prompts=decode_prompts(test.examples, model.tokenizer, settings.positions),
        attention=patterns,
        load_scores=lambda: scores,
    )


def _default_recipes(
    model: Model, train: Task, settings: Settings, learn_budget: float, seed: int, session: Session
) -> Recipes:
    """Return the paper's recipes, and those on learned or calibrated rankings, whichever fit into the budget."""
    recipes = paper_recipes(settings.bootstrap)
    if not learn_budget or not settings.can_learn:
        return recipes
    plan = plan_learning(model, train, settings, TopKLearner(seed=seed), learn_budget, session)
    return merge_recipes(recipes, calibrated_recipes() if plan.learner is None else learned_recipes(plan.learner))


def _check_tasks(model: Model, train: Task, test: Task, validation: Task | None, settings: Settings) -> None:
    """Raise InputError if the tasks can't be used. Warn of few, repeated or shared examples."""
    tasks = (train, test) if validation is None else (train, test, validation)
    for task in tasks:
        check_examples(model, task)
        if settings.positions and task.span_names != train.span_names:
            raise InputError(
                f"split {train.split} has the spans {', '.join(train.span_names) or '(none)'}, but {task.split} has "
                f"{', '.join(task.span_names) or '(none)'}; positions need the same spans in all splits"
            )
    warn_of_sample(test)
    warn_of_overlap(train, test, "scored")
    if validation is not None:
        warn_of_overlap(validation, test, "used to choose recipes")


class _Clock:
    """The seconds of every stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
