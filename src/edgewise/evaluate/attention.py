"""Attention patterns of a model on a few examples, small enough for a web page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph, frozen
from ..models.torch_modes import default_torch_modes
from ..tasks import Task

if TYPE_CHECKING:
    from ..models import Model

# All patterns together: a web page holds them.
MAX_BYTES = 1_500_000
# Attention is stored as a whole number from 0 to this.
MAX_LEVEL = 255


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention patterns of some heads on some examples, on the clean and on the corrupted prompt.

    examples  rows of the task; `lengths` are their numbers of tokens
    heads     nodes of the graph
    values    per example [side, head, pair] in 255ths: a side is clean or corrupted; a pair is a query and a key
              position, in the order of the rows of the pattern's lower triangle
    """

    examples: tuple[int, ...]
    lengths: tuple[int, ...]
    heads: tuple[int, ...]
    values: tuple[NDArray[np.uint8], ...]

    def __post_init__(self) -> None:
        shapes = tuple((2, len(self.heads), pairs(length)) for length in self.lengths)
        if len(self.examples) != len(self.lengths) or tuple(value.shape for value in self.values) != shapes:
            raise InputError("attention patterns must be [side, head, pair] for every example")
        object.__setattr__(self, "values", tuple(frozen(value, np.uint8) for value in self.values))

    def pattern(self, example: int, head: int, corrupted: bool = False) -> NDArray[np.float64]:
        """Return the pattern [query, key] of an example (a row of the task) and a head (a node)."""
        if example not in self.examples or head not in self.heads:
            raise InputError(
                f"there are patterns for examples {list(self.examples)} and heads {list(self.heads)}, "
                f"not for example {example} and head {head}"
            )
        place = self.examples.index(example)
        length = self.lengths[place]
        pattern = np.zeros((length, length))
        pattern[np.tril_indices(length)] = self.values[place][int(corrupted), self.heads.index(head)] / MAX_LEVEL
        return pattern

    def __repr__(self) -> str:
        return f"Attention({len(self.heads)} heads on {len(self.examples)} examples)"


def pairs(length: int) -> int:
    """Return the number of pairs of a query and a key that isn't later."""
    return length * (length + 1) // 2


@default_torch_modes()
def record_attention(model: Model, task: Task, examples: Sequence[int], heads: Sequence[int]) -> Attention | None:
    """Return the attention patterns of heads (nodes, most important first) on examples (rows) of a task.

    It keeps as many heads as fit into 1.5 MB, and fewer examples if no head fits. None if nothing fits, as with prompts
    of thousands of tokens.
    """
    import torch

    from ..models.forward import attention_patterns, make_frame, run
    from ..models.prepare import make_batch

    def head_bytes(rows: Sequence[int]) -> int:
        return sum(2 * pairs(task.examples[row].length) for row in rows)

    while examples and head_bytes(examples) > MAX_BYTES:
        examples = examples[:-1]
    if not examples or not heads:
        return None
    chosen = tuple(heads[: MAX_BYTES // head_bytes(examples)])
    transformer = model.transformer
    layers, places = np.divmod(np.asarray(chosen) - 1, model.graph.n_heads + 1)
    values = []
    for row in examples:
        batch = make_batch([task.examples[row]], transformer.device)
        frame = make_frame(transformer, batch.real, batch.branch)
        query, key = np.tril_indices(batch.clean.shape[1])
        sides = []
        for tokens in (batch.clean, batch.corrupted):
            with torch.no_grad():
                layered = attention_patterns(transformer, run(transformer, transformer.embed(tokens), frame), frame)
            patterns = [
                layered[layer][0, head].float().cpu().numpy() for layer, head in zip(layers, places, strict=True)
            ]
            sides.append(np.round(MAX_LEVEL * np.stack(patterns)[:, query, key]).astype(np.uint8))
        values.append(np.stack(sides))
    lengths = tuple(task.examples[row].length for row in examples)
    return Attention(tuple(examples), lengths, chosen, tuple(values))


def strongest_heads(graph: Graph, strength: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return the heads (nodes) by the sum of `strength` [edge] over their edges, strongest first."""
    total = np.bincount(graph.edge_source, strength, graph.n_nodes) + np.bincount(
        graph.edge_target, strength, graph.n_nodes
    )
    return graph.heads[np.argsort(-total[graph.heads], kind="stable")]
