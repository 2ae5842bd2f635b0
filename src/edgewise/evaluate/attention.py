"""Where heads look: attention patterns of a model on some examples, kept small enough to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..graph import Graph, frozen
from ..tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

    from ..models import Model

# Of all patterns together: what a page can carry.
MOST_BYTES = 1_500_000
# Attention is kept in so many steps.
STEPS = 255


@dataclass(frozen=True, eq=False)
class Attention:
    """Where some heads look on some examples, on the clean and on the corrupted prompt.

    examples  their rows in the task; `lengths` how many tokens they have
    heads     nodes of the graph
    values    per example [side, head, pair] in 255ths: a side is clean or corrupted, a pair is a position and one that
              it looks at, itself or an earlier one: the lower triangle of the pattern, row by row
    """

    examples: tuple[int, ...]
    lengths: tuple[int, ...]
    heads: tuple[int, ...]
    values: tuple[NDArray[np.uint8], ...]

    def __post_init__(self) -> None:
        shapes = tuple((2, len(self.heads), pairs(length)) for length in self.lengths)
        if len(self.examples) != len(self.lengths) or tuple(one.shape for one in self.values) != shapes:
            raise InputError("attention patterns must be [side, head, pair] for every example")
        object.__setattr__(self, "values", tuple(frozen(one, np.uint8) for one in self.values))

    def pattern(self, example: int, head: int, corrupted: bool = False) -> NDArray[np.float64]:
        """[position, key] how much positions look at others, for an example (a row of the task) and a head (a node)."""
        if example not in self.examples or head not in self.heads:
            raise InputError(
                f"attention was kept for examples {list(self.examples)} and heads {list(self.heads)}, "
                f"not for example {example} and head {head}"
            )
        place = self.examples.index(example)
        length = self.lengths[place]
        found = np.zeros((length, length))
        found[np.tril_indices(length)] = self.values[place][int(corrupted), self.heads.index(head)] / STEPS
        return found

    def __repr__(self) -> str:
        return f"Attention({len(self.heads)} heads on {len(self.examples)} examples)"


def pairs(length: int) -> int:
    """How many pairs of a position and one that it may look at there are."""
    return length * (length + 1) // 2


def record_attention(model: Model, task: Task, examples: Sequence[int], heads: Sequence[int]) -> Attention | None:
    """The attention of heads (nodes, the more important first) on examples of a task (rows).

    As many heads as fit into 1.5 MB, of fewer examples if not even one does; None if there is no room for any, as with
    prompts of thousands of tokens.
    """
    lengths = tuple(task.examples[row].length for row in examples)
    room = MOST_BYTES // max(1, 2 * sum(map(pairs, lengths)))
    chosen = tuple(heads[:room])
    if not examples or not heads:
        return None
    if not chosen:
        return record_attention(model, task, examples[:-1], heads)
    values = tuple(_values(model, task.part([row]), chosen) for row in examples)
    return Attention(tuple(examples), lengths, chosen, values)


def strongest_heads(graph: Graph, strength: NDArray[np.floating]) -> NDArray[np.intp]:
    """The heads, as nodes, by the sum of `strength` [edge] over the edges that begin or end there; strongest first."""
    total = np.bincount(graph.edge_source, strength, graph.n_nodes) + np.bincount(
        graph.edge_head, strength, graph.n_nodes
    )
    heads = np.concatenate(
        [graph.attention_sources(layer) + np.arange(graph.n_heads) for layer in range(graph.n_layers)]
    )
    return heads[np.argsort(-total[heads], kind="stable")]


def _values(model: Model, task: Task, heads: Sequence[int]) -> NDArray[np.uint8]:
    """[side, head, pair] of a task of one example."""
    import torch

    from ..models.batch import make_batch
    from ..models.forward import attention_patterns, make_frame, run

    transformer, graph = model.transformer, model.graph
    batch = make_batch(task.examples, transformer.device)
    layers, places = np.divmod(np.asarray(heads) - 1, graph.n_heads + 1)
    query, key = np.tril_indices(batch.clean.shape[1])

    def side(tokens: Tensor) -> NDArray[np.uint8]:
        frame = make_frame(transformer, batch.real)
        layered = attention_patterns(transformer, run(transformer, transformer.embed(tokens), frame), frame)
        found = [layered[layer][0, head].float().cpu().numpy() for layer, head in zip(layers, places, strict=True)]
        return np.round(STEPS * np.stack(found)[:, query, key]).astype(np.uint8)

    with torch.no_grad():
        return np.stack([side(batch.clean), side(batch.corrupted)])
