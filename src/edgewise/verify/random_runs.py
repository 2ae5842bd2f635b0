"""Compare a circuit with random ones, on no more examples than the comparison needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..evaluate.run_circuits import Evaluation
from ..runtime.session import Session
from .circuit_tests import ROUNDING, distance

FloatArray = NDArray[np.float64]
# Random circuits run on this many parts of the examples, one after the other. More parts save more, but each takes
# another run of the model on its examples, and a part of few examples wastes time.
MAX_PARTS, MIN_EXAMPLES_PER_PART = 10, 4


class Evaluate(Protocol):
    """`evaluate_circuits` with all arguments but these."""

    def __call__(
        self, circuits: Sequence[Circuit], *, rows: Sequence[int] | None = None, session: Session
    ) -> Evaluation: ...


@dataclass(frozen=True, eq=False)
class RandomRuns:
    """How random circuits did on the examples that they ran on.

    distances     [circuit] from the model
    faithfulness  [circuit]
    n_examples    [circuit] how many examples the circuit ran on
    """

    distances: FloatArray
    faithfulness: FloatArray
    n_examples: NDArray[np.int64]


def run_until_farther(
    evaluate: Evaluate,
    own: FloatArray,
    full: FloatArray,
    empty: FloatArray,
    random: Sequence[Circuit],
    session: Session,
    places: NDArray[np.int64] | None = None,
) -> RandomRuns:
    """Run random circuits until each is known to be farther from the model than a circuit, or on all examples.

    A distance is a mean of absolute differences. Once their sum over some examples exceeds the sum of the circuit over
    all examples, the random circuit is farther, whatever it does on the others. So which circuits are farther is exact.
    The distances of these are means over fewer examples, which are never below the circuit's own.

    own, full, empty  [example] the metric of the circuit, of the model and of the empty circuit
    places            [example] the places of these examples in the task; all of the task by default
    """
    n_examples, n_parts = len(own), max(1, min(MAX_PARTS, len(own) // MIN_EXAMPLES_PER_PART))
    span = float(full.mean() - empty.mean())
    own_distance = float(distance(own, full, span))
    values = np.full((len(random), n_examples), np.nan)
    left, done, total = np.arange(len(random)), 0, len(random) * n_examples
    for part in range(n_parts if len(random) else 0):
        # Examples of a task may be in groups, such as one per template: every part has some of each.
        chosen = np.arange(part, n_examples, n_parts)
        rows = (chosen if places is None else places[chosen]).tolist()
        circuits, progress = [random[index] for index in left.tolist()], session.as_part("random circuits", done, total)
        values[np.ix_(left, chosen)] = evaluate(circuits, rows=rows, session=progress).values
        least = np.nansum(np.abs(values[left] - full), 1) / n_examples / abs(span)
        left = left[least <= own_distance + ROUNDING]
        done = total - len(left) * int(np.isnan(values[left[:1]]).sum())
        session.report("random circuits", done, total)
        if not len(left):
            break
    difference = values - full
    mean = np.nanmean(np.abs(difference), 1) / abs(span)
    # A copy of the circuit that ran in another batch has another rounding error.
    mean[np.abs(mean - own_distance) < ROUNDING] = own_distance
    return RandomRuns(mean, 1 + np.nanmean(difference, 1) / span, (~np.isnan(values)).sum(1))
