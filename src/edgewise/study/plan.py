"""The plan of a study: models, tasks, seeds, and what is compared, random circuits included.

That is recipes with all their hyper-parameters, as in the paper, or scorers and learners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.statistics import NO_FILTER, Bootstrap, Filter, Shrinkage
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, Measure
from ..io.atomic import tree_digest
from ..io.records import Decoders, convert_record
from ..learn import Learner, learner_from_record
from ..method import Method, as_record, check_is, from_record
from ..recipes.recipe import DECODERS, Recipe, combinations, learned_recipes
from ..recipes.settings import DEFAULTS, Settings
from ..score import SCORERS, Scorer
from ..select import Greedy, Ilp, SelectionProblem, Solution, Solver, Status, TopN
from ..tasks import GENERATORS, has_rows, is_task_file
from ..tasks.data_sets import PREFIX
from ..tasks.known import KNOWN
from ..verify.random_circuits import Rng, draw_circuit, draw_matched

if TYPE_CHECKING:
    from ..models import ModelSource


# Limits for plans from files: every seed is a scoring pass, and every value of a grid is combined with every other.
MAX_SEEDS, MAX_VALUES = 1000, 100
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class RandomCircuits(Solver):
    """Choose a random circuit, whatever the values are: the union of random paths."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random circuit"
    seed: int = 0

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return a random circuit of the budget's size."""
        return _solution(problem, self.seed, lambda rng: draw_circuit(problem.graph, problem.budget, rng))


@dataclass(frozen=True)
class MatchedCircuits(Solver):
    """Choose the circuit of greedy selection, with random other heads of the same layers."""

    name: ClassVar[str] = "random-matched"
    title: ClassVar[str] = "Random, matched by kind and layer"
    seed: int = 0

    def solve(self, problem: SelectionProblem) -> Solution:
        """Return greedy's circuit with its heads permuted within each layer."""
        chosen = Circuit(problem.graph, Greedy().solve(problem).mask).prune()
        return _solution(problem, self.seed, lambda rng: draw_matched(chosen, rng))


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


def _solution(problem: SelectionProblem, seed: int, draw: Callable[[Rng], Circuit]) -> Solution:
    """Return what is drawn, with the required edges and without surplus ones."""
    n_edges = problem.graph.n_edges
    mask: NDArray[np.bool_] = np.ones(n_edges, bool)
    if problem.budget < n_edges:
        rng = np.random.default_rng([seed, problem.budget])
        drawn = draw(rng).mask if problem.budget else ~mask
        surplus = np.flatnonzero(drawn & ~problem.required)[problem.budget - problem.n_required :]
        mask = drawn | problem.required
        mask[surplus] = False
    return Solution(mask, Status.HEURISTIC, problem.upper_bound)


BASELINES = (RandomCircuits, MatchedCircuits)


@dataclass(frozen=True)
class Grid:
    """The hyper-parameters to try: resamples of the bootstrap (tau), standard errors of shrinkage (kappa), PNR."""

    tau: tuple[int, ...] = (5, 10, 15)
    kappa: tuple[float, ...] = (0.5, 1.0, 2.0)
    pnr: tuple[float, ...] = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
    solvers: tuple[Solver, ...] = (Greedy(), TopN(), Ilp())

    def __post_init__(self) -> None:
        for solver in self.solvers:
            check_is("solver", Solver, solver)
        for name in ("tau", "kappa", "pnr"):
            values = getattr(self, name)
            if len(values) > MAX_VALUES or len(set(values)) < len(values):
                raise InputError(
                    f"a study tries at most {MAX_VALUES} values of {name}, each once, but {len(values)} were given, "
                    f"{len(set(values))} of them different"
                )
        if not self.solvers or self.solvers[0] != Greedy():
            raise InputError(f"a study compares with greedy, so its solvers begin with it, not {self.solvers}")
        for measure in BOTH_MEASURES:
            self.recipes(measure, Bootstrap())  # raises InputError for impossible values

    @property
    def time_limit(self) -> float | None:
        """The time limit of its integer programs."""
        return next((solver.time_limit for solver in self.solvers if isinstance(solver, Ilp)), None)

    def recipes(self, measure: Measure, bootstrap: Bootstrap) -> tuple[Recipe, ...]:
        """Return all combinations, greedy first. PNR is for CMD only, as in the paper."""
        filters: tuple[Filter, ...] = (
            NO_FILTER,
            *(replace(bootstrap, resamples=tau) for tau in self.tau),
            *(Shrinkage(kappa) for kappa in self.kappa),
        )
        return combinations(measure, self.solvers, filters, (None, *self.pnr))


@dataclass(frozen=True)
class Plan:
    """Everything that decides the tables of a study, however often it is stopped and resumed.

    seeds              how many. A seed draws the examples of a built-in task (all splits) and the bootstrap's
                       resamples. Data sets and files are the same for every seed, so only the resamples differ there.
    unsplit            the tasks that are files without splits. Their rows are split into thirds.
    learner            learns a ranking on every draw of train, for each measure. None for no learned rankings.
    trust_remote_code  whether code that comes with a model is run
    baselines          whether random circuits have rows of their own: what chance achieves
    scorers            scorers and learners to compare with the first one instead of recipes; `choose_scorers` returns
                       them. Of the grid, only the time limit is used; scorer and learner of the plan are not.
    skip_large         whether scorers are left out for models of more edges than they suit
    truth              the true circuit that scorers are compared with: a file or known/NAME. By default that of models
                       known/NAME on their own task.
    spans, chat, skip_bad, columns
                       as in `load_task`; `columns`, as pairs, are for task files and the tasks hub:NAME
    """

    models: tuple[str, ...] = ("demo",)
    tasks: tuple[str, ...] = ("ioi",)
    seeds: int = 3
    examples: int | None = None
    grid: Grid = field(default_factory=Grid)
    settings: Settings = DEFAULTS
    device: str = "auto"
    dtype: str = "auto"
    bos: str = "auto"
    unsplit: tuple[str, ...] = ()
    learner: Learner | None = None
    trust_remote_code: bool = False
    baselines: bool = True
    spans: str | None = None
    chat: bool = False
    skip_bad: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    scorers: tuple[Method, ...] = ()
    skip_large: bool = False
    truth: str | None = None

    def __post_init__(self) -> None:
        for kind in ("models", "tasks"):
            value = getattr(self, kind)
            items = [value] if isinstance(value, str | Path) else list(value) if isinstance(value, Iterable) else [None]
            if not all(isinstance(item, str | Path) for item in items):
                raise InputError(f"a study loads its {kind} by name, such as 'demo' or 'ioi', not {value!r}")
            object.__setattr__(self, kind, tuple(map(str, items)))
        if not self.models or not self.tasks:
            raise InputError("a study needs at least one model and one task")
        for kind, names in (("model", self.models), ("task", self.tasks)):
            if len(set(names)) < len(names):
                raise InputError(f"a study takes every {kind} once, but {', '.join(names)} were given")
        if self.columns and not any(map(has_rows, self.tasks)):
            raise InputError(
                f"columns are for task files and data sets ('{PREFIX}NAME'), but the tasks are {', '.join(self.tasks)}"
            )
        if self.skip_bad and not any(map(has_rows, self.tasks)):
            raise InputError(
                f"skip_bad=True is for task files and data sets ('{PREFIX}NAME'), but the tasks are "
                f"{', '.join(self.tasks)}; leave it out"
            )
        if self.examples is not None and self.examples < 1:
            raise InputError(f"the number of examples must be at least 1, not {self.examples}")
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise InputError(f"a study needs at least 1 seed and at most {MAX_SEEDS:,}, not {self.seeds}")
        for scorer in self.scorers:
            if not isinstance(scorer, Learner):
                check_is("scorer", Scorer, scorer)
        if self.truth is not None and not self.scorers:
            raise InputError("truth is for a comparison of scorers: nothing else compares with a known circuit")
        if self.truth is not None and not self.ranks_edges:
            raise InputError("truth is compared with rankings of edges; leave out truth, or positions and level")

    def __repr__(self) -> str:
        tasks, models = (shorten(", ".join(names), 80, placeholder=" ...") for names in (self.tasks, self.models))
        return f"Plan({tasks} x {models}; {self.seeds} seeds)"

    @property
    def ranks_edges(self) -> bool:
        """Whether circuits consist of edges, with which a known circuit can be compared."""
        return not self.settings.positions and self.settings.level == "edge"

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The (task, model) pairs, in the order of the paper's columns, tasks first.

        A model known/NAME and the task of that name go with each other only, if the plan has both.
        """
        pairs = {name for name in KNOWN if name in self.models and name in self.tasks}
        return tuple(
            (task, model)
            for task in self.tasks
            for model in self.models
            if task == model or (task not in pairs and model not in pairs)
        )

    def source(self, model: str) -> ModelSource:
        """Return how one of the models is loaded."""
        from ..models import ModelSource

        return ModelSource(model, self.device, self.dtype, self.bos, self.trust_remote_code)

    def recipes(self, seed: int) -> tuple[tuple[Measure, Recipe], ...]:
        """Return (measure, recipe) pairs in the order of all tables and files.

        The recipes of two seeds differ only in the seeds of the bootstrap and of random circuits.
        """
        bootstrap = replace(self.settings.bootstrap, seed=seed)
        learned = {} if self.learner is None else learned_recipes(self.learner, self.grid.time_limit)
        baselines = (Recipe(RandomCircuits(seed)), Recipe(MatchedCircuits(seed))) if self.baselines else ()
        return tuple(
            (b, recipe)
            for b in BOTH_MEASURES
            for recipe in (*self.grid.recipes(b, bootstrap), *learned.get(b, ()), *baselines)
        )

    @property
    def scorer_recipe(self) -> Recipe:
        """The recipe that selects the circuits of all scorers, so that they have equal sizes."""
        return Recipe(FullSizeIlp(self.grid.time_limit))

    def data_seeds(self, task: str) -> tuple[int, ...]:
        """Return the seed that draws the examples of each of the study's seeds: always 0 for data sets and files."""
        return tuple(range(self.seeds)) if task in GENERATORS else (0,) * self.seeds

    def files(self) -> dict[str, str]:
        """Return the digests of every model, and of every local file or folder of a task."""
        digests = {name: self.source(name).digest for name in self.models}
        if self.truth is not None and Path(self.truth).exists():
            digests[self.truth] = tree_digest(Path(self.truth))
        for task in self.tasks:
            if task.startswith(PREFIX):
                name = task.removeprefix(PREFIX).partition(":")[0]
                is_local = Path(name).expanduser().exists()  # else it is on the hub
            else:
                name = task if is_task_file(task) else task.partition("=")[2]
                is_local = bool(name)
            if is_local:
                digests[name] = tree_digest(Path(name).expanduser())
        return digests

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return as_record(self)

    def check(self) -> None:
        """Raise InputError for models that can't be loaded, as far as this is known without their weights."""
        from ..models import check_source

        for name in self.models:
            check_source(self.source(name))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Plan:
        """Return the plan that `record` wrote. Custom methods that aren't registered become placeholders."""
        decoders: Decoders = {
            **DECODERS,
            Method: _scorer_from_record,
            Settings: lambda value: Settings.from_record(convert_record(Mapping[str, Any], value, "settings")),
        }
        solvers = convert_record(Mapping[str, Any], record.get("grid"), "grid").get("solvers")
        if isinstance(solvers, list) and len(solvers) > MAX_VALUES:
            raise InputError(f"a study tries at most {MAX_VALUES} solvers, but {len(solvers)} were given")
        return convert_record(cls, record, "plan", decoders)


def _scorer_from_record(record: Any) -> Method:
    """Return the scorer or learner of a record. Only learners have a measure."""
    if isinstance(record, Mapping) and "measure" in record:
        return learner_from_record(record)
    return from_record("scorer", SCORERS, record, Scorer)  # type: ignore[type-abstract]
