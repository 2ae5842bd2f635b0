"""How circuits are tested, what one test says, and what all tests say about a circuit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError, check_number
from ..evaluate.ablations import Ablation
from ..evaluate.intervals import Interval
from ..tasks import Metric

FloatArray = NDArray[np.float64]
PASSES, FAILS, TOO_FEW = "passes", "fails", "too few"
TESTS = (
    "sufficiency", "necessity", "minimality", "equivalence", "independence", "completeness", "robustness",
)  # fmt: skip


@dataclass(frozen=True)
class VerifySettings:
    """How circuits are tested.

    n_circuits       number of random circuits and of knocked-out sets; minimality adds 4 times as many paths
    quantile         q: the share of random circuits that a circuit must beat
    epsilon          equivalence: how far the chance to beat the model may be from 1/2
    tolerance        equivalence: smaller differences are ties; a share of the model's metric minus the empty circuit's
    max_difference   completeness: how far circuit and model may differ; a share of the same
    alpha            significance level
    permutations     of the test of independence
    seed             of all random draws
    """

    n_circuits: int = 100
    quantile: float = 0.9
    epsilon: float = 0.1
    tolerance: float = 0.0
    max_difference: float = 0.1
    alpha: float = 0.05
    permutations: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_circuits", "permutations", "seed"):
            value, least = getattr(self, name), int(name != "seed")
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
            object.__setattr__(self, name, int(value))  # NumPy's numbers can't be written as JSON
        for name in ("quantile", "epsilon", "tolerance", "max_difference", "alpha"):
            check_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        for name, low, high in (("quantile", 0, 1), ("epsilon", 0, 0.5), ("alpha", 0, 1)):
            if not low < getattr(self, name) < high:
                raise InputError(f"{name} must lie between {low} and {high}, not at {getattr(self, name)}")
        for name in ("tolerance", "max_difference"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be a share of at least 0 and less than 1, not {getattr(self, name)}")


DEFAULTS = VerifySettings()


@dataclass(frozen=True)
class CircuitTest:
    """The result of one test of a circuit.

    name       such as 'sufficiency'
    null       the null hypothesis in a sentence
    measured   what the statistic is
    statistic  its value
    p          the p-value of the null hypothesis; of minimality the smallest one, of robustness the largest
    verdict    'passes', 'fails', or 'too few' if no result of so few draws or examples could be significant
    advice     how many draws or examples are needed; empty if there are enough
    details    further numbers, and lists of rows, as plain data
    """

    name: str
    null: str
    measured: str
    statistic: float
    p: float
    verdict: str
    advice: str
    details: Mapping[str, Any]

    @property
    def passes(self) -> bool:
        """Whether the circuit passes the test."""
        return self.verdict == PASSES

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"details": dict(self.details)}


@dataclass(frozen=True, eq=False)
class Verification:
    """What the tests say about a circuit.

    circuit              the tested circuit, pruned
    minimal              the circuit without its superfluous edges, pruned
    tests                the tests, in the order of `TESTS`
    faithfulness         of the circuit, with its interval
    minimal_faithfulness of the minimal circuit; None if it was not run
    random, matched      [circuit] faithfulness of random circuits, and of copies with other heads of the same layers
    edge_effects         [edge of the circuit] how much faithfulness the circuit loses without the edge
    node_effects         name of a head or MLP -> the same without the node
    """

    model: str
    task: str
    split: str
    metric: Metric
    ablation: Ablation
    settings: VerifySettings
    n_examples: int
    circuit: Circuit
    minimal: Circuit
    tests: tuple[CircuitTest, ...]
    faithfulness: Interval
    minimal_faithfulness: Interval | None
    random: FloatArray
    matched: FloatArray
    edge_effects: FloatArray
    node_effects: Mapping[str, float]
    seconds: float

    @property
    def superfluous(self) -> tuple[str, ...]:
        """The names of the edges that do not matter more than random ones."""
        test = next((test for test in self.tests if test.name == "minimality"), None)
        return () if test is None else tuple(test.details["superfluous"])

    def test(self, name: str) -> CircuitTest:
        """Return a test by its name. Raise InputError if it was not run."""
        for test in self.tests:
            if test.name == name:
                return test
        raise InputError(f"there is no test {name!r} among {', '.join(test.name for test in self.tests)}")

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "model": self.model,
            "task": self.task,
            "split": self.split,
            "metric": self.metric.name,
            "ablation": self.ablation.name,
            "settings": asdict(self.settings),
            "examples": self.n_examples,
            "edges": self.circuit.n_edges,
            "of": self.circuit.graph.n_edges,
            "units": self.circuit.graph.units,
            "faithfulness": self.faithfulness.record(),
            "tests": [test.record() for test in self.tests],
            "superfluous": list(self.superfluous),
            "minimal": {
                "edges": self.minimal.n_edges,
                "faithfulness": None if self.minimal_faithfulness is None else self.minimal_faithfulness.record(),
            },
            "random": self.random.tolist(),
            "matched": self.matched.tolist(),
            "edge_effects": dict(zip(self.circuit.edges, self.edge_effects.tolist(), strict=False)),
            "node_effects": dict(self.node_effects),
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{test.name}: {test.verdict}" for test in self.tests)
        return f"Verification({self.circuit.graph.count(self.circuit.n_edges)}; {verdicts})"
