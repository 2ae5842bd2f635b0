"""The true circuits of the embedded models `known/NAME`."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from ..core.circuit import Circuit
from ..errors import unknown_name
from ..tasks.known import KNOWN, PREFIX

CIRCUIT_FILE = "circuit.json"
# Where paths are redundant, an edge matters only if the other path is cut. Model -> the sets of edges to cut.
CUTS: dict[str, tuple[tuple[str, ...], ...]] = {"backup": (("a0.h3->a1.h0<k>",), ("a2.h2->logits",))}


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
