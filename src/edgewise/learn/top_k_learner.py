"""Learned rankings: one value per edge, such that at every size the best edges behave as they should.

The optimum of a sum of scores is not the most faithful circuit. Here every edge has a weight, a circuit is run with
these weights, and one parameter per edge is learned so that the best edges of any number come near the goal: the
model's own behaviour for CMD, as much of it as can be for CPR. A step draws a size and noise, runs the hard circuit of
that size, and moves the parameters along the gradient of a soft choice of as many edges (straight through).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.ranking import Ranking
from ..core.statistics import LARGEST_SEED
from ..errors import InputError
from ..evaluate import CMD, MEASURES, SIZES, Measure
from ..graph import Graph
from ..io.records import Makers, members, typed
from ..method import Method, check_is, from_record, parameters, record_name
from ..score import SCORERS, EapIg, Scorer

FloatArray = NDArray[np.float64]
# Sizes below this are drawn by their share of the area alone, which is next to nothing.
LEAST_SHARE = 0.01
# Days of work, and more rankings than any spread needs.
MOST_STEPS, MOST_RANKINGS = 1_000_000, 1000


@dataclass(frozen=True)
class TopKLearner(Method):
    """How a ranking is learned.

    goal         the benchmark whose loss is learned
    steps        how many; `batch` examples each
    rate         of learning; None takes what works for the goal and the number of edges, from hundreds to 180,000
    noise        scale of the logistic noise on the parameters; `temperature` of the soft choice
    warm         scores that the parameters start from, by rank; None starts from nothing, which costs half the gain
    resamples    how many more rankings to learn from resampled examples, for the spread of its values
    """

    name: ClassVar[str] = "learned"
    title: ClassVar[str] = "Learned"
    goal: Measure = CMD
    steps: int = 300
    batch: int = 16
    rate: float | None = None
    noise: float = 0.3
    temperature: float = 1.0
    warm: Scorer | None = field(default_factory=EapIg)
    seed: int = 0
    resamples: int = 0

    def __post_init__(self) -> None:
        check_is("goal", Measure, self.goal)
        if self.warm is not None:
            check_is("scorer", Scorer, self.warm)
        for what, value in (("steps", self.steps), ("examples a batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"learning needs at least 1 of {what} and at most {MOST_STEPS:,}, not {value}")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not 0 <= self.noise < float("inf") or not 0 < self.temperature < float("inf"):
            raise InputError(f"noise must be at least 0 and temperature above, not {self.noise} and {self.temperature}")
        if not 0 <= self.seed <= LARGEST_SEED or not 0 <= self.resamples <= MOST_RANKINGS:
            raise InputError(
                f"a seed and a number of resamples are at least 0, below 2^63 and at most {MOST_RANKINGS:,}, not "
                f"{self.seed} and {self.resamples}"
            )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TopKLearner:
        """The learner that `record` came from, read back from JSON."""
        makers: Makers = {
            Measure: partial(from_record, "goal", MEASURES),
            Scorer: partial(from_record, "scorer", SCORERS),
        }
        record_name("learner", record)
        given = {name: value for name, value in typed(Mapping[str, Any], record, "learner").items() if name != "name"}
        return cls(**members(cls, parameters(cls), given, "learner", makers))

    def rate_for(self, graph: Graph) -> float:
        """The learning rate at the first step; it decays to 0 as half a cosine."""
        return self.goal.learning_rate(graph.n_edges) if self.rate is None else self.rate

    def rate_at(self, step: int, graph: Graph) -> float:
        """The learning rate at a step."""
        return self.rate_for(graph) * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    def start(self, ranking: Ranking | None, graph: Graph) -> NDArray[np.float32]:
        """[edge] the parameters at first: the logit of each edge's rank, or zeros."""
        if ranking is None:
            return np.zeros(graph.n_edges, np.float32)
        value = np.abs(ranking.value) if self.goal.rank == "absolute" else ranking.value
        place = np.argsort(np.argsort(value, kind="stable"), kind="stable") / max(1, len(value) - 1)
        place = np.clip(place, 1e-4, 1 - 1e-4)
        return np.log(place / (1 - place)).astype(np.float32)


def trend(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """How the loss changed from the first to the last third of the steps, size by size, relative to what it was.

    Below 0 it fell. Losses of different sizes aren't alike, so only equal sizes are compared; 0 if too few are.
    """
    third = len(losses) // 3
    first, last = ({}, {})  # type: tuple[dict[int, list[float]], dict[int, list[float]]]
    for kept, steps in ((first, range(third)), (last, range(len(losses) - third, len(losses)))):
        for step in steps:
            kept.setdefault(sizes[step], []).append(losses[step])
    both = [size for size in first if len(first[size]) > 2 and len(last.get(size, ())) > 2]
    changes = [np.mean(last[size]) - np.mean(first[size]) for size in both]
    before = np.mean([np.mean(np.abs(first[size])) for size in both]) if both else 0.0
    return float(np.mean(changes) / before) if before else 0.0


def size_chances(graph: Graph, sizes: tuple[float, ...] = SIZES) -> tuple[tuple[float, ...], FloatArray]:
    """The sizes that steps draw, and how often: half the steps evenly, half by a size's part of the area.

    Sizes that ask for no edge, or for all, leave nothing to learn.
    """
    inner = [i for i, share in enumerate(sizes) if 0 < int(share * graph.n_edges) < graph.n_edges]
    if not inner:
        raise InputError(f"none of the sizes {sizes} leaves a choice in a graph of {graph.n_edges} edges")
    around = (0.0, *sizes, sizes[-1])
    area = np.array([(around[i + 2] - around[i]) / 2 for i in inner])
    even = np.array([float(sizes[i] >= LEAST_SHARE) for i in inner])
    even = even if even.any() else np.ones(len(inner))
    return tuple(sizes[i] for i in inner), 0.5 * area / area.sum() + 0.5 * even / even.sum()
