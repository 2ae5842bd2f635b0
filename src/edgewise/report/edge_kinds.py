"""What edges end in, and the colour of each kind, the same in every figure and export (Okabe and Ito's, which the
colour-blind tell apart)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..graph import LETTERS, Graph

# In the order that legends have.
COLOURS = {"q": "#0072B2", "k": "#E69F00", "v": "#009E73", "MLP": "#CC79A7", "logits": "#000000"}
KINDS = tuple(COLOURS)


def edge_kinds(graph: Graph) -> NDArray[np.int64]:
    """[edge] the place in `KINDS` of what an edge ends in: a head's q, k or v, an MLP, or the logits."""
    heads = np.repeat(np.arange(len(LETTERS)), graph.n_heads)
    layer = np.append(heads, KINDS.index("MLP"))
    found: NDArray[np.int64] = np.append(np.tile(layer, graph.n_layers), KINDS.index("logits"))[graph.edge_destination]
    return found
