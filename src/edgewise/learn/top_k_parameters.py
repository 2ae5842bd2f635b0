"""The parameters of `TopKLearner`, and what follows from them alone, such as learning rates."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..core.ranking import Ranking
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, Measure
from ..graph import BaseGraph
from ..method import check_is
from ..score import EapIg, Scorer
from .base import Learner, check_choice

# Limits for parameters from files: days of work, and more rankings than an estimate of the spread needs.
MOST_STEPS, MOST_RANKINGS = 1_000_000, 1000
# The candidate of the composition that is the ranking from which learning starts.
WARM_START = "warm start"
# With fewer steps than this, default learning rates of measures that are maximised are larger, up to MAX_FACTOR times,
# so that parameters can move as far.
FEW_STEPS, MAX_FACTOR = 170, 3.0
# With forward='sharp', the temperature of the weights that run, as a share of that of the gradient; and to which share
# of its first value it falls for a measure that has a target.
SHARPNESS, FALL = 0.25, 0.1
# The fewest validation examples that are a limit. With more steps, the limit is half as many examples as steps.
LEAST_VALIDATION = 24
# The fewest examples that are a limit for calibration.
LEAST_CALIBRATION = 100


@dataclass(frozen=True)
class TopKParameters(Learner, ABC):
    """The parameters of `TopKLearner`, which describes them."""

    measure: Measure = CMD
    steps: int = 300
    batch: int = 16
    rate: float | None = None
    noise: float = 0.3
    temperature: float = 1.0
    warm: Scorer | None = field(default_factory=EapIg)
    seed: int = 0
    resamples: int = 0
    forward: Literal["hard", "sharp", "soft"] = "sharp"
    draw: Literal["log", "uniform"] = "log"
    decay: bool = True
    circuits: int = 4
    normalise: bool = True
    validate: bool = True
    reverse: bool = True
    node_rate: float = 0.3
    calibrate: bool = True

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        if self.warm is not None:
            check_is("scorer", Scorer, self.warm)
        for what, value in (("steps", self.steps), ("examples a batch", self.batch)):
            if not 1 <= value <= MOST_STEPS:
                raise InputError(f"learning needs at least 1 of {what} and at most {MOST_STEPS:,}, not {value}")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InputError(f"the learning rate must be a positive number, not {self.rate}")
        if not 0 <= self.noise < float("inf") or not 0 < self.temperature < float("inf"):
            raise InputError(f"noise must be at least 0 and temperature above, not {self.noise} and {self.temperature}")
        if not 0 <= self.node_rate < float("inf"):
            raise InputError(f"node_rate must be a number of at least 0, not {self.node_rate}")
        check_choice("forward", self.forward, ("hard", "sharp", "soft"))
        check_choice("draw", self.draw, ("log", "uniform"))
        if not 1 <= self.circuits <= MOST_RANKINGS:
            raise InputError(f"a step runs at least 1 circuit and at most {MOST_RANKINGS:,}, not {self.circuits}")
        if not 0 <= self.seed <= MAX_SEED or not 0 <= self.resamples <= MOST_RANKINGS:
            raise InputError(
                f"a seed and a number of resamples are at least 0, below 2^63 and at most {MOST_RANKINGS:,}, not "
                f"{self.seed} and {self.resamples}"
            )

    @property
    def n_circuits(self) -> int:
        """The number of circuits of a step: `circuits`, or `batch` if that is smaller."""
        return min(self.circuits, self.batch)

    @property
    def n_examples(self) -> int:
        """The number of examples of a step, on each of which all circuits of the step run."""
        return self.batch // self.n_circuits

    @property
    def max_validation(self) -> int:
        """The largest number of validation examples, an even one. It grows with the steps, as their time does."""
        return max(LEAST_VALIDATION, 2 * (self.steps // 4))

    @property
    def max_calibration(self) -> int:
        """The largest number of examples that the ranking is calibrated on. It grows with the steps, too."""
        return max(LEAST_CALIBRATION, 2 * self.steps)

    def rate_for(self, graph: BaseGraph) -> float:
        """Return the learning rate of the first step; with `decay` it falls to 0 as half a cosine.

        For a measure that is maximised, the default is larger for few steps. One that has a target, as CMD has,
        would overshoot it.
        """
        if self.rate is not None:
            return self.rate
        factor = 1.0 if self.measure.has_target else min(MAX_FACTOR, max(1.0, FEW_STEPS / self.steps))
        return self.measure.learning_rate(graph.n_edges) * factor

    def rate_at(self, step: int, graph: BaseGraph) -> float:
        """Return the learning rate of the edges' own parameters in a step."""
        return self.rate_for(graph) * (0.5 * (1 + math.cos(math.pi * step / self.steps)) if self.decay else 1.0)

    def sharp_temperature(self, step: int) -> float:
        """Return the temperature of the weights that run in a step with forward='sharp'.

        For a measure that has a target, as CMD has, the last steps run almost whole edges, so that what is learned
        holds for circuits.
        """
        fall = FALL ** (step / self.steps) if self.measure.has_target else 1.0
        return SHARPNESS * self.temperature * fall

    def start(self, ranking: Ranking | None, graph: BaseGraph) -> NDArray[np.float32]:
        """Return the first parameters [edge]: the logit of each edge's rank, or zeros without a ranking."""
        if ranking is None:
            return np.zeros(graph.n_edges, np.float32)
        value = np.abs(ranking.value) if self.measure.rank == "absolute" else ranking.value
        place = np.argsort(np.argsort(value, kind="stable"), kind="stable") / max(1, len(value) - 1)
        place = np.clip(place, 1e-4, 1 - 1e-4)
        return np.log(place / (1 - place)).astype(np.float32)


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
