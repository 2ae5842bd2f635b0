"""Compose one ranking of several: at every size, take the candidate that is best on validation examples.

A ranking is a sequence of circuits, each within the next larger one. It is composed from the smallest size to the
largest: each candidate adds its best edges to the circuit so far, and the one whose circuit is best is taken. So the
edges of small circuits rank above those that larger circuits add, in the order of the candidate that added them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..evaluate import Curve, Measure, resample_heights, size_to_edges
from ..select import Greedy, SelectionProblem, solve, solve_path
from ..tasks import Task
from .base import LearningProblem

if TYPE_CHECKING:
    from ..runtime.session import Session

FloatArray = NDArray[np.float64]


def compose_ranking(
    problem: LearningProblem,
    validation: Task,
    candidates: Mapping[str, FloatArray],
    measure: Measure,
    session: Session,
) -> tuple[FloatArray, dict[float, str]]:
    """Return the composed values [edge], and size -> the name of the candidate that it takes.

    `candidates` are name -> value [edge]. The first one is the baseline.

    The default is the candidate of the best area. A size takes another one only if that is significantly better there.
    If the circuit is still significantly worse than that of the baseline, because of the smaller circuits in it, this
    size and all smaller ones take the baseline.
    """
    graph, inner = problem.graph, inner_sizes(problem)
    problems = {name: SelectionProblem.of(Ranking(graph, value), "signed", 0) for name, value in candidates.items()}
    paths = {
        name: [selection.circuit for selection in solve_path(p, list(inner.values()), Greedy(), fill=True)]
        for name, p in problems.items()
    }

    ends = problem.evaluate([], session, validation)
    value_of: dict[Circuit, FloatArray] = {}  # [example] of the circuits evaluated so far

    def curves(rows: Sequence[Sequence[Circuit]], shares: Sequence[float]) -> list[Curve]:
        """Return the curve of every row of circuits on validation."""
        new = list(dict.fromkeys(circuit for row in rows for circuit in row if circuit not in value_of))
        if new:
            value_of.update(zip(new, problem.evaluate(new, session, validation).values, strict=True))
        counts = tuple(inner[share] for share in shares)
        return [
            Curve(tuple(shares), counts, tuple(circuit.n_edges for circuit in row),
                  np.stack([value_of[circuit] for circuit in row]), ends.full, ends.empty)
            for row in rows
        ]  # fmt: skip

    names = list(candidates)
    baseline = names[0]
    own = curves(list(paths.values()), list(inner))
    heights = {name: resample_heights(curve, measure) for name, curve in zip(names, own, strict=True)}
    if len(inner) > 1:
        default = names[int(np.argmax([measure.better * curve.area(measure) for curve in own]))]
    else:
        default = names[int(np.argmax([measure.better * heights[name][0].estimate for name in names]))]
    circuits: list[Circuit] = []
    choices: list[str] = []
    for place, (share, count) in enumerate(inner.items()):
        within = circuits[-1] if circuits else None
        options = {name: paths[name][place] for name in names}
        if within is not None:
            for name in names:
                if not (within.mask <= options[name].mask).all():
                    extended = problems[name].with_budget(count, within)
                    options[name] = solve(extended, solver=Greedy(), fill=True).circuit
        height = {
            name: resample_heights(curve, measure)[0]
            for name, curve in zip(names, curves([[options[name]] for name in names], [share]), strict=True)
        }
        choice = default
        better = [name for name in names if height[name].minus(height[default]).is_better]
        if better:
            choice = max(better, key=lambda name: measure.better * height[name].estimate)
        circuits.append(options[choice])
        choices.append(choice)
        if height[choice].minus(heights[baseline][place]).is_worse:
            circuits, choices = paths[baseline][: place + 1], [baseline] * (place + 1)
    by_size = dict(zip(inner, choices, strict=True))
    if set(choices) == {default}:
        return candidates[default], by_size
    return rank_by_circuit(circuits, [candidates[name] for name in choices], candidates[default]), by_size


def inner_sizes(problem: LearningProblem) -> dict[float, int]:
    """Return size -> number of edges, for sizes of neither no edge nor all edges."""
    n_edges = problem.graph.n_edges
    sizes = {size: size_to_edges(size, n_edges) for size in problem.sizes}
    return {size: count for size, count in sizes.items() if 0 < count < n_edges}


def rank_by_circuit(circuits: Sequence[Circuit], values: Sequence[FloatArray], rest: FloatArray) -> FloatArray:
    """Return values [edge] by which edges of smaller circuits come first.

    Edges that a circuit adds are in the order of its entry in `values` [circuit][edge], all others in that of `rest`.
    The sorted values are those of `rest`, so that their spread, which solvers read, is the same.
    """
    n_edges = len(rest)
    level, within = np.full(n_edges, len(circuits)), rest.copy()
    for number in reversed(range(len(circuits))):
        mask = circuits[number].mask
        level[mask], within[mask] = number, values[number][mask]
    order = np.lexsort((-within, level))
    value = np.empty(n_edges)
    value[order] = np.sort(rest)[::-1]
    return value
