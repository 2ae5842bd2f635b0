"""Recipes: how to get from scores to circuits, as a composition of filter, ranking, PNR and solver.

Every cell of the paper's tables is one composition of filter (none | bootstrap | shrinkage), ranking (signed for CPR |
absolute for CMD), PNR (none | a value) and solver (top-n | greedy | ilp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .circuit import Circuit
from .errors import InputError, unknown_name
from .evaluate.curve import FAITHFULNESS, SIZES, size_to_edges
from .select import Selection, SelectionProblem, solve_path
from .statistics import Bootstrap, EdgeStatistics, Filter, Shrinkage

RANK_OF = {"CMD": "absolute", "CPR": "signed"}
SOLVER_NAMES = {"greedy": "Greedy", "top-n": "Top-n", "ilp": "ILP"}
FILTER_NAMES: Mapping[type, str] = {Bootstrap: "Bootstrapping", Shrinkage: "Shrinkage"}


@dataclass(frozen=True)
class Recipe:
    """A composition: a solver, a filter or None, a least share of positive edges or None.

    `alias` takes the place of the name that the composition has.
    """

    solver: str
    filter: Filter | None = None
    pnr: float | None = None
    alias: str = ""

    @property
    def name(self) -> str:
        """That of the paper's tables, where PNR alone takes the best edges and everything else alone is greedy."""
        return self.alias or self.combination

    @property
    def combination(self) -> str:
        """What is combined, in the paper's words."""
        added = ([FILTER_NAMES[type(self.filter)]] if self.filter else []) + (["PNR"] if self.has_pnr else [])
        implied = "top-n" if self.has_pnr else "greedy"
        named = [] if added and self.solver == implied else [SOLVER_NAMES.get(self.solver, self.solver)]
        return " + ".join(named + added)

    @property
    def has_pnr(self) -> bool:
        """Whether a share of positive edges is asked for."""
        return self.pnr is not None

    @property
    def parameters(self) -> str:
        """The hyper-parameters in words; empty if there are none."""
        shown = []
        if isinstance(self.filter, Bootstrap):
            shown.append(f"tau {self.filter.resamples}")
        if isinstance(self.filter, Shrinkage):
            shown.append(f"kappa {self.filter.kappa:g}")
        if self.pnr is not None:
            shown.append(f"PNR {self.pnr:g}")
        return ", ".join(shown)


GREEDY = Recipe("greedy")


def paper_recipes(bootstrap: Bootstrap, pnr: float) -> dict[str, tuple[Recipe, ...]]:
    """The rows of the paper's two ablation tables: benchmark -> recipes."""
    with_pnr = (
        GREEDY,
        Recipe("ilp"),
        Recipe("greedy", bootstrap),
        Recipe("top-n", None, pnr),
        Recipe("ilp", bootstrap),
        Recipe("ilp", None, pnr),
        Recipe("top-n", bootstrap, pnr),
        Recipe("ilp", bootstrap, pnr),
    )
    return {"CMD": with_pnr, "CPR": tuple(recipe for recipe in with_pnr if not recipe.has_pnr)}


def shrinkage_recipes(kappa: float, pnr: float) -> dict[str, tuple[Recipe, ...]]:
    """Greedy and ILP on shrunk scores, which the paper doesn't have: benchmark -> recipes."""
    way = Shrinkage(kappa)
    plain = (Recipe("greedy", way), Recipe("ilp", way))
    return {"CMD": (*plain, Recipe("ilp", way, pnr)), "CPR": plain}


@dataclass(frozen=True)
class Settings:
    """All that a discovery can be told; the defaults are the paper's, on MIB's scale.

    The last three repeat what the paper's public script does (see `published`):
    drop_failed         edges that fail the filter are lost, rather than chosen last
    pnr_after_absolute  signs are read after taking absolute values, so that every edge counts as positive
    filter_on_test      the filter resamples scores of the evaluated examples, rather than those of train
    """

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
    memory: int = 1_000_000_000
    drop_failed: bool = False
    pnr_after_absolute: bool = False
    filter_on_test: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.pnr <= 1:
            raise InputError(f"PNR is a share of the edges, from 0 to 1, but {self.pnr} was given")
        if self.faithfulness not in FAITHFULNESS:
            raise unknown_name("faithfulness definition", self.faithfulness, list(FAITHFULNESS))
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, not {self.time_limit}")


DEFAULTS = Settings()
# What the paper's public script does differently from the paper's text, and from the defaults here.
PUBLISHED: Mapping[str, str] = {
    "faithfulness": "faithfulness is the ratio m(circuit) / m(model), not MIB's, which is 0 for the empty circuit",
    "sizes": "size 0 joins the ten sizes of the curve",
    "drop_failed": "edges that fail the bootstrap filter are lost, so bootstrapped circuits stop growing",
    "pnr_after_absolute": "PNR reads signs after absolute values: every edge counts as positive, so it binds nothing",
    "filter_on_test": "the bootstrap resamples the evaluated split, not train",
}


def as_published(settings: Settings) -> Settings:
    """The same settings with the behaviours of the paper's public script, which `PUBLISHED` puts in words."""
    return replace(
        settings,
        faithfulness="ratio",
        sizes=tuple(dict.fromkeys((0.0, *settings.sizes))),
        drop_failed=True,
        pnr_after_absolute=True,
        filter_on_test=True,
    )


def published_words(settings: Settings) -> dict[str, str] | None:
    """What settings made by `as_published` repeat, in words; None for others."""
    return dict(PUBLISHED) if settings == as_published(settings) else None


def select_circuits(
    statistics: EdgeStatistics, recipe: Recipe, benchmark: str, settings: Settings
) -> tuple[Selection, ...]:
    """A circuit for every size; `statistics` are those of the recipe's filter."""
    graph = statistics.graph
    budgets = [size_to_edges(share, graph.n_edges) for share in settings.sizes]
    problem = SelectionProblem.build(graph, statistics.score, RANK_OF[benchmark], 0, recipe.pnr)
    if settings.pnr_after_absolute:
        problem = replace(problem, is_positive=statistics.score != 0)
    how = (recipe.solver, settings.time_limit, settings.fill, settings.nested)
    if settings.drop_failed and isinstance(statistics.filter, Bootstrap) and not statistics.kept.all():
        return _without_failed(problem, statistics, budgets, how)
    return solve_path(problem, budgets, *how)


def _without_failed(
    problem: SelectionProblem,
    statistics: EdgeStatistics,
    budgets: Sequence[int],
    how: tuple[str, float | None, bool, bool],
) -> tuple[Selection, ...]:
    """Circuits of kept edges only, which therefore stop growing."""
    kept = statistics.kept
    # Worth less than all others together, a failed edge is taken only where a heuristic finds no other: then it is cut.
    value = np.where(kept, problem.value, -1 - np.abs(problem.value).sum())
    most = int(np.count_nonzero(kept))
    found = solve_path(replace(problem, value=value), [min(budget, most) for budget in budgets], *how)
    circuits = [Circuit(problem.graph, selection.circuit.mask & kept).prune() for selection in found]
    return tuple(
        replace(selection, circuit=circuit, asked=budget, objective=problem.objective(circuit.mask))
        for selection, circuit, budget in zip(found, circuits, budgets, strict=True)
    )
