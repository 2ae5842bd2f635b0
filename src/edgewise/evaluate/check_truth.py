"""Check a circuit that is claimed to be true by exact patching: every edge inside matters, no edge outside does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..models import Model
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import Task
from .measures import faithfulness
from .run_circuits import evaluate_circuits

MAX_OUTSIDE, MIN_INSIDE, MIN_FAITHFULNESS = 0.01, 0.05, 0.99


@dataclass(frozen=True, eq=False)
class TruthCheck:
    """What exact patching says about a circuit.

    truth         the circuit
    effects       [edge] how far the mean metric falls if the edge alone is patched, as a share of the difference
                  between the model and the empty circuit; with cuts, the effect of the largest size over them
    changes       [edge] the same, but the mean over examples of the size of the change, so at least |effect|
    faithfulness  of the circuit
    """

    truth: Circuit
    effects: NDArray[np.float64]
    changes: NDArray[np.float64]
    faithfulness: float

    @property
    def strongest_outside(self) -> float:
        """The largest change by an edge outside the circuit."""
        return float(self.changes[~self.truth.mask].max(initial=0.0))

    @property
    def weakest_inside(self) -> float:
        """The smallest size of the effect of an edge inside the circuit."""
        return float(np.abs(self.effects[self.truth.mask]).min(initial=np.inf))

    @property
    def is_verified(self) -> bool:
        """Whether the circuit is true: edges outside do not matter, edges inside do, and it is faithful."""
        is_split = self.strongest_outside <= MAX_OUTSIDE and self.weakest_inside >= MIN_INSIDE
        return is_split and self.faithfulness >= MIN_FAITHFULNESS


def check_truth(
    model: Model,
    task: Task,
    truth: Circuit,
    cuts: Sequence[Sequence[str]] = (),
    session: Session = DEFAULT_SESSION,
) -> TruthCheck:
    """Patch every edge of a model alone, and run a circuit that is claimed to be the true one.

    Parameters
    ----------
    model, task
        The model, and the examples to run it on.
    truth
        The circuit.
    cuts
        Sets of edges. Where paths are redundant, an edge matters only if the other path is cut, so every edge is also
        patched in the model without each of these sets.
    session
        Store, engine and progress.

    Returns
    -------
    TruthCheck

    Raises
    ------
    InputError
        If the circuit is one of another graph than the model's, or has no edges.
    """
    if not truth.n_edges:
        raise InputError("a true circuit needs edges, but this one has none")
    graph = model.graph
    bases = [np.ones(graph.n_edges, bool)]
    bases += [~Circuit.from_edges(graph, cut).mask for cut in cuts]
    singles = ~np.eye(graph.n_edges, dtype=bool)
    circuits = [Circuit(graph, mask) for base in bases for mask in (base, *(base & singles))]
    ran = evaluate_circuits(model, task, [truth, *circuits], session=session)
    values = ran.values[1:].reshape(len(bases), graph.n_edges + 1, len(task))
    falls = (values[:, :1] - values[:, 1:]) / (ran.full.mean() - ran.empty.mean())
    means = falls.mean(-1)
    strongest = np.abs(means).argmax(0)
    return TruthCheck(
        truth=truth,
        effects=means[strongest, np.arange(graph.n_edges)],
        changes=np.abs(falls).mean(-1).max(0),
        faithfulness=float(faithfulness(ran.values[0].mean(), ran.full.mean(), ran.empty.mean())),
    )
