"""The whole flow on one page: model + task -> scores -> ranking -> circuits -> curves.

`discover` calls one function per stage. Recipes say which circuits are selected, and how: a ranking source (scores or a
learner), a filter, a share of positive edges (PNR) and a solver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .core.ranking import Ranking
from .core.scores import EdgeScores
from .core.statistics import NO_FILTER, EdgeStatistics, summarise
from .errors import InputError
from .evaluate import Attention, Measure, record_attention, strongest_heads
from .learn import Learner
from .method import check_is
from .models import Model
from .recipes.curves import evaluate_recipes, evaluate_selected, learn_rankings, rank_edges, score_task
from .recipes.outcome import Competence, Outcome
from .recipes.portfolio import portfolio
from .recipes.recipe import GREEDY, PORTFOLIO, Recipe, Recipes, merge_recipes, name_recipes, paper_recipes
from .recipes.settings import DEFAULTS, Settings
from .recipes.stability import overlap_by_size
from .recipes.tuning import Tuning, tune
from .runtime.session import DEFAULT_SESSION, Session
from .tasks import Task

# Each resample copies the scores: larger ones than this many bytes are not resampled for the overlap.
LARGEST_OVERLAP = 2_000_000_000
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Discovery:
    """The result of a run: its inputs, and everything that it computed.

    scores      of train; `statistics` are those of the settings' bootstrap
    learned     the rankings of recipes that have a learner
    outcomes    of every recipe, by benchmark
    competence  how well the model does the test examples
    tuning      how one more recipe was chosen by cross-validation on train; None if that wasn't requested
    overlap     benchmark -> recipe -> the overlap of circuits over resamples of train [size], NaN where they are empty
    attention   of the exported circuits' heads on a few test examples; None if that wasn't requested
    seconds     that each stage took; stored scores count with the time that computing them took
    """

    model: Model
    train: Task
    test: Task
    settings: Settings
    scores: EdgeScores
    statistics: EdgeStatistics
    learned: Mapping[Learner, Ranking]
    outcomes: tuple[Outcome, ...]
    competence: Competence
    tuning: Tuning | None
    overlap: Mapping[Measure, Mapping[Recipe, FloatArray]]
    attention: Attention | None
    seed: int
    seconds: Mapping[str, float]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that have outcomes."""
        return tuple(dict.fromkeys(outcome.measure for outcome in self.outcomes))

    def of(self, measure: Measure) -> tuple[Outcome, ...]:
        """Return the outcomes of one measure."""
        outcomes = tuple(outcome for outcome in self.outcomes if outcome.measure == measure)
        if not outcomes:
            known = ", ".join(map(repr, self.measures))
            raise InputError(f"no recipe was tried for {measure!r}; this run has {known}")
        return outcomes

    def best(self, measure: Measure) -> Outcome:
        """Return the outcome of the best area: the highest CPR, the lowest CMD."""
        return max(self.of(measure), key=lambda outcome: measure.better * outcome.area)

    def exported(self, measure: Measure) -> Outcome:
        """Return the outcome to take circuits from: one chosen without the evaluated examples (a portfolio, a tuned
        recipe), or else the best, which was chosen on them."""
        return _exported(self.of(measure), measure)

    def __repr__(self) -> str:
        best = "; ".join(f"{b.name} {self.best(b).area:.4f} by {self.best(b).recipe.name}" for b in self.measures)
        return f"Discovery({self.model.name!r} on {self.test.name!r}: {best})"


def discover(
    model: Model,
    train: Task,
    test: Task,
    settings: Settings = DEFAULTS,
    recipes: Recipes | None = None,
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
        Measure -> recipes. By default those of the paper. Recipes with a learner are learned on train.
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
    """
    check_is("session", Session, session)
    if type(attention) is not int or attention < 0:
        raise InputError(f"attention is kept on a number of examples, 0 or more, not {attention!r}")
    recipes = name_recipes(paper_recipes(settings.bootstrap) if recipes is None else recipes)
    clock, tuning = _Clock(), None
    with session.reporting() as session:
        scores = score_task(model, train, settings, session)
        test_scores = score_task(model, test, settings, session) if _resamples_test(recipes) else None
        clock.lap("score")
        statistics = _statistics(scores, test_scores, settings)
        clock.lap("bootstrap")
        if tune_among is not None:
            tuning = tune(model, train, scores, settings, tune_among, seed=seed, session=session)
            recipes = merge_recipes(recipes, tuning.chosen)
        clock.lap("tune")
        choices = [(measure, recipe) for measure, listed in recipes.items() for recipe in listed]
        learned = learn_rankings(model, train, [recipe for _, recipe in choices], settings, session)
        clock.lap("learn")
        ranked = rank_edges(choices, scores, test_scores, learned)
        measured = evaluate_recipes(model, test, ranked, settings, session)
        outcomes = _mark_tuned(measured.outcomes, tuning, train)
        if validation is not None:
            validated, _ = evaluate_selected(model, validation, ranked, measured.selected, settings, session)
            outcomes += tuple(portfolio(validated, measured.outcomes, b, validation.split) for b in recipes)
        clock.lap("measure")
        overlap = _overlap(scores, outcomes, settings, stability, seed, session)
        clock.lap("overlap")
        patterns = _attention(model, test, outcomes, statistics, attention)
        clock.lap("attention")
    scoring = {"score": scores.provenance["seconds"], "total": sum(clock.seconds.values())}
    return Discovery(
        model, train, test, settings, scores, statistics, learned, outcomes, measured.competence, tuning, overlap,
        patterns, seed, {**clock.seconds, **measured.seconds, **scoring},
    )  # fmt: skip


def _mark_tuned(outcomes: tuple[Outcome, ...], tuning: Tuning | None, train: Task) -> tuple[Outcome, ...]:
    """Set `chosen_on` of the outcomes of recipes that tuning chose."""
    tuned = [] if tuning is None else [(b, recipe) for b, listed in tuning.chosen.items() for recipe in listed]
    return tuple(replace(o, chosen_on=train.split) if (o.measure, o.recipe) in tuned else o for o in outcomes)


def _resamples_test(recipes: Recipes) -> bool:
    """Whether a filter resamples the scores of the evaluated examples, as the paper's public script does."""
    return any(recipe.filter.on_evaluated for listed in recipes.values() for recipe in listed)


def _statistics(scores: EdgeScores, test_scores: EdgeScores | None, settings: Settings) -> EdgeStatistics:
    """Return the statistics of the settings' bootstrap, or those without a filter if there is a single example."""
    resampled = test_scores if test_scores is not None and settings.bootstrap.on_evaluated else scores
    return summarise(resampled, settings.bootstrap if resampled.n_examples > 1 else NO_FILTER)


def _exported(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the last outcome that was chosen without the evaluated examples, or else the best."""
    candidates = [outcome for outcome in outcomes if outcome.measure == measure]
    chosen_before = [outcome for outcome in candidates if outcome.chosen_on]
    return chosen_before[-1] if chosen_before else max(candidates, key=lambda outcome: measure.better * outcome.area)


def _overlap(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, session: Session
) -> dict[Measure, dict[Recipe, FloatArray]]:
    """Return the overlap of greedy's circuits and of the exported recipe's, over resamples of the scores."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > LARGEST_OVERLAP:
        return {}
    return {
        b: {
            recipe: overlap_by_size(scores, recipe, b, settings, resamples, seed, session)
            for recipe in dict.fromkeys((GREEDY, _exported(outcomes, b).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't made of rows of scores
        }
        for b in dict.fromkeys(outcome.measure for outcome in outcomes)
    }


def _attention(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, n_examples: int
) -> Attention | None:
    """Return the attention of heads that are in the most exported circuits, the strongest first.

    The examples go from the worst to the best of the first measure's exported circuit.
    """
    exported = [_exported(outcomes, b) for b in dict.fromkeys(outcome.measure for outcome in outcomes)]
    graph, n_circuits = model.graph, np.zeros(model.graph.n_nodes)
    for outcome in exported:
        n_circuits += np.sum([selection.circuit.nodes for selection in outcome.selections], axis=0)
    heads = strongest_heads(graph, np.abs(statistics.mean))
    heads = heads[np.argsort(-n_circuits[heads], kind="stable")]
    measure, curve = exported[0].measure, exported[0].curve
    by_example = curve.definition.of(curve.values[curve.telling], curve.full, curve.empty)
    order = np.argsort(measure.better * measure.height(by_example), kind="stable")  # undefined ones come last
    order = order[: np.count_nonzero(~np.isnan(by_example))]
    spread = np.linspace(0, len(order) - 1, min(n_examples, len(order))).round().astype(int)
    return record_attention(model, test, order[np.unique(spread)].tolist(), heads.tolist())


class _Clock:
    """Measure how long each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._since = now - self._since, now
