"""Recipes: how to get from a ranking to circuits, as a composition of filter, PNR and solver.

Every cell of the paper's tables is one composition of filter (none | bootstrap | shrinkage), ranking (signed for CPR |
absolute for CMD), PNR (none | a value) and solver (top-n | greedy | ilp).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.statistics import FILTERS, NO_FILTER, Bootstrap, Filter, Shrinkage
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, CMD, CPR, Measure, size_to_edges
from ..io.records import Decoders, convert_record
from ..learn import Learner, TopKLearner, learner_from_record
from ..method import check_is, from_record, plain
from ..select import SOLVERS, Greedy, Ilp, Selection, SelectionProblem, Solver, TopN, solve_path
from .settings import DEFAULTS, Settings


@dataclass(frozen=True)
class Recipe:
    """A composition: a solver, a filter, a least share of positive edges or None, a learner or None.

    With a learner, circuits are selected from the ranking that it learns rather than from scores. Such a ranking has
    neither examples nor signs, so there is nothing to filter or to count. `alias` takes the place of the name.
    """

    solver: Solver = field(default_factory=Greedy)
    filter: Filter = NO_FILTER
    pnr: float | None = None
    alias: str = ""
    learner: Learner | None = None

    def __post_init__(self) -> None:
        check_is("solver", Solver, self.solver)
        check_is("filter", Filter, self.filter)
        if self.pnr is not None and not 0 <= self.pnr <= 1:
            raise InputError(f"PNR is a share of the edges, from 0 to 1, but {self.pnr} was given")
        if self.learner is not None and (self.pnr is not None or self.filter != NO_FILTER):
            raise InputError("a learned ranking has no signs and no examples, so neither PNR nor a filter can be asked")

    @property
    def name(self) -> str:
        """That of the paper's tables, where PNR alone takes the best edges and everything else alone is greedy."""
        return self.alias or self.combination

    @property
    def combination(self) -> str:
        """What is combined, in the paper's words."""
        added = [self.filter.title] * bool(self.filter.title) + ["PNR"] * self.has_pnr
        added += [] if self.learner is None else [self.learner.title]
        implied = TopN if self.has_pnr else Greedy
        named = [] if added and isinstance(self.solver, implied) else [self.solver.title]
        return " + ".join(named + added)

    @property
    def has_pnr(self) -> bool:
        """Whether a share of positive edges is asked for."""
        return self.pnr is not None

    @property
    def parameters(self) -> Mapping[str, float]:
        """The hyper-parameters by name, as tables call them."""
        return {**self.filter.parameters, **({} if self.pnr is None else {"PNR": self.pnr})}

    @property
    def words(self) -> str:
        """The hyper-parameters in words; empty if there are none."""
        return ", ".join(f"{name} {value:g}" for name, value in self.parameters.items())

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_record(cls, record: Any, where: str = "recipe") -> Recipe:
        """Return the recipe that `record` wrote. Custom methods that aren't registered become placeholders."""
        return convert_record(cls, record, where, DECODERS)  # type: ignore[no-any-return]


DECODERS: Decoders = {
    Solver: lambda record: from_record("solver", SOLVERS, record, Solver),
    Filter: lambda record: from_record("filter", FILTERS, record, Filter),
    Learner: learner_from_record,
}
GREEDY = Recipe()
# The name of a recipe that was chosen beforehand, by cross-validation.
TUNED = "Tuned"
# The name of what takes, at every size, the recipe that was best on validation.
PORTFOLIO = "Portfolio"
Recipes = Mapping[Measure, Sequence[Recipe]]


def paper_recipes(bootstrap: Bootstrap | None = None, pnr: float = 0.5, time_limit: float | None = None) -> Recipes:
    """The rows of the paper's two ablation tables: benchmark -> recipes."""
    way, ilp = bootstrap or Bootstrap(), Ilp(time_limit)
    with_pnr = (
        GREEDY,
        Recipe(ilp),
        Recipe(Greedy(), way),
        Recipe(TopN(), pnr=pnr),
        Recipe(ilp, way),
        Recipe(ilp, pnr=pnr),
        Recipe(TopN(), way, pnr),
        Recipe(ilp, way, pnr),
    )
    return {b: tuple(recipe for recipe in with_pnr if b.uses_pnr or not recipe.has_pnr) for b in BOTH_MEASURES}


def shrinkage_recipes(kappa: float, pnr: float = 0.5, time_limit: float | None = None) -> Recipes:
    """Greedy and ILP on shrunk scores, which the paper doesn't have: benchmark -> recipes."""
    way, ilp = Shrinkage(kappa), Ilp(time_limit)
    plain_ones = (Recipe(Greedy(), way), Recipe(ilp, way))
    return {CMD: (*plain_ones, Recipe(ilp, way, pnr)), CPR: plain_ones}


def learned_recipes(learner: Learner | None = None, time_limit: float | None = None) -> Recipes:
    """Greedy and ILP on a ranking that is learned for each benchmark: benchmark -> recipes."""
    learners = {measure: (learner or TopKLearner()).for_measure(measure) for measure in BOTH_MEASURES}
    return {m: (Recipe(learner=one), Recipe(Ilp(time_limit), learner=one)) for m, one in learners.items()}


def combinations(
    measure: Measure, solvers: Iterable[Solver], filters: Sequence[Filter], shares: Sequence[float | None]
) -> tuple[Recipe, ...]:
    """Every solver with every filter and, where the benchmark uses PNR, every share; `shares` begin with None."""
    pnr = shares if measure.uses_pnr else shares[:1]
    return tuple(Recipe(solver, way, share) for solver in solvers for way in filters for share in pnr)


def merge_recipes(*several: Recipes) -> Recipes:
    """Recipes of several kinds, each once: benchmark -> recipes."""
    names = dict.fromkeys(b for some in several for b in some)
    return {b: tuple(dict.fromkeys(recipe for some in several for recipe in some.get(b, ()))) for b in names}


def list_recipes(recipes: Recipes | Sequence[tuple[Measure, Recipe]]) -> list[tuple[Measure, Recipe]]:
    """Return recipes as (measure, recipe) pairs.

    In a mapping, recipes of one measure that share a name get their hyper-parameters as part of it, because tables and
    folders identify recipes by name. A list of pairs is returned as it is. Raise InputError for anything else.
    """
    if isinstance(recipes, Sequence) and recipes:
        pairs = [pair for pair in recipes if isinstance(pair, tuple) and len(pair) == 2]
        if len(pairs) == len(recipes) and all(isinstance(m, Measure) and isinstance(r, Recipe) for m, r in pairs):
            return pairs
    if not isinstance(recipes, Mapping) or not recipes or not all(isinstance(m, Measure) for m in recipes):
        raise InputError(f"recipes map measures to recipes, such as {{CMD: [Recipe()]}}, but {recipes!r} was given")
    pairs = []
    for measure, listed in recipes.items():
        if not isinstance(listed, Sequence) or not listed or not all(isinstance(recipe, Recipe) for recipe in listed):
            raise InputError(f"for {measure.name}, a list of recipes is needed, but {listed!r} was given")
        names = [recipe.name for recipe in listed]
        named = [
            replace(recipe, alias=f"{recipe.name} ({recipe.words})") if names.count(recipe.name) > 1 else recipe
            for recipe in listed
        ]
        names = [recipe.name for recipe in named]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"several recipes for {measure.name} are called {repeated!r}; give each a different alias")
        pairs += [(measure, recipe) for recipe in named]
    return pairs


def select_circuits(
    ranking: Ranking, recipe: Recipe, measure: Measure, settings: Settings = DEFAULTS
) -> tuple[Selection, ...]:
    """A circuit for every size; `ranking` is that of the recipe's filter."""
    check_is("benchmark", Measure, measure)
    graph = ranking.graph
    budgets = [size_to_edges(share, graph.n_edges) for share in settings.sizes]
    problem = SelectionProblem.of(ranking, measure.rank, 0, recipe.pnr)
    if settings.pnr_after_absolute:
        problem = replace(problem, is_positive=ranking.value != 0)
    if recipe.filter.drop_failed and ranking.kept is not None and not ranking.kept.all():
        return _without_failed(problem, ranking.kept, budgets, recipe.solver, settings)
    return solve_path(problem, budgets, recipe.solver, settings.fill, settings.nested)


def _without_failed(
    problem: SelectionProblem, kept: np.ndarray, budgets: Sequence[int], solver: Solver, settings: Settings
) -> tuple[Selection, ...]:
    """Circuits of kept edges only, which therefore stop growing."""
    # Worth less than all others together, a failed edge is taken only where a heuristic finds no other: then it is cut.
    value = np.where(kept, problem.value, -1 - np.abs(problem.value).sum())
    most = int(np.count_nonzero(kept))
    within = [min(budget, most) for budget in budgets]
    found = solve_path(replace(problem, value=value), within, solver, settings.fill, settings.nested)
    circuits = [Circuit(problem.graph, selection.circuit.mask & kept).prune() for selection in found]
    return tuple(
        replace(selection, circuit=circuit, asked=budget, objective=problem.objective(circuit.mask))
        for selection, circuit, budget in zip(found, circuits, budgets, strict=True)
    )
