"""Kinds of edges by their destination, and the colour of each kind in figures and exports (Okabe and Ito's palette)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..graph import LETTERS, Graph

# In the order of legends.
COLOURS = {"q": "#0072B2", "k": "#E69F00", "v": "#009E73", "MLP": "#CC79A7", "logits": "#000000"}
KINDS = tuple(COLOURS)


def edge_kinds(graph: Graph) -> NDArray[np.int64]:
    """Return the kind of each edge [edge] as its place in `KINDS`."""
    heads = np.repeat(np.arange(len(LETTERS)), graph.n_heads)
    layer = np.append(heads, KINDS.index("MLP"))
    kinds: NDArray[np.int64] = np.append(np.tile(layer, graph.n_layers), KINDS.index("logits"))[graph.edge_destination]
    return kinds
