"""What a study does: which models, tasks and seeds, and which recipes with which hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import InputError, unknown_name
from ..recipes import DEFAULTS, Recipe, Settings
from ..select import SOLVERS
from ..statistics import Bootstrap, Filter, Shrinkage
from ..tasks import GENERATORS

BENCHMARKS = ("CMD", "CPR")
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Grid:
    """The hyper-parameters to try: resamples of the bootstrap, standard errors of shrinkage, shares of PNR."""

    tau: tuple[int, ...] = (5, 10, 15)
    kappa: tuple[float, ...] = (0.5, 1.0, 2.0)
    pnr: tuple[float, ...] = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
    solvers: tuple[str, ...] = ("greedy", "top-n", "ilp")

    def __post_init__(self) -> None:
        if not self.solvers or self.solvers[0] != "greedy":
            raise InputError(f"a study compares with greedy, so its solvers begin with it, not {self.solvers}")
        for solver in self.solvers:
            if solver not in SOLVERS:
                raise unknown_name("solver", solver, list(SOLVERS))
        for share in self.pnr:
            if not 0 <= share <= 1:
                raise InputError(f"PNR is a share of the edges, from 0 to 1, but {share} was given")
        for tau in self.tau:
            Bootstrap(tau)  # refuses what it can't be
        for kappa in self.kappa:
            Shrinkage(kappa)

    def recipes(self, benchmark: str, bootstrap: Bootstrap) -> tuple[Recipe, ...]:
        """All combinations, plain greedy first; PNR for CMD only, as in the paper."""
        filters: tuple[Filter | None, ...] = (
            None,
            *(replace(bootstrap, resamples=tau) for tau in self.tau),
            *(Shrinkage(kappa) for kappa in self.kappa),
        )
        shares = (None, *self.pnr) if benchmark == "CMD" else (None,)
        return tuple(Recipe(solver, way, pnr) for solver in self.solvers for way in filters for pnr in shares)


@dataclass(frozen=True)
class Plan:
    """A study in full. The same plan gives the same tables, however often it is stopped.

    seeds    how many; a seed draws the examples of a built-in task (all splits) and the bootstrap's resamples.
             Data sets and files are the same for every seed, so only the resamples differ there.
    unsplit  those of the tasks that are files without splits: their rows are split into thirds
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    seeds: int = 3
    examples: int | None = None
    grid: Grid = field(default_factory=Grid)
    settings: Settings = DEFAULTS
    device: str = "auto"
    dtype: str = "auto"
    bos: str = "auto"
    unsplit: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models or not self.tasks:
            raise InputError("a study needs at least one model and one task")
        for kind, names in (("model", self.models), ("task", self.tasks)):
            if len(set(names)) < len(names):
                raise InputError(f"a study takes every {kind} once, but {', '.join(names)} were given")
        if self.examples is not None and self.examples < 1:
            raise InputError(f"the number of examples must be at least 1, not {self.examples}")
        if self.seeds < 1:
            raise InputError(f"a study needs at least 1 seed, not {self.seeds}")

    def recipes(self, seed: int) -> tuple[tuple[str, Recipe], ...]:
        """(benchmark, recipe) in the order of all tables and files; seeds differ in their resamples only."""
        bootstrap = replace(self.settings.bootstrap, seed=seed)
        return tuple((b, recipe) for b in BENCHMARKS for recipe in self.grid.recipes(b, bootstrap))

    def data_seeds(self, task: str) -> dict[int, tuple[int, ...]]:
        """The seed that examples are drawn with -> the seeds of the study that share them, and one scoring pass."""
        every = tuple(range(self.seeds))
        return {seed: (seed,) for seed in every} if task in GENERATORS else {0: every}

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON: all that decides the tables, which batch size and memory don't."""
        record = asdict(self)
        return record | {"settings": {k: v for k, v in record["settings"].items() if k not in ("batch_size", "memory")}}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Plan:
        """The plan that `record` came from, read back from JSON."""
        given = {name: record[name] for name in cls.__dataclass_fields__}
        settings = _frozen(given["settings"])
        settings["bootstrap"] = Bootstrap(**settings["bootstrap"])
        return cls(**_frozen(given) | {"grid": Grid(**_frozen(given["grid"])), "settings": Settings(**settings)})


def _frozen(record: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples: its lists become them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
