"""Verification: what the tests say about a circuit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import Ablation
from ..evaluate.intervals import Interval
from ..tasks import Metric
from .settings import CircuitTest, VerifySettings

FloatArray = NDArray[np.float64]


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
        return f"Verification({self.circuit.n_edges:,} edges; {verdicts})"
