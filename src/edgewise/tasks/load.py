"""One verb: a task's name, a data set's or a file to a `Task` for the model at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, unknown_name
from . import arithmetic, greater_than, ioi, mcqa
from .draw import SPLITS
from .files import read_task, task_of_rows
from .hub import EXTRA
from .mib import DATA_SETS, read_data_set
from .task import PromptPair, Reader, Task, refuse_rows, tokenize

GENERATORS: dict[str, Callable[[Any, str, int], Iterator[PromptPair]]] = {
    "ioi": ioi.generate,
    "mcqa": mcqa.generate,
    "greater-than": greater_than.generate,
    "arithmetic-addition": arithmetic.add,
    "arithmetic-subtraction": arithmetic.subtract,
}
DESCRIPTIONS = {
    "ioi": "When Mary and John went to the store, John gave a drink to -> Mary (indirect object identification)",
    "mcqa": "which of four choices has the colour that was told -> its letter (multiple choice)",
    "greater-than": "The war lasted from the year 1732 to the year 17 -> a later year",
    "arithmetic-addition": "The sum of 12 and 34 is -> 46",
    "arithmetic-subtraction": "The difference between 46 and 34 is -> 12",
    "mib/ioi": "MIB's set: indirect object identification; the counterfactual flips the second subject",
    "mib/mcqa": "MIB's set: the colour of a thing among four choices; the counterfactual renames the choices",
    "mib/arc-easy": "MIB's set: easy science questions of ARC; the counterfactual renames the choices",
    "mib/arc-challenge": "MIB's set: hard science questions of ARC; the counterfactual renames the choices",
    "mib/arithmetic-addition": "MIB's set: sums of numbers up to 99; the counterfactual has other numbers",
    "mib/arithmetic-subtraction": "MIB's set: differences of numbers up to 99; the counterfactual has other numbers",
}
DEFAULT_EXAMPLES, MOST_EXAMPLES = 200, 10**6


def load_task(
    name: str | Path, model: Reader, split: str = "train", examples: int | None = None, seed: int = 0
) -> Task:
    """The task `name` in the model's tokens.

    name      a built-in generator (`ioi`); a data set of the benchmark (`mib/ioi`), from the hub, or from a local
              copy, which is a folder or a file (`mib/ioi=PATH`); or a file of one's own (`.jsonl`, `.csv`)
    examples  limits their number; None means 200 of a generator, and all there are of anything else

    The same arguments give the same task.
    """
    check_model(model)
    name = str(name)
    if examples is not None and not 1 <= examples <= MOST_EXAMPLES:
        raise InputError(f"the number of examples must be at least 1 and at most {MOST_EXAMPLES:,}, not {examples}")
    if is_task_file(name):
        return read_task(Path(name), split, model).head(examples)
    check_task(name)
    known, equals, copy = name.partition("=")
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if model.tokenizer is None:
        raise InputError(
            f"task {name!r} is made of text, but model {model.name!r} has no tokenizer; give a task file of tokens"
        )
    if known in DATA_SETS:
        where = Path(copy).expanduser() if equals else None
        return read_data_set(known, where, split, model.tokenizer, model.bos).head(examples)
    pairs = islice(GENERATORS[name](model.tokenizer, split, seed), examples or DEFAULT_EXAMPLES)
    return Task(name, split, tokenize(pairs, model.tokenizer, model.bos, f"task {name!r}"))


def make_task(
    prompts: Iterable[PromptPair | Mapping[str, Any]], model: Reader, name: str = "prompts", split: str = "all"
) -> Task:
    """A task from prompts in memory: `PromptPair`s, or mappings with the columns of a task file.

    Those are clean, corrupted, correct and incorrect as text, or clean_ids, corrupted_ids, correct_id and incorrect_id
    as tokens.
    """
    check_model(model)
    if isinstance(prompts, PromptPair | Mapping | str):
        raise InputError(f"prompts come in a list, even a single {type(prompts).__name__}: [prompt]")
    return task_of_rows(dict(enumerate(prompts, start=1)), name, split, model)


def check_task(name: str) -> None:
    """Refuse a name that is neither a generator, a data set nor a file of one's own."""
    if not is_task_file(name) and name not in GENERATORS and name.partition("=")[0] not in DATA_SETS:
        raise _unknown_task(name)


def load_third(name: str, model: Reader, split: str, examples: int | None, seed: int) -> Task:
    """One split of a file that has none: a third of its distinct examples, drawn with the seed."""
    whole = load_task(name, model)
    distinct = tuple(dict.fromkeys(whole.examples))
    if len(distinct) < len(SPLITS):
        raise InputError(
            f"{name} has {len(distinct)} distinct rows, which can't be split into {', '.join(SPLITS)}; give it more"
        )
    order = np.random.default_rng(seed).permutation(len(distinct))[SPLITS.index(split) :: len(SPLITS)]
    return Task(whole.name, split, tuple(distinct[row] for row in sorted(order))).head(examples)


def is_task_file(name: str) -> bool:
    """Whether a task's name means a file of one's own rather than a built-in task or a data set."""
    return name.partition("=")[0] not in DATA_SETS and Path(name).suffix.lower() in (".jsonl", ".csv")


def _unknown_task(name: str) -> InputError:
    on_hub = f"mib/{name}"
    if on_hub in DATA_SETS:
        return InputError(
            f"task {name!r} has no generator, only data: --task {on_hub} reads it from the hub (needs {EXTRA}), "
            f"--task {on_hub}=FOLDER from a local copy"
        )
    return unknown_name("task", name, [*DESCRIPTIONS, "mib/NAME=FOLDER", "FILE.jsonl", "FILE.csv"])


def check_model(model: object) -> None:
    """Refuse what is no model, such as its name."""
    if not hasattr(model, "tokenizer"):
        raise InputError(f"a loaded model is needed, not {model!r}; load it first: load_model(name)")


def check_examples(model: Reader, task: Task) -> None:
    """Refuse prompts that are longer than the model can take, tokens that it doesn't have, and names in place of a
    model or a task."""
    check_model(model)
    if not isinstance(task, Task):
        raise InputError(f"a task is needed, not {task!r}; load it first: load_task(name, model)")
    problems = {}
    for number, example in enumerate(task.examples, start=1):
        answers = (example.correct, example.incorrect, *example.also_correct)
        least, most = (end((*example.clean, *example.corrupted, *answers)) for end in (min, max))
        if example.length > model.max_length:
            words = f"has {example.length} tokens; model {model.name!r} takes {model.max_length}"
            problems[number] = f"example {number} {words}"
        elif least < 0 or most >= model.vocabulary:
            words = f"has token {least if least < 0 else most}, but model {model.name!r} has {model.vocabulary} tokens"
            problems[number] = f"example {number} {words}; does its tokenizer belong to it?"
    refuse_rows(f"task {task.name!r}", problems)
