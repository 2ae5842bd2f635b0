"""The whole flow on one page: model + task -> score -> ranking -> select -> circuit -> evaluate -> curve.

Which circuits are selected, and how, is said by recipes: compositions of filter, PNR and solver, or of learner and
solver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .evaluate import Attention, Benchmark, look, strongest_heads
from .learn import Learned
from .methods import check_is
from .models import Model
from .progress import Progress, showing
from .ranking import Ranking
from .scores import EdgeScores
from .statistics import NO_FILTER, EdgeStatistics, summarise
from .store import NOTHING, Store
from .study import (
    DEFAULTS,
    GREEDY,
    PORTFOLIO,
    Competence,
    Outcome,
    Recipe,
    Recipes,
    Settings,
    Tuning,
    enter,
    learners,
    measure,
    merged,
    paper_recipes,
    portfolio,
    told_apart,
    trace,
    tune,
)
from .study.remember import learn, overlap_by_size, score
from .tasks import Task

# Each resample is a copy of the rows of scores: not worth it beyond this many bytes.
LARGEST_OVERLAP = 2_000_000_000
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Discovery:
    """Everything that a run found, and what it was told.

    scores      of train; `statistics` are those of the settings' bootstrap
    learned     the rankings of recipes that have a learner
    outcomes    of every recipe, by benchmark
    competence  how well the model does the test examples
    tuning      how one more recipe was chosen by cross-validation on train; None if it wasn't asked for
    overlap     benchmark -> recipe -> the overlap of circuits over resamples of train [size], NaN where they are empty
    attention   of the exported circuits' heads on a few test examples; None if it wasn't asked for
    seconds     that each stage took; scores that were found rather than made count as long as making them took
    """

    model: Model
    train: Task
    test: Task
    settings: Settings
    scores: EdgeScores
    statistics: EdgeStatistics
    learned: Mapping[Learned, Ranking]
    outcomes: tuple[Outcome, ...]
    competence: Competence
    tuning: Tuning | None
    overlap: Mapping[Benchmark, Mapping[Recipe, FloatArray]]
    attention: Attention | None
    seed: int
    seconds: Mapping[str, float]

    @property
    def benchmarks(self) -> tuple[Benchmark, ...]:
        """Those that recipes were tried for."""
        return tuple(dict.fromkeys(outcome.benchmark for outcome in self.outcomes))

    def of(self, benchmark: Benchmark) -> tuple[Outcome, ...]:
        """The outcomes of one benchmark."""
        found = tuple(outcome for outcome in self.outcomes if outcome.benchmark == benchmark)
        if not found:
            known = ", ".join(repr(one) for one in self.benchmarks)
            raise InputError(f"no recipe was tried for {benchmark!r}; this run has {known}")
        return found

    def best(self, benchmark: Benchmark) -> Outcome:
        """The outcome of the highest CPR or the lowest CMD."""
        return max(self.of(benchmark), key=lambda outcome: benchmark.better * outcome.area)

    def exported(self, benchmark: Benchmark) -> Outcome:
        """The outcome to take circuits from: one that was chosen beforehand (a portfolio, a tuned recipe), or else the
        best, which looks at the evaluated examples to choose."""
        return _exported(self.of(benchmark), benchmark)

    def __repr__(self) -> str:
        best = "; ".join(f"{b.name} {self.best(b).area:.4f} by {self.best(b).recipe.name}" for b in self.benchmarks)
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
    store: Store = NOTHING,
    progress: Progress | None = None,
) -> Discovery:
    """Score edges on `train`, select circuits by every recipe at every size, evaluate them on `test`.

    recipes     benchmark -> recipes, of one's own; by default the paper's. Those with a learner are learned on train
    validation  examples by which a portfolio chooses the best recipe of every size; None leaves it out
    tune_among  recipes of which one more per benchmark is chosen, by cross-validation on train
    stability   how often train is resampled for the overlap of circuits; 0 leaves it out
    attention   on how many test examples the heads' attention is kept, from where the circuit does worst to best
    seed        of the folds and of those resamples
    store       where finished work is kept and found
    """
    check_is("store", Store, store)
    if type(attention) is not int or attention < 0:
        raise InputError(f"attention is kept on a number of examples, 0 or more, not {attention!r}")
    chosen = told_apart(paper_recipes(settings.bootstrap) if recipes is None else recipes)
    clock, tuning = _Clock(), None
    with showing(progress) as report:
        scores = score(model, train, settings, store, report)
        evaluated = score(model, test, settings, store, report) if _on_evaluated(chosen) else None
        clock.lap("score")
        statistics = _statistics(scores, evaluated, settings)
        clock.lap("bootstrap")
        if tune_among is not None:
            tuning = tune(model, train, scores, settings, tune_among, store=store, progress=report, seed=seed)
            chosen = merged(chosen, tuning.chosen)
        clock.lap("tune")
        choices = [(b, recipe) for b, some in chosen.items() for recipe in some]
        learned = {one: learn(model, train, one, settings, store, report) for one in learners(r for _, r in choices)}
        clock.lap("learn")
        contenders = enter(choices, scores, evaluated, learned)
        measured = measure(model, test, contenders, settings, store, report)
        outcomes = _named(measured.outcomes, tuning, train)
        if validation is not None:
            seen, _ = trace(model, validation, contenders, measured.selected, settings, store, report)
            outcomes += tuple(portfolio(seen, measured.outcomes, b, validation.split) for b in chosen)
        clock.lap("measure")
        overlap = _overlap(scores, outcomes, settings, stability, seed, store)
        clock.lap("overlap")
        seen_by_heads = _attention(model, test, outcomes, statistics, attention)
        clock.lap("attention")
    made = {"score": scores.provenance["seconds"], "total": sum(clock.seconds.values())}
    seconds = {**clock.seconds, **measured.seconds, **made}
    return Discovery(
        model, train, test, settings, scores, statistics, learned, outcomes, measured.competence, tuning, overlap,
        seen_by_heads, seed, seconds,
    )  # fmt: skip


def _named(outcomes: tuple[Outcome, ...], tuning: Tuning | None, train: Task) -> tuple[Outcome, ...]:
    """Outcomes of recipes that tuning chose say on which examples."""
    tuned = [] if tuning is None else [(b, recipe) for b, some in tuning.chosen.items() for recipe in some]
    return tuple(replace(o, chosen_on=train.split) if (o.benchmark, o.recipe) in tuned else o for o in outcomes)


def _on_evaluated(recipes: Recipes) -> bool:
    """Whether a filter asks for scores of the evaluated examples, as the paper's public script does."""
    return any(recipe.filter.on_evaluated for some in recipes.values() for recipe in some)


def _statistics(scores: EdgeScores, evaluated: EdgeScores | None, settings: Settings) -> EdgeStatistics:
    """Those of the settings' bootstrap; without a second example, those of the scores as they are."""
    seen = evaluated if evaluated is not None and settings.bootstrap.on_evaluated else scores
    return summarise(seen, settings.bootstrap if seen.n_examples > 1 else NO_FILTER)


def _exported(outcomes: Sequence[Outcome], benchmark: Benchmark) -> Outcome:
    """The last that was chosen beforehand, without the evaluated examples, or else the best."""
    mine = [outcome for outcome in outcomes if outcome.benchmark == benchmark]
    beforehand = [outcome for outcome in mine if outcome.chosen_on]
    return beforehand[-1] if beforehand else max(mine, key=lambda outcome: benchmark.better * outcome.area)


def _overlap(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, store: Store
) -> dict[Benchmark, dict[Recipe, FloatArray]]:
    """Of greedy and of the exported recipe."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > LARGEST_OVERLAP:
        return {}
    return {
        b: {
            recipe: overlap_by_size(scores, recipe, b, settings, resamples, seed, store)
            for recipe in dict.fromkeys((GREEDY, _exported(outcomes, b).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't made of rows of scores
        }
        for b in dict.fromkeys(outcome.benchmark for outcome in outcomes)
    }


def _attention(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, examples: int
) -> Attention | None:
    """Of the heads that are in the most exported circuits, the strongest first, on examples that the circuit to look at
    first, of the first benchmark, does badly to well."""
    exported = [_exported(outcomes, b) for b in dict.fromkeys(outcome.benchmark for outcome in outcomes)]
    graph, often = model.graph, np.zeros(model.graph.n_nodes)
    for outcome in exported:
        often += np.sum([selection.circuit.nodes for selection in outcome.selections], axis=0)
    heads = strongest_heads(graph, np.abs(statistics.mean))
    heads = heads[np.argsort(-often[heads], kind="stable")]
    benchmark, curve = exported[0].benchmark, exported[0].curve
    one_by_one = curve.definition.of(curve.values[curve.telling], curve.full, curve.empty)
    ordered = np.argsort(benchmark.better * benchmark.height(one_by_one), kind="stable")  # where undefined comes last
    ordered = ordered[: np.count_nonzero(~np.isnan(one_by_one))]
    spread = np.linspace(0, len(ordered) - 1, min(examples, len(ordered))).round().astype(int)
    return look(model, test, ordered[np.unique(spread)].tolist(), heads.tolist())


class _Clock:
    """Notes how long each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._since = now - self._since, now
