"""The sizes that the steps of learning draw, and the trend of their losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluate import SIZES
from ..graph import Graph

FloatArray = NDArray[np.float64]
# Half of the steps draw only sizes of at least this share: smaller ones hardly count for the area.
LEAST_EVEN_SIZE = 0.01


def loss_trend(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the relative change of the loss from the first to the last third of the steps; below 0 if it fell.

    Losses of different sizes differ in scale, so only equal sizes are compared. 0 if there are too few of them.
    """
    third = len(losses) // 3
    first: dict[int, list[float]] = {}
    last: dict[int, list[float]] = {}
    for by_size, steps in ((first, range(third)), (last, range(len(losses) - third, len(losses)))):
        for step in steps:
            by_size.setdefault(sizes[step], []).append(losses[step])
    shared = [size for size in first if len(first[size]) > 2 and len(last.get(size, ())) > 2]
    changes = [np.mean(last[size]) - np.mean(first[size]) for size in shared]
    before = np.mean([np.mean(np.abs(first[size])) for size in shared]) if shared else 0.0
    return float(np.mean(changes) / before) if before else 0.0


def size_chances(graph: Graph, sizes: tuple[float, ...] = SIZES) -> tuple[tuple[float, ...], FloatArray]:
    """Return the sizes that steps draw, and their probabilities: half uniform, half by a size's part of the area.

    Sizes of no edge or of all edges are left out: they leave nothing to learn.
    """
    inner = [i for i, size in enumerate(sizes) if 0 < int(size * graph.n_edges) < graph.n_edges]
    if not inner:
        raise InputError(f"none of the sizes {sizes} leaves a choice in a graph of {graph.n_edges} edges")
    around = (0.0, *sizes, sizes[-1])
    area = np.array([(around[i + 2] - around[i]) / 2 for i in inner])
    even = np.array([float(sizes[i] >= LEAST_EVEN_SIZE) for i in inner])
    even = even if even.any() else np.ones(len(inner))
    return tuple(sizes[i] for i in inner), 0.5 * area / area.sum() + 0.5 * even / even.sum()
