"""What the viewer shows, as a value: circuits of one graph, the scores that they were chosen by, and how they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..circuit import Circuit
from ..evaluate import Attention
from ..graph import Graph
from ..results import Prompt

FloatArray = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ViewRun:
    """A run, or the file of a circuit: the scores of the edges, and the examples.

    facts    what to say of it: name -> words
    mean     [edge] signed scores; `low` and `high` their interval, `unstable` whether the sign changed between
             resamples: None where nobody resampled
    full     [example] the metric of the model, and `empty` of the empty circuit; None if nothing was evaluated
    prompts  of the evaluated examples, or of the first of them
    """

    name: str
    facts: Mapping[str, str]
    mean: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    unstable: NDArray[np.bool_] | None = None
    full: FloatArray | None = None
    empty: FloatArray | None = None
    prompts: tuple[Prompt, ...] = ()
    attention: Attention | None = None


@dataclass(frozen=True)
class ViewSize:
    """One circuit of a row: edges asked for and kept, and how faithful it is; None if it wasn't evaluated."""

    share: float
    asked: int
    kept: int
    faithfulness: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class ViewRow:
    """A method's circuits, one per size.

    run         the place of its run
    benchmark   CPR, CMD, or empty for a circuit on its own; `better` is 1 if a higher area is
    parameters  of the method, in words
    area        with its `interval`, if there is one
    metric      [size, example] of every circuit
    value       [edge] that the circuits were chosen by, if it isn't the run's score
    """

    run: int
    benchmark: str
    method: str
    sizes: tuple[ViewSize, ...]
    circuits: tuple[Circuit, ...]
    parameters: str = ""
    better: int = 0
    area: float | None = None
    interval: tuple[float, float] | None = None
    metric: FloatArray | None = None
    value: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """All that a page shows; every run and every circuit is of the same graph.

    shown  the place of the row that is shown first; `size` the place of its size
    """

    title: str
    graph: Graph
    runs: tuple[ViewRun, ...]
    rows: tuple[ViewRow, ...]
    shown: int = 0
    size: int = 0
    notes: tuple[str, ...] = field(default=())
