"""The evaluated examples in a result folder: their tokens as text, and the attention of heads on a few of them.

examples.json   the prompts and answers of the first 500, fewer if they are long, for people and for the viewer
attention.npz   examples, lengths [example], heads [head] (nodes) and values [number], all of `Attention` in one row
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluate import Attention
from ..evaluate.attention import pairs
from ..graph import Graph
from ..io.arrays import read_arrays, write_arrays
from ..io.atomic import write_json
from ..io.records import convert_record, read_format
from ..recipes.run_info import MAX_PROMPTS, Prompt, RunInfo

if TYPE_CHECKING:
    from ..recipes.discovery import Discovery

FORMAT, VERSION = "edgewise-examples", 1
SHAPES = {"examples": ("i8", (None,)), "lengths": ("i8", (None,)), "heads": ("i8", (None,)), "values": ("u1", (None,))}


class ExamplesRecord(TypedDict):
    """The content of examples.json. `left_out` counts the examples whose prompts it doesn't have."""

    split: str
    prompts: list[Prompt]
    left_out: int


def write_examples(folder: Path, result: Discovery) -> None:
    """Write the prompts of a run, and the attention of heads, into a folder."""
    record = {
        "split": result.run.test.split,
        "left_out": result.run.test.examples - len(result.prompts),
        "prompts": [asdict(prompt) for prompt in result.prompts],
    }
    write_json(folder / "examples.json", {"format": FORMAT, "version": VERSION} | record)
    if (attention := result.attention) is not None:
        arrays: dict[str, NDArray[Any]] = {
            name: np.array(getattr(attention, name), np.int64) for name in ("examples", "lengths", "heads")
        }
        values = np.concatenate([patterns.ravel() for patterns in attention.values])
        write_arrays(folder / "attention.npz", arrays | {"values": values})


def read_prompts(folder: Path, run: RunInfo) -> tuple[Prompt, ...]:
    """Return the prompts of a run's evaluated examples, or of the first of them. Early versions wrote none."""
    path = folder / "examples.json"
    if not os.path.isfile(path):
        return ()
    record: ExamplesRecord = convert_record(ExamplesRecord, read_format(path, FORMAT, VERSION), str(path))
    prompts = tuple(record["prompts"])
    is_complete = record["left_out"] >= 0 and len(prompts) + record["left_out"] == run.test.examples
    if not is_complete or len(prompts) > MAX_PROMPTS or record["split"] != run.test.split:
        raise InputError(f"{path} has other prompts than those that the run was evaluated on")
    if not all(len(prompt.clean) == len(prompt.corrupted) > 0 for prompt in prompts):
        raise InputError(f"{path} has a pair of prompts of different lengths")
    return prompts


def read_attention(folder: Path, run: RunInfo) -> Attention | None:
    """Return the attention of heads on some examples of a run. None if it wasn't written."""
    path = folder / "attention.npz"
    if not os.path.isfile(path):
        return None
    arrays = read_arrays(path, SHAPES)  # type: ignore[arg-type]
    examples, lengths, heads = (arrays[name].tolist() for name in ("examples", "lengths", "heads"))
    n_values, graph = len(arrays["values"]), run.graph
    is_distinct = len(set(examples)) == len(examples) == len(lengths) > 0 and len(set(heads)) == len(heads) > 0
    is_known = all(0 <= row < run.test.examples for row in examples) and all(_is_head(graph, node) for node in heads)
    if not is_distinct or not is_known or not all(0 < length <= n_values for length in lengths):
        raise InputError(f"{path} has examples or heads that the run hasn't")
    ends = np.cumsum([2 * len(heads) * pairs(length) for length in lengths])
    if ends[-1] != n_values:
        raise InputError(f"{path} has {n_values:,} numbers, but its heads and examples need {ends[-1]:,}")
    patterns = (part.reshape(2, len(heads), -1) for part in np.split(arrays["values"], ends[:-1]))
    return Attention(tuple(examples), tuple(lengths), tuple(heads), tuple(patterns))


def _is_head(graph: Graph, node: int) -> bool:
    return 0 < node < graph.n_sources and (node - 1) % (graph.n_heads + 1) < graph.n_heads
