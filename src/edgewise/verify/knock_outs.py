"""Knock-outs: how much does the metric fall if nodes or edges of the whole model are cut?

Cutting an edge means that it carries what the ablation puts in its place. Cutting a node cuts all edges out of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.statistics import percentile_interval, resampling_weights
from ..errors import InputError
from ..evaluate.ablations import DEFAULT_ABLATION, Ablation
from ..evaluate.intervals import CONFIDENCE, RESAMPLES, Interval
from ..evaluate.run_circuits import SHOWN_MEANS, check_graph, evaluate_circuits
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KnockOuts:
    """What happens to the metric if sets of nodes and edges are cut from the model, one set at a time.

    names        the nodes and edges of each set
    values       [set, example] the metric of the model without the set
    full, empty  [example] the metric of the model and of the empty circuit
    """

    names: tuple[tuple[str, ...], ...]
    metric: Metric
    ablation: Ablation
    values: FloatArray
    full: FloatArray
    empty: FloatArray

    @property
    def effects(self) -> FloatArray:
        """[set, example] How far the metric falls: that of the model minus that of the model without the set."""
        return self.full - self.values

    @property
    def shares(self) -> FloatArray:
        """[set] The mean effect as a share of the difference between the model and the empty circuit.

        NaN if there is no difference.
        """
        metric_range = self.full.mean() - self.empty.mean()
        return np.divide(
            self.effects.mean(1), metric_range, out=np.full(len(self.values), np.nan), where=metric_range != 0
        )

    @property
    def order(self) -> NDArray[np.intp]:
        """[set] The sets from the largest mean effect to the smallest; negative effects come last."""
        return np.argsort(-self.effects.mean(1), kind="stable")

    def intervals(
        self, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
    ) -> tuple[Interval, ...]:
        """Return the mean effect of every set with its percentile interval over resampled examples."""
        draws = resampling_weights(len(self.full), resamples, seed) @ self.effects.T
        lows, highs = percentile_interval(draws, confidence)
        rows = zip(self.effects.mean(1).tolist(), lows.tolist(), highs.tolist(), strict=True)
        return tuple(Interval(mean, low, high, confidence) for mean, low, high in rows)

    def __repr__(self) -> str:
        sets, examples = self.values.shape
        shape = f"{sets:,} set{'s' * (sets != 1)} x {examples:,} examples"
        effects = self.effects.mean(1)
        shown = ", ".join(f"{_label(self.names[row])} {effects[row]:+.4g}" for row in self.order[:SHOWN_MEANS])
        more = ", ..." * (sets > SHOWN_MEANS)
        return f"KnockOuts({shape}, {self.metric.name}, {self.ablation.name}; effects: {shown}{more})"


def _label(names: tuple[str, ...]) -> str:
    """Return a short name of a set."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def knock_out(
    model: Model,
    task: Task,
    nodes_or_edges: str | Iterable[str] | Circuit | None = None,
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    *,
    each: bool = False,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> KnockOuts:
    """Cut nodes and edges from the model, all at once or one at a time, and measure how far the metric falls.

    To run the model without edges in any other way, give `Circuit.full(model.graph).without(names)` to
    `evaluate_circuits`.

    Parameters
    ----------
    model, task
        The model, and the examples to run it on.
    nodes_or_edges
        Names such as `a9.h9`, `m0` or `m0->a5.h5<q>`, or a circuit: its edges. A node stands for all edges out of it.
        By default all nodes, with `each`.
    each
        Cut one node or edge at a time, instead of all at once.
    metric, ablation, batch_size, memory, session
        As in `evaluate_circuits`.

    Returns
    -------
    KnockOuts
        One set, whose effect on every example is `effects[0]`; with `each`, one per node or edge, in their order.

    Raises
    ------
    InputError
        If nothing is given, the circuit is one of another model or empty, or the model has no such node or edge.

    Examples
    --------
    >>> edgewise.knock_out(model, task, ["a3.h2", "m0->a3.h0<q>"]).intervals()
    >>> ran = edgewise.knock_out(model, task, each=True)
    >>> [ran.names[row] for row in ran.order[:5]]
    """
    if isinstance(nodes_or_edges, Circuit):
        check_graph(nodes_or_edges.graph, model, task)
        names = nodes_or_edges.edges
    elif nodes_or_edges is None:
        names = model.graph.source_names if each else ()
    elif isinstance(nodes_or_edges, Iterable) and not isinstance(nodes_or_edges, str):
        names = tuple(nodes_or_edges)
    else:
        names = (nodes_or_edges,)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"names of nodes or edges are needed, such as a0.h1 or input->m0, not {name!r}")
    if not names:
        raise InputError("nothing is to be cut; give names of nodes or edges, such as a0.h1 or input->m0")
    sets, everything = tuple((name,) for name in names) if each else (names,), Circuit.full(model.graph)
    ran = evaluate_circuits(
        model, task, [everything.without(cut) for cut in sets], metric, ablation,
        batch_size=batch_size, memory=memory, session=session,
    )  # fmt: skip
    return KnockOuts(sets, ran.metric, ablation, ran.values, ran.full, ran.empty)
