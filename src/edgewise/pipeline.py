"""The whole flow on one page: model + task -> score -> bootstrap -> select -> circuit -> evaluate -> result.

Every cell of the paper's tables is one composition of filter (none | bootstrap), ranking (signed | absolute),
PNR (none | a value) and solver (top-n | greedy | ilp): a `Recipe`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .circuit import Circuit
from .errors import unknown_name
from .evaluate.curve import SIZES, Curve, size_to_edges
from .evaluate.verb import evaluate_circuits
from .models import Model
from .score import score_edges
from .scores import EdgeScores
from .select import Selection, SelectionProblem, solve_path
from .statistics import Bootstrap, EdgeStatistics, summarise
from .tasks import Task

RANK_OF = {"CPR": "signed", "CMD": "absolute"}


@dataclass(frozen=True)
class Recipe:
    """How to get from scores to circuits; `name` is that of the paper's tables."""

    name: str
    solver: str
    bootstrap: bool = False
    pnr: bool = False


# The rows of the paper's two ablation tables. Its PNR without ILP takes the best edges, not the greedy ones.
CMD_RECIPES = (
    Recipe("Greedy", "greedy"),
    Recipe("ILP", "ilp"),
    Recipe("Bootstrapping", "greedy", bootstrap=True),
    Recipe("PNR", "top-n", pnr=True),
    Recipe("ILP + Bootstrapping", "ilp", bootstrap=True),
    Recipe("ILP + PNR", "ilp", pnr=True),
    Recipe("Bootstrapping + PNR", "top-n", bootstrap=True, pnr=True),
    Recipe("ILP + Bootstrapping + PNR", "ilp", bootstrap=True, pnr=True),
)
CPR_RECIPES = tuple(recipe for recipe in CMD_RECIPES if not recipe.pnr)
RECIPES: Mapping[str, tuple[Recipe, ...]] = {"CMD": CMD_RECIPES, "CPR": CPR_RECIPES}


@dataclass(frozen=True)
class Settings:
    """All that a discovery can be told; the defaults are the paper's, on MIB's scale."""

    method: str = "eap-ig"
    steps: int = 5
    metric: str = "logit-difference"
    ablation: str = "patching"
    faithfulness: str = "mib"
    pnr: float = 0.5
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    sizes: tuple[float, ...] = SIZES
    time_limit: float | None = None
    fill: bool = False
    nested: bool = False
    batch_size: int | None = None


DEFAULTS = Settings()


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
        return self.curve.cpr if self.benchmark == "CPR" else self.curve.cmd


@dataclass(frozen=True, eq=False)
class Discovery:
    """Everything that a run found."""

    settings: Settings
    scores: EdgeScores
    plain: EdgeStatistics
    filtered: EdgeStatistics
    outcomes: tuple[Outcome, ...]
    seconds: Mapping[str, float]

    def best(self, benchmark: str) -> Outcome:
        """The outcome of the highest CPR or the lowest CMD."""
        if benchmark not in RECIPES:
            raise unknown_name("benchmark metric", benchmark, list(RECIPES))
        sign = 1 if benchmark == "CPR" else -1
        return max((o for o in self.outcomes if o.benchmark == benchmark), key=lambda o: sign * o.area)


Progress = Callable[[str, int, int], None]


def discover(
    model: Model,
    train: Task,
    test: Task,
    settings: Settings = DEFAULTS,
    scores: EdgeScores | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Discovery:
    """Score edges on `train`, select circuits by every recipe at every size, evaluate them on `test`.

    `scores` of an earlier run spare the scoring.
    """
    seconds: dict[str, float] = {}
    clock = _Clock(seconds)

    if scores is None:
        scores = score_edges(
            model, train, settings.method, settings.steps, settings.metric, settings.batch_size,
            lambda done, total: progress("score", done, total),
        )  # fmt: skip
    clock.lap("score")

    plain, filtered = summarise(scores), summarise(scores, settings.bootstrap)
    clock.lap("bootstrap")

    tasks = [(benchmark, recipe) for benchmark, recipes in RECIPES.items() for recipe in recipes]
    selected = []
    progress("select", 0, len(tasks))
    for done, (benchmark, recipe) in enumerate(tasks, start=1):
        statistics = filtered if recipe.bootstrap else plain
        selected.append(_select_sizes(statistics, recipe, RANK_OF[benchmark], settings))
        progress("select", done, len(tasks))
    clock.lap("select")

    circuits = list(dict.fromkeys(s.circuit for selections in selected for s in selections))
    evaluation = evaluate_circuits(
        model, test, circuits, settings.metric, settings.ablation, settings.batch_size,
        lambda done, total: progress("evaluate", done, total),
    )  # fmt: skip
    row_of: dict[Circuit, int] = {circuit: row for row, circuit in enumerate(circuits)}
    outcomes = []
    for (benchmark, recipe), selections in zip(tasks, selected, strict=True):
        values = evaluation.values[[row_of[s.circuit] for s in selections]]
        asked, kept = tuple(s.asked for s in selections), tuple(s.kept for s in selections)
        curve = Curve(settings.sizes, asked, kept, values, evaluation.full, evaluation.empty, settings.faithfulness)
        outcomes.append(Outcome(benchmark, recipe, selections, curve))
    clock.lap("evaluate")
    return Discovery(settings, scores, plain, filtered, tuple(outcomes), seconds)


def _select_sizes(statistics: EdgeStatistics, recipe: Recipe, rank: str, settings: Settings) -> tuple[Selection, ...]:
    """A circuit for every size."""
    graph = statistics.graph
    budgets = [size_to_edges(share, graph.n_edges) for share in settings.sizes]
    problem = SelectionProblem.build(graph, statistics.score, rank, 0, settings.pnr if recipe.pnr else None)
    return solve_path(problem, budgets, recipe.solver, settings.time_limit, settings.fill, settings.nested)


class _Clock:
    """Notes how long each stage took."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage], self._since = now - self._since, now
