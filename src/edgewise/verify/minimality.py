"""Minimality: does every edge of the circuit matter more than edges of random paths that are added to it?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from .exact_tests import binomial_at_most, draws_needed, holm
from .random_circuits import Rng, add_path
from .verification import CircuitTest, VerifySettings, judge

FloatArray = NDArray[np.float64]


def draw_reference(circuit: Circuit, draws: int, rng: Rng) -> tuple[list[Circuit], list[Circuit]]:
    """Return circuits with one random path added, and the same circuits without one of the added edges."""
    with_path, without_edge = [], []
    for _ in range(draws):
        larger, added = add_path(circuit, rng)
        mask = larger.mask.copy()
        mask[rng.choice(added)] = False
        with_path.append(larger)
        without_edge.append(Circuit(circuit.graph, mask))
    return with_path, without_edge


def minimality(
    changes: FloatArray, random_changes: FloatArray, edges: Sequence[str], settings: VerifySettings
) -> CircuitTest:
    """Test every edge of a circuit: is it superfluous?

    changes         [edge of the circuit] the distance between the circuit and the circuit without the edge
    random_changes  [draw] the same for an edge of a random path that was added to the circuit
    edges           the names of the edges

    The detail `edges` has a row per edge; `superfluous` lists the names of superfluous edges.
    """
    draws = len(random_changes)
    # Changes of dead edges are rounding errors: equal ones are not larger than each other.
    wins = (changes[:, None] > random_changes).sum(1)
    p_by_wins = {count: binomial_at_most(count, draws, settings.quantile) for count in set(wins.tolist())}
    corrected = holm([p_by_wins[count] for count in wins.tolist()])
    is_superfluous = corrected <= settings.alpha
    needed = draws_needed(1 - settings.quantile, settings.alpha, len(edges))
    verdict, advice = judge(not is_superfluous.any(), draws, needed, "added paths")
    rows = [
        {"edge": edge, "change": change, "share": count / draws, "p": p, "superfluous": bool(flag)}
        for edge, change, count, p, flag in zip(
            edges, changes.tolist(), wins.tolist(), corrected.tolist(), is_superfluous, strict=True
        )
    ]
    return CircuitTest(
        name="minimality",
        null=f"Every edge of the circuit matters more than {settings.quantile:.0%} of edges of added random paths.",
        measured="share of superfluous edges",
        statistic=float(is_superfluous.mean()),
        p=float(corrected.min()),
        verdict=verdict,
        advice=advice,
        details={
            "draws": draws,
            "superfluous": [edge for edge, flag in zip(edges, is_superfluous, strict=True) if flag],
            "edges": rows,
            "random": random_changes.tolist(),
        },
    )
