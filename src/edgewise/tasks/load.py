"""One verb: a task's name, or a file, to a `Task` for the model at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, unknown_name
from . import greater_than, ioi, mcqa
from .draw import SPLITS
from .files import is_task_file, read_task
from .task import PromptPair, Task, tokenize

if TYPE_CHECKING:
    from ..models import Model

GENERATORS: dict[str, Callable[[Any, str, int], Iterator[PromptPair]]] = {
    "ioi": ioi.generate,
    "mcqa": mcqa.generate,
    "greater-than": greater_than.generate,
}
DESCRIPTIONS = {
    "ioi": "When Mary and John went to the store, John gave a drink to -> Mary (indirect object identification)",
    "mcqa": "which of four choices has the colour that was told -> its letter (multiple choice)",
    "greater-than": "The war lasted from the year 1732 to the year 17 -> a later year",
}
DEFAULT_EXAMPLES = 200


def load_task(name: str, model: Model, split: str = "train", examples: int | None = None, seed: int = 0) -> Task:
    """The task `name` in the model's tokens: a built-in generator, or a file (`.jsonl`, `.csv`).

    `examples` limits their number (built-in tasks: 200 if None). The same arguments give the same task.
    """
    if examples is not None and examples < 1:
        raise InputError(f"the number of examples must be at least 1, not {examples}")
    if is_task_file(name):
        return read_task(Path(name), split, model.tokenizer, model.bos, model.vocabulary).head(examples)
    if name not in GENERATORS:
        raise unknown_name("task", name, [*GENERATORS, "FILE.jsonl", "FILE.csv"])
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if model.tokenizer is None:
        raise InputError(
            f"task {name!r} is made of text, but model {model.name!r} has no tokenizer; give a task file of tokens"
        )
    pairs = islice(GENERATORS[name](model.tokenizer, split, seed), examples or DEFAULT_EXAMPLES)
    return Task(name, split, tokenize(pairs, model.tokenizer, model.bos, f"task {name!r}"))


def check_lengths(model: Model, task: Task) -> None:
    """Refuse prompts that are longer than the model can take."""
    longest = max(range(len(task)), key=lambda row: task.examples[row].length)
    length, most = task.examples[longest].length, model.transformer.max_length
    if length > most:
        raise InputError(
            f"task {task.name!r}, example {longest + 1} has {length} tokens; model {model.name!r} takes {most}"
        )
