"""Known circuits: those of the embedded models `known/NAME`, and how well rankings agree with them (InterpBench)."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.circuit import Circuit
from ..core.ranking import tied_ranks
from ..errors import InputError, unknown_name
from ..tasks.known import KNOWN, PREFIX

CIRCUIT_FILE = "circuit.json"


def known_circuit(name: str) -> Circuit:
    """Return the true circuit of an embedded model.

    Parameters
    ----------
    name
        'induction', 'ioi', 'greater-than' or 'backup', with or without 'known/' before it.

    Returns
    -------
    Circuit

    Raises
    ------
    InputError
        If there is no such model.

    Examples
    --------
    >>> edgewise.known_circuit("induction").edges
    """
    known = f"{PREFIX}{str(name).removeprefix(PREFIX)}"
    if known not in KNOWN:
        raise unknown_name("known circuit", str(name), [key.removeprefix(PREFIX) for key in KNOWN])
    return Circuit.load(Path(str(files("edgewise") / known)) / CIRCUIT_FILE)


def read_truth(name: str) -> Circuit:
    """Return a known circuit: that of the embedded model `known/NAME`, or the one in a circuit file."""
    return known_circuit(name) if name.startswith(PREFIX) and not os.path.exists(name) else Circuit.load(name)


def auroc(score: ArrayLike, truth: Circuit) -> float:
    """Return the chance that a random edge of the circuit scores higher than a random other one. Ties count half.

    Parameters
    ----------
    score
        [edge] values in the order of `truth.graph.edge_names`. Take absolute values if signs do not matter.
    truth
        The known circuit.

    Returns
    -------
    float
        The area under the ROC curve: 1 if all edges of the circuit rank first, 0.5 for a random order.
    """
    inside, score, n_in = _check(score, truth)
    return float((tied_ranks(score)[inside].sum() - n_in * (n_in + 1) / 2) / (n_in * (len(inside) - n_in)))


def precision_at_true_size(score: ArrayLike, truth: Circuit) -> float:
    """Return the share of the circuit's edges among as many edges with the highest scores.

    Of tied edges at the end, the expected share counts.

    Parameters
    ----------
    score
        [edge] values in the order of `truth.graph.edge_names`.
    truth
        The known circuit.

    Returns
    -------
    float
        From 0 to 1. A random order has the share of the circuit among all edges.
    """
    inside, score, n_in = _check(score, truth)
    lowest = np.sort(score)[-n_in]
    above, tied = score > lowest, score == lowest
    n_true = inside[above].sum() + (n_in - above.sum()) * inside[tied].mean()
    return float(n_true / n_in)


def _check(score: ArrayLike, truth: Circuit) -> tuple[NDArray[np.bool_], NDArray[np.float64], int]:
    """Return the circuit's mask [edge], the scores [edge] and the number of edges in the circuit."""
    inside, scores = truth.mask, np.asarray(score, np.float64)
    if scores.shape != inside.shape:
        raise InputError(f"there are {scores.shape} scores for {inside.shape} edges")
    if not inside.any() or inside.all():
        raise InputError("a known circuit must have some edges and lack some, to compare a ranking with it")
    return inside, scores, truth.n_edges
