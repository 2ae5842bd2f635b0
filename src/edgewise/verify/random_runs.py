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
# Random circuits run on a part of the examples at a time, of at least this many: smaller batches are slower.
MIN_EXAMPLES_PER_PART = 4


class Evaluate(Protocol):
    """`evaluate_circuits` with all arguments but these."""

    def __call__(
        self, circuits: Sequence[Circuit], *, rows: Sequence[int] | None = None, session: Session
    ) -> Evaluation: ...


@dataclass(frozen=True, eq=False)
class RandomRuns:
    """How random circuits did on the examples that they ran on.

    distances     [circuit] from the model; an estimate if the circuit did not run on all examples
    faithfulness  [circuit] an estimate in the same case
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

    Most random circuits do about as badly as the empty circuit. So the examples on which the empty circuit differs most
    from the model come first, and a part has as many examples as the empty circuit would need to be farther.

    own, full, empty  [example] the metric of the circuit, of the model and of the empty circuit
    places            [example] the places of these examples in the task; all of the task by default
    """
    n_examples, span = len(own), float(full.mean() - empty.mean())
    places = np.arange(n_examples) if places is None else places
    own_distance = float(distance(own, full, span))
    limit = (own_distance + ROUNDING) * abs(span) * n_examples
    of_empty = np.abs(full - empty)
    waiting = np.argsort(-of_empty, kind="stable")
    values = np.full((len(random), n_examples), np.nan)
    left, sums = np.arange(len(random)), np.zeros(len(random))
    done, total = 0, len(random) * n_examples
    while len(left) and len(waiting):
        missing = limit - np.median(sums[left])
        n_needed = 1 + int(np.searchsorted(np.cumsum(of_empty[waiting]), missing, side="right"))
        part, waiting = np.split(waiting, [max(n_needed, MIN_EXAMPLES_PER_PART)])
        progress = session.as_part("random circuits", done, total)
        circuits = [random[index] for index in left.tolist()]
        values[np.ix_(left, part)] = evaluate(circuits, rows=places[part].tolist(), session=progress).values
        sums[left] += np.abs(values[np.ix_(left, part)] - full[part]).sum(1)
        left = left[sums[left] <= limit]
        done = total - len(left) * len(waiting)
        session.report("random circuits", done, total)
    has_run = ~np.isnan(values)
    # On the first examples all distances are large. The empty circuit's distance there says by how much.
    scale = (has_run @ of_empty) / of_empty.mean()
    distances = sums / scale / abs(span)
    # A copy of the circuit that ran in another batch has another rounding error.
    distances[np.abs(distances - own_distance) < ROUNDING] = own_distance
    return RandomRuns(distances, np.nansum(values - empty, 1) / scale / span, has_run.sum(1))
