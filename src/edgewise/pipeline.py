"""The whole flow on one page: model + task -> score -> bootstrap -> select -> circuit -> evaluate -> result.

Which circuits are selected, and how, is said by recipes: compositions of filter, ranking, PNR and solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .circuit import Circuit
from .errors import unknown_name
from .evaluate.ablations import ABLATIONS
from .evaluate.curve import BETTER, Curve
from .evaluate.verb import Evaluation, evaluate_circuits
from .models import Model
from .recipes import DEFAULTS, Recipe, Settings, paper_recipes, select_circuits
from .score import check_scoring, score_edges
from .scores import EdgeScores
from .select import Selection
from .statistics import Bootstrap, EdgeStatistics, Filter, summarise
from .tasks import Task


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one recipe came to, for one of the benchmark's two metrics: a circuit per size, and their curve."""

    benchmark: str
    recipe: Recipe
    selections: tuple[Selection, ...]
    curve: Curve

    @property
    def area(self) -> float:
        """CPR or CMD."""
        return self.curve.area(self.benchmark)


@dataclass(frozen=True, eq=False)
class Discovery:
    """Everything that a run found; `statistics` are those of every filter that a recipe had."""

    settings: Settings
    scores: EdgeScores
    statistics: Mapping[Filter | None, EdgeStatistics]
    outcomes: tuple[Outcome, ...]
    seconds: Mapping[str, float]

    @property
    def filtered(self) -> EdgeStatistics:
        """The statistics of the settings' bootstrap."""
        return self.statistics[self.settings.bootstrap]

    def best(self, benchmark: str) -> Outcome:
        """The outcome of the highest CPR or the lowest CMD."""
        if benchmark not in BETTER:
            raise unknown_name("benchmark metric", benchmark, list(BETTER))
        sign = BETTER[benchmark]
        return max((o for o in self.outcomes if o.benchmark == benchmark), key=lambda o: sign * o.area)

    def exported(self, benchmark: str) -> Outcome:
        """The outcome to take circuits from: that of a recipe that was chosen beforehand and so has a name of its own,
        or else the best, which looks at the evaluated examples to choose."""
        mine = (o for o in self.outcomes if o.benchmark == benchmark and o.recipe.alias)
        return next(mine, None) or self.best(benchmark)


Progress = Callable[[str, int, int], None]


def check_settings(settings: Settings) -> None:
    """Refuse settings that can't be scored with, or whose ablation doesn't exist, before any work is done."""
    check_scoring(settings.method, settings.steps, settings.metric)
    if settings.ablation not in ABLATIONS:
        raise unknown_name("ablation", settings.ablation, list(ABLATIONS))


def discover(
    model: Model,
    train: Task,
    test: Task,
    settings: Settings = DEFAULTS,
    scores: EdgeScores | None = None,
    progress: Progress = lambda stage, done, total: None,
    more: Mapping[str, Sequence[Recipe]] | None = None,
) -> Discovery:
    """Score edges on `train`, select circuits by every recipe at every size, evaluate them on `test`.

    `scores` of an earlier run spare the scoring. `more` recipes, by benchmark, join those of the paper.
    """
    check_settings(settings)
    seconds: dict[str, float] = {}
    clock = _Clock(seconds)

    if scores is None:
        scores = score_edges(
            model, train, settings.method, settings.steps, settings.metric, settings.batch_size,
            lambda done, total: progress("score", done, total), memory=settings.memory,
        )  # fmt: skip
    clock.lap("score")

    recipes = paper_recipes(settings.bootstrap, settings.pnr)
    tasks = [
        (benchmark, recipe)
        for benchmark, rows in recipes.items()
        for recipe in dict.fromkeys((*rows, *(more or {}).get(benchmark, ())))
    ]
    resampled = scores
    if settings.filter_on_test:
        resampled = score_edges(
            model, test, settings.method, settings.steps, settings.metric, settings.batch_size,
            lambda done, total: progress("score test", done, total), memory=settings.memory,
        )  # fmt: skip
    filters = dict.fromkeys(recipe.filter for _, recipe in tasks)
    statistics = {
        filter: summarise(resampled if isinstance(filter, Bootstrap) else scores, filter) for filter in filters
    }
    clock.lap("bootstrap")

    selected = []
    progress("select", 0, len(tasks))
    for done, (benchmark, recipe) in enumerate(tasks, start=1):
        selected.append(select_circuits(statistics[recipe.filter], recipe, benchmark, settings))
        progress("select", done, len(tasks))
    clock.lap("select")

    circuits = list(dict.fromkeys(s.circuit for selections in selected for s in selections))
    evaluation = evaluate_circuits(
        model, test, circuits, settings.metric, settings.ablation, settings.batch_size,
        lambda done, total: progress("evaluate", done, total), settings.memory,
    )  # fmt: skip
    row_of = {circuit: row for row, circuit in enumerate(circuits)}
    outcomes = [
        Outcome(benchmark, recipe, selections, curve_of(selections, evaluation, row_of, settings))
        for (benchmark, recipe), selections in zip(tasks, selected, strict=True)
    ]
    clock.lap("evaluate")
    return Discovery(settings, scores, statistics, tuple(outcomes), seconds)


def curve_of(
    selections: Sequence[Selection], evaluation: Evaluation, row_of: Mapping[Circuit, int], settings: Settings
) -> Curve:
    """The curve of circuits, one per size, whose rows in the evaluation are known."""
    values = evaluation.values[[row_of[selection.circuit] for selection in selections]]
    asked, kept = (tuple(getattr(s, name) for s in selections) for name in ("asked", "kept"))
    return Curve(settings.sizes, asked, kept, values, evaluation.full, evaluation.empty, settings.faithfulness)


class _Clock:
    """Notes how long each stage took."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage], self._since = now - self._since, now
