"""The scorers and learners that a study compares, the results of a comparison, and mean ranks over cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..core.ranking import Ranking, tied_ranks
from ..core.statistics import percentile_interval, resampling_weights
from ..errors import InputError
from ..evaluate import CMD, CONFIDENCE, Measure
from ..learn import LEARNERS, Learner, LearningCost, LearningProblem
from ..method import as_known, parameters
from ..models.memory import Need
from ..recipes.settings import Settings
from ..runtime.session import Session
from ..score import SCORERS, EapIg, Scorer
from ..select import Ilp, SelectionProblem, Solution
from ..tasks import Metric
from .folder import Repeats
from .plan import Plan

AnyMethod = Scorer | Learner
M = TypeVar("M", Scorer, Learner)
# All other methods are compared with this one.
BASELINE = EapIg.name
ALL = "all"
RANK_RESAMPLES = 2000


@dataclass(frozen=True)
class FullSizeIlp(Ilp):
    """The ILP of circuits with exactly as many edges as are asked for: edges of negative value are not left out."""

    name: ClassVar[str] = "ilp-full-size"
    title: ClassVar[str] = "ILP of full size"

    def solve(self, problem: SelectionProblem) -> Solution:
        """Solve the problem of values that are shifted above 0. Among circuits of equal size the order is the same."""
        shift = max(0.0, -float(problem.value.min()))
        solution = super().solve(replace(problem, value=problem.value + shift))
        return replace(solution, bound=solution.bound - shift * problem.budget)


@dataclass(frozen=True)
class RandomRanking(Learner):
    """A uniformly random ranking: what a method without information reaches."""

    name: ClassVar[str] = "random"
    measure: Measure = CMD
    seed: int = 0

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        graph = problem.graph
        return Ranking(graph, np.random.default_rng(self.seed).random(graph.n_edges), signed=False)

    def cost(self, problem: LearningProblem) -> LearningCost:
        return LearningCost(0, 1, Need(0, 0, 0), lambda *_: None)

    def check(self, metric: Metric) -> None:
        """Accept every metric."""

    def check_kind(self, positions: bool, level: str) -> None:
        """Accept every kind of circuit."""


def choose_methods(
    names: Sequence[str | AnyMethod],
    settings: Settings,
    n_edges: int | None = None,
    scorer_parameters: Mapping[str, Any] | None = None,
    learner_parameters: Mapping[str, Any] | None = None,
) -> tuple[tuple[AnyMethod, ...], dict[str, str]]:
    """Return the methods to compare, EAP-IG first and random last, and why methods of `all` are left out.

    Parameters
    ----------
    names
        Names of scorers and learners, or objects. 'all' stands for every scorer that can use the metric and what
        circuits consist of, and that suits the number of edges.
    settings
        The metric, positions and level that the methods must be able to use.
    n_edges
        Edges of the graph. None leaves no method out for its size.
    scorer_parameters, learner_parameters
        Parameters for those that have them, such as `steps`. None stands for the default.

    Returns
    -------
    The methods, and name -> reason for those that are left out.

    Raises
    ------
    InputError
        If a name is unknown, or if EAP-IG or a named method can't use the settings.
    """
    chosen: dict[str, AnyMethod] = {}
    left_out: dict[str, str] = {}
    for item in (BASELINE, *names):
        if not isinstance(item, str):
            chosen[item.name] = item
            continue
        name = as_known("scorer or learner", item, (*SCORERS, *LEARNERS, RandomRanking.name, ALL))
        if name == ALL:
            for scorer in (_build(kind, scorer_parameters) for kind in SCORERS.values()):
                reason = _misfit(scorer, settings, n_edges)
                if reason:
                    left_out[scorer.name] = reason
                elif scorer.name not in chosen:
                    chosen[scorer.name] = scorer
        elif name in SCORERS:
            chosen.setdefault(name, _build(SCORERS[name], scorer_parameters))
        elif name in LEARNERS:
            chosen.setdefault(name, _build(LEARNERS[name], learner_parameters))
    for method in chosen.values():
        method.check(settings.metric)
        method.check_kind(settings.positions, settings.level)
    chosen.pop(RandomRanking.name, None)
    return (*chosen.values(), RandomRanking()), {name: why for name, why in left_out.items() if name not in chosen}


def _build(kind: type[M], values: Mapping[str, Any] | None) -> M:
    """Return a method with those of the values that it has as parameters and that aren't None."""
    accepted = parameters(kind)
    return kind(**{name: v for name, v in (values or {}).items() if v is not None and name in accepted})


def _misfit(scorer: Scorer, settings: Settings, n_edges: int | None) -> str:
    """Return why a scorer can't be used, or shouldn't. Empty if it can."""
    try:
        scorer.check(settings.metric)
        scorer.check_kind(settings.positions, settings.level)
    except InputError as error:
        return str(error)
    most = scorer.max_edges
    if most is not None and n_edges is not None and n_edges > most:
        return f"it runs every example once per edge, and {n_edges:,} edges are more than {most:,}; name it to use it"
    return ""


@dataclass(frozen=True, eq=False)
class MethodRow:
    """The results of one scorer or learner on a cell.

    repeats            measure -> the curves over seeds
    seconds            wall seconds of scoring or learning per training example, mean over draws of examples. Those of a
                       learner are the sum over its two rankings, without scores that it starts from.
    memory             estimated bytes beyond the model for one example
    aurocs, precisions [seed] of the ranking for CMD, against the known circuit. Empty if none is known.
    """

    name: str
    repeats: Mapping[Measure, Repeats]
    seconds: float
    memory: int
    aurocs: tuple[float, ...] = ()
    precisions: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MethodCell:
    """All methods on one model and task: the baseline first, random last.

    left_out  name -> why a method of `all` isn't there
    n_true    edges of the known circuit. None if none is known.
    """

    model: str
    task: str
    n_edges: int
    examples: Mapping[str, int]
    rows: tuple[MethodRow, ...]
    left_out: Mapping[str, str]
    n_true: int | None = None


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """A finished comparison: a cell for every model and task."""

    plan: Plan
    cells: tuple[MethodCell, ...]

    def __repr__(self) -> str:
        names = ", ".join(row.name for row in self.cells[0].rows)
        return f"MethodComparison({len(self.cells)} cells; {names})"


@dataclass(frozen=True)
class MeanRank:
    """The mean rank of a method over cells, 1 is best, with its interval over resampled cells."""

    method: str
    mean: float
    low: float
    high: float


def mean_ranks(comparison: MethodComparison, measure: Measure) -> tuple[MeanRank, ...]:
    """Return the mean rank over cells of every method that is in all cells, the best first.

    A method's rank in a cell is its place by mean area over seeds; equal areas share the mean of their places. The
    interval is that of the mean over cells drawn with replacement.
    """
    cells = [{row.name: row.repeats[measure].mean for row in cell.rows} for cell in comparison.cells]
    names = [name for name in cells[0] if all(name in areas for areas in cells)]
    ranks = np.stack([tied_ranks(-measure.better * np.array([cell[name] for name in names])) for cell in cells])
    draws = resampling_weights(len(cells), RANK_RESAMPLES, 0) @ ranks  # [resample, method]
    low, high = percentile_interval(draws, CONFIDENCE)
    listed = [MeanRank(*row) for row in zip(names, ranks.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)]
    return tuple(sorted(listed, key=lambda rank: rank.mean))
