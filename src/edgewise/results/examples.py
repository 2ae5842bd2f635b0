"""The evaluated examples in a result folder: their tokens as text, and where heads look on a few of them.

examples.json   the prompts and answers of the first 500, fewer if they are long, for people and for the viewer
attention.npz   examples, lengths [example], heads [head] (nodes) and values [number], those of `Attention` in one row
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from ..tasks import Example
from .run_record import RunRecord

if TYPE_CHECKING:
    from ..pipeline import Discovery

FORMAT, VERSION = "edgewise-examples", 1
MOST_PROMPTS = 500
# Of all prompts together: more wouldn't fit into a page, nor into a file that is read back.
MOST_TOKENS = 100_000
# What SentencePiece writes for a space.
SPACE = "▁"
SHAPES = {"examples": ("i8", (None,)), "lengths": ("i8", (None,)), "heads": ("i8", (None,)), "values": ("u1", (None,))}


@dataclass(frozen=True)
class Prompt:
    """A pair of prompts as the texts of their tokens, and the two answers."""

    clean: tuple[str, ...]
    corrupted: tuple[str, ...]
    correct: str
    incorrect: str


class ExamplesRecord(TypedDict):
    """What examples.json says; `left_out` counts the examples whose prompts it hasn't."""

    split: str
    prompts: list[Prompt]
    left_out: int


def fill_examples(folder: Path, found: Discovery) -> None:
    """Write what there is to see of the evaluated examples into a folder that exists."""
    tokens = np.cumsum([2 * example.length for example in found.test.examples[:MOST_PROMPTS]])
    count = int(np.count_nonzero(tokens <= MOST_TOKENS))
    prompts = prompts_of(found.test.examples[:count], found.model.tokenizer)
    about = {
        "split": found.test.split,
        "left_out": len(found.test) - count,
        "prompts": [asdict(one) for one in prompts],
    }
    write_json(folder / "examples.json", {"format": FORMAT, "version": VERSION} | about)
    if (seen := found.attention) is not None:
        arrays: dict[str, NDArray[Any]] = {
            name: np.array(getattr(seen, name), np.int64) for name in ("examples", "lengths", "heads")
        }
        values = np.concatenate([one.ravel() for one in seen.values])
        write_arrays(folder / "attention.npz", arrays | {"values": values})


def prompts_of(examples: Sequence[Example], tokenizer: Any) -> tuple[Prompt, ...]:
    """Examples as the texts of their tokens; without a tokenizer, as their numbers."""
    known = {token for one in examples for token in (*one.clean, *one.corrupted, one.correct, one.incorrect)}
    text = {token: _text(token, tokenizer) for token in known}

    def texts(tokens: Sequence[int]) -> tuple[str, ...]:
        return tuple(text[token] for token in tokens)

    return tuple(
        Prompt(texts(one.clean), texts(one.corrupted), text[one.correct], text[one.incorrect]) for one in examples
    )


def read_examples(folder: str | Path, run: RunRecord) -> tuple[Prompt, ...]:
    """The prompts of a run's evaluated examples, or of the first of them; none in a folder of an earlier edgewise."""
    path = Path(folder) / "examples.json"
    if not os.path.isfile(path):
        return ()
    held: ExamplesRecord = convert_record(ExamplesRecord, read_format(path, FORMAT, VERSION), str(path))
    prompts = tuple(held["prompts"])
    told = held["left_out"] >= 0 and len(prompts) + held["left_out"] == run.test.examples
    if not told or len(prompts) > MOST_PROMPTS or held["split"] != run.test.split:
        raise InputError(f"{path} has other prompts than those that the run was evaluated on")
    if not all(len(one.clean) == len(one.corrupted) > 0 for one in prompts):
        raise InputError(f"{path} has a pair of prompts that aren't equally long")
    return prompts


def read_attention(folder: str | Path, run: RunRecord) -> Attention | None:
    """Where heads look on some examples of a run's result folder; None if that wasn't kept."""
    path = Path(folder) / "attention.npz"
    if not os.path.isfile(path):
        return None
    held = read_arrays(path, SHAPES)  # type: ignore[arg-type]
    examples, lengths, heads = (held[name].tolist() for name in ("examples", "lengths", "heads"))
    _check(path, examples, lengths, heads, len(held["values"]), run)
    ends = np.cumsum([2 * len(heads) * pairs(length) for length in lengths])
    parts = np.split(held["values"], ends[:-1])
    values = (part.reshape(2, len(heads), -1) for part in parts)
    return Attention(tuple(examples), tuple(lengths), tuple(heads), tuple(values))


def _check(path: Path, examples: list[int], lengths: list[int], heads: list[int], count: int, run: RunRecord) -> None:
    """Refuse patterns that can't be those of the run."""
    ours = len(set(examples)) == len(examples) == len(lengths) and len(set(heads)) == len(heads) > 0 < len(examples)
    known = all(0 <= row < run.test.examples for row in examples) and all(_is_head(run.graph, node) for node in heads)
    if not ours or not known or not all(0 < length <= count for length in lengths):
        raise InputError(f"{path} has examples or heads that the run hasn't")
    if 2 * len(heads) * sum(map(pairs, lengths)) != count:
        raise InputError(f"{path} has {count:,} numbers, which aren't those of its heads and examples")


def _is_head(graph: Graph, node: int) -> bool:
    return 0 < node < graph.n_sources and (node - 1) % (graph.n_heads + 1) < graph.n_heads


def _text(token: int, tokenizer: Any) -> str:
    """A token as it stands in a text, with its leading space."""
    if tokenizer is None:
        return str(token)
    try:
        piece = tokenizer.convert_ids_to_tokens(token)
        # Decoding would drop the space in front of a first word.
        text = piece.replace(SPACE, " ") if SPACE in piece else tokenizer.decode([token])
        text.encode("utf-8")
    except Exception:  # a stranger's tokenizer may do anything, and these are words for people alone
        return f"<{token}>"
    return str(text)
