"""Recipes: how to get from a ranking to circuits.

Every row of the paper's tables is one combination of filter (none | bootstrap | shrinkage), ranking (signed for CPR |
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
from ..learn import Calibrated, Learner, TopKLearner, learner_from_record
from ..method import check_is, from_record, plain
from ..select import SOLVERS, Greedy, Ilp, Selection, SelectionProblem, Solver, TopN, solve_path
from .settings import DEFAULTS, Settings


@dataclass(frozen=True)
class Recipe:
    """A combination of methods that selects circuits.

    solver   selects the edges
    filter   turns scores per example into a ranking
    pnr      the minimum share of positive edges; None: no minimum
    alias    replaces the name
    learner  learns the ranking. Such a ranking has neither examples nor signs, so it goes with no filter and no PNR.
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
            raise InputError("a learned ranking has no signs and no examples, so neither PNR nor a filter can be used")

    @property
    def name(self) -> str:
        """The alias, or the name in the paper's tables."""
        return self.alias or self.combination

    @property
    def combination(self) -> str:
        """The name in the paper's tables.

        The solver is not named if it is the usual one: top-n with PNR, greedy with only a filter or learner.
        """
        added = [self.filter.title] if self.filter.title else []
        added += [] if self.pnr is None else ["PNR"]
        added += [] if self.learner is None else [self.learner.title]
        implied = Greedy if self.pnr is None else TopN
        named = [] if added and isinstance(self.solver, implied) else [self.solver.title]
        return " + ".join(named + added)

    @property
    def parameters(self) -> Mapping[str, float]:
        """The hyper-parameters by their names in tables."""
        return {**self.filter.parameters, **({} if self.pnr is None else {"PNR": self.pnr})}

    @property
    def parameter_text(self) -> str:
        """The hyper-parameters as text, such as 'tau 10, PNR 0.5'. Empty if there are none."""
        return ", ".join(f"{name} {value:g}" for name, value in self.parameters.items())

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_record(cls, record: Any) -> Recipe:
        """Return the recipe that `record` wrote. Custom methods that aren't registered become placeholders."""
        return convert_record(cls, record, "recipe", DECODERS)  # type: ignore[no-any-return]


DECODERS: Decoders = {
    Solver: lambda record: from_record("solver", SOLVERS, record, Solver),
    Filter: lambda record: from_record("filter", FILTERS, record, Filter),
    Learner: learner_from_record,
}
GREEDY = Recipe()
# The alias of a recipe that cross-validation chose.
TUNED = "Tuned"
# The alias of a mixture that takes, at every size, the recipe that was best on validation.
PORTFOLIO = "Portfolio"
Recipes = Mapping[Measure, Sequence[Recipe]]


def paper_recipes(bootstrap: Bootstrap | None = None, pnr: float = 0.5, time_limit: float | None = None) -> Recipes:
    """Return the rows of the paper's two ablation tables.

    Parameters
    ----------
    bootstrap
        Of the recipes that filter; by default `Bootstrap()`.
    pnr
        Least share of positive edges, of the recipes with PNR.
    time_limit
        Seconds per ILP.

    Returns
    -------
    dict
        measure -> recipes.

    Examples
    --------
    >>> edgewise.discover(model, train, test, recipes=edgewise.paper_recipes(pnr=0.6))
    """
    bootstrap, ilp = bootstrap or Bootstrap(), Ilp(time_limit)
    recipes = (
        GREEDY,
        Recipe(ilp),
        Recipe(Greedy(), bootstrap),
        Recipe(TopN(), pnr=pnr),
        Recipe(ilp, bootstrap),
        Recipe(ilp, pnr=pnr),
        Recipe(TopN(), bootstrap, pnr),
        Recipe(ilp, bootstrap, pnr),
    )
    return {m: tuple(recipe for recipe in recipes if m.uses_pnr or recipe.pnr is None) for m in BOTH_MEASURES}


def shrinkage_recipes(kappa: float, pnr: float = 0.5, time_limit: float | None = None) -> Recipes:
    """Return greedy and ILP on shrunk scores, which the paper doesn't have: measure -> recipes."""
    shrinkage, ilp = Shrinkage(kappa), Ilp(time_limit)
    without_pnr = (Recipe(Greedy(), shrinkage), Recipe(ilp, shrinkage))
    return {CMD: (*without_pnr, Recipe(ilp, shrinkage, pnr)), CPR: without_pnr}


def learned_recipes(learner: Learner | None = None, time_limit: float | None = None) -> Recipes:
    """Return greedy and ILP on a ranking that is learned for each measure: measure -> recipes."""
    learners = {m: (learner or TopKLearner()).for_measure(m) for m in BOTH_MEASURES}
    return {m: (Recipe(learner=each), Recipe(Ilp(time_limit), learner=each)) for m, each in learners.items()}


def calibrated_recipes(time_limit: float | None = None) -> Recipes:
    """Return greedy and ILP on calibrated scores, for CMD: what takes little time where learning takes too much."""
    return {CMD: (Recipe(learner=Calibrated()), Recipe(Ilp(time_limit), learner=Calibrated()))}


def combinations(
    measure: Measure, solvers: Iterable[Solver], filters: Sequence[Filter], pnrs: Sequence[float | None]
) -> tuple[Recipe, ...]:
    """Return every solver with every filter and, if the measure uses PNR, every PNR. `pnrs` begin with None."""
    pnrs = pnrs if measure.uses_pnr else pnrs[:1]
    return tuple(Recipe(solver, filter, pnr) for solver in solvers for filter in filters for pnr in pnrs)


def merge_recipes(*several: Recipes) -> Recipes:
    """Return the recipes of several mappings, each once: measure -> recipes."""
    measures = dict.fromkeys(m for recipes in several for m in recipes)
    return {m: tuple(dict.fromkeys(recipe for recipes in several for recipe in recipes.get(m, ()))) for m in measures}


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
        named = [replace(r, alias=f"{r.name} ({r.parameter_text})") if names.count(r.name) > 1 else r for r in listed]
        names = [recipe.name for recipe in named]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"several recipes for {measure.name} are called {repeated!r}; give each a different alias")
        pairs += [(measure, recipe) for recipe in named]
    return pairs


def select_circuits(
    ranking: Ranking, recipe: Recipe, measure: Measure, settings: Settings = DEFAULTS
) -> tuple[Selection, ...]:
    """Select a circuit of every size.

    Parameters
    ----------
    ranking
        That of the recipe's filter or learner.

    Returns
    -------
    One selection per size of the settings.
    """
    check_is("measure", Measure, measure)
    budgets = [size_to_edges(share, ranking.graph.n_edges) for share in settings.sizes]
    problem = SelectionProblem.of(ranking, measure.rank, 0, recipe.pnr)
    if settings.pnr_after_absolute:
        problem = replace(problem, is_positive=ranking.value != 0)
    passed = ranking.kept
    if not recipe.filter.drop_failed or passed is None or passed.all():
        return solve_path(problem, budgets, recipe.solver, settings.fill, settings.nested)
    # Only edges that passed the filter are selected, so these circuits stop growing. A failed edge costs more than all
    # others are worth. A heuristic may still take one: it is removed afterwards.
    priced = replace(problem, value=np.where(passed, problem.value, -1 - np.abs(problem.value).sum()))
    reachable = [min(budget, int(np.count_nonzero(passed))) for budget in budgets]
    selections = []
    for selection, budget in zip(
        solve_path(priced, reachable, recipe.solver, settings.fill, settings.nested), budgets, strict=True
    ):
        circuit = Circuit(problem.graph, selection.circuit.mask & passed).prune()
        objective = problem.objective(circuit.mask)
        selections.append(replace(selection, circuit=circuit, n_requested=budget, objective=objective))
    return tuple(selections)


def selection_key(measure: Measure, recipe: Recipe) -> tuple[Any, ...]:
    """Return what a selection depends on besides the ranking and the settings."""
    return (measure, recipe.solver, recipe.filter, recipe.pnr)


def settings_key(settings: Settings) -> tuple[Any, ...]:
    """Return the settings that a selection depends on."""
    return (settings.sizes, settings.fill, settings.nested, settings.pnr_after_absolute)
