"""Completeness: do circuit and model respond in the same way if nodes of the circuit are cut from both?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from .comparisons import count_wins
from .random_circuits import Rng
from .verification import CircuitTest, VerifySettings

FloatArray = NDArray[np.float64]


def inner_nodes(circuit: Circuit) -> list[str]:
    """Return the heads and MLPs of a circuit."""
    return [name for name in circuit.nodes if name not in ("input", "logits")]


def draw_node_sets(circuit: Circuit, draws: int, rng: Rng) -> list[list[str]]:
    """Return random sets of a circuit's heads and MLPs, of 1 to half of them, all sizes with the same probability."""
    names = inner_nodes(circuit)
    largest = max(1, len(names) // 2)
    return [rng.choice(names, rng.integers(1, largest + 1), replace=False).tolist() for _ in range(draws)]


def completeness(circuit: FloatArray, model: FloatArray, span: float, settings: VerifySettings) -> CircuitTest:
    """Test whether circuit and model agree if the same nodes are cut from both.

    circuit, model  [set] the mean metric of the circuit, and of the model, without each set of nodes
    span            the mean difference between the model and the empty circuit

    The details have the mean and the largest difference, as shares of the span.
    """
    differences = np.abs(circuit - model) / abs(span)
    limit = settings.max_difference
    return count_wins(
        "completeness",
        f"For at most {settings.quantile:.0%} of the sets of its nodes, cutting the set from the circuit and from the "
        f"model leaves metrics within {limit:.0%} of each other.",
        f"share of node sets with a difference of at most {limit:.0%}",
        differences <= limit,
        settings,
        {"mean_difference": float(differences.mean()), "largest_difference": float(differences.max())},
    )
