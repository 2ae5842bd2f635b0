"""Load tasks: generators, MIB's data sets, task files, and prompts in memory; prompts as messages to a chat model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, unknown_name
from ..io.reading import wrap_read_errors
from . import generators
from .checks import check_model
from .data_sets import DATA_SETS, EXTRA, PREFIX, read_data_set, read_hub
from .files import SUFFIXES, NumberedRows, name_columns, read_task, task_of_rows
from .generators import SPLITS
from .known import KNOWN, SOURCES
from .spans import END, CharacterSpan, end_span
from .task import Example, PromptPair, Task, TokenReader, tokenizer_sample
from .tokens import has_offsets, tokenize, warn_of_joined_words

if TYPE_CHECKING:
    from pandas import DataFrame

# Task -> its generator, and an example.
GENERATED: dict[str, tuple[Callable[[Any, str, int], Iterator[PromptPair]], str]] = {
    "ioi": (
        generators.ioi,
        "When Mary and John went to the store, John gave a drink to -> Mary (indirect object identification)",
    ),
    "mcqa": (generators.mcqa, "the letter of the choice with the right colour, of four (multiple choice)"),
    "greater-than": (generators.greater_than, "The war lasted from the year 1732 to the year 17 -> a later year"),
    "arithmetic-addition": (generators.add, "The sum of 12 and 34 is -> 46"),
    "arithmetic-subtraction": (generators.subtract, "The difference between 46 and 34 is -> 12"),
    "induction": (generators.induction, "Words: sun tree river bird sun -> tree"),
    "docstring": (
        generators.docstring,
        "def load(self, size, path, name): :param size: the size :param path: the path :param -> name",
    ),
    "pronouns": (generators.pronouns, "So Paul is a really good friend, isn't -> he"),
    "agreement": (generators.agreement, "The keys near the table -> are, not is"),
    "capitals": (generators.capitals, "The capital of Italy is Rome. The capital of France is -> Paris"),
    **{name: (KNOWN[name], example) for name, (_, _, example) in SOURCES.items()},
}
GENERATORS = {name: generate for name, (generate, _) in GENERATED.items()}
DESCRIPTIONS = {name: example for name, (_, example) in GENERATED.items()} | {
    "mib/ioi": "MIB's set: indirect object identification; the counterfactual flips the second subject",
    "mib/mcqa": "MIB's set: the colour of a thing among four choices; the counterfactual renames the choices",
    "mib/arc-easy": "MIB's set: easy science questions of ARC; the counterfactual renames the choices",
    "mib/arc-challenge": "MIB's set: hard science questions of ARC; the counterfactual renames the choices",
    "mib/arithmetic-addition": "MIB's set: sums of numbers up to 99; the counterfactual has other numbers",
    "mib/arithmetic-subtraction": "MIB's set: differences of numbers up to 99; the counterfactual has other numbers",
}
DEFAULT_EXAMPLES, MOST_EXAMPLES = 200, 10**6


def load_task(
    name: str | Path,
    model: TokenReader,
    split: str = "train",
    examples: int | None = None,
    seed: int = 0,
    spans: str | None = None,
    chat: bool = False,
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Task:
    """Load a task in the model's tokens. The same arguments give the same task.

    Parameters
    ----------
    name
        A generator (`ioi`), a data set of MIB on the hub (`mib/ioi`) or in a local folder or file (`mib/ioi=PATH`), or
        a task file (`.jsonl`, `.json`, `.csv`).
    model
        A loaded model; its tokenizer encodes the prompts.
    split
        'train', 'validation' or 'test'. A task file may have other splits, or none.
    examples
        The largest number of examples. None means 200 for a generator, and all for anything else.
    seed
        Seed of a generator.
    spans
        'token' makes every token position a span, for prompts of equal length. By default `Task.span_names` are those
        that the task names, if any.
    chat
        Write prompts as messages in the model's chat template.
    skip_bad
        Leave out rows of a task file that can't be used, with a warning, instead of raising an error.
    columns
        Of a task file, or of `hub:NAME` (any data set on the hub or in a local folder): column of a task -> column of
        the file, or field of the data set.

    Returns
    -------
    Task
        The examples as tokens.

    Raises
    ------
    InputError
        If the name is unknown, or if rows can't be used; the error lists them.

    Examples
    --------
    >>> model = edgewise.load_model("demo")
    >>> edgewise.load_task("ioi", model, "train", 100)
    """
    check_model(model)
    if not isinstance(name, str | os.PathLike):
        raise InputError(f"a task is a name or a path, not a {type(name).__name__}; make_task takes prompts in memory")
    if not isinstance(split, str):
        raise InputError(f"split is a name such as 'train', not {split!r}; give a number of examples as examples=")
    if examples is not None and not (isinstance(examples, Integral) and 1 <= examples <= MOST_EXAMPLES):
        raise InputError(f"the number of examples must be a whole number from 1 to {MOST_EXAMPLES:,}, not {examples!r}")
    name = os.path.expanduser(name)
    if columns and not has_rows(name):
        raise InputError(f"columns are for task files and data sets ('{PREFIX}NAME'), not for task {name!r}")
    if skip_bad and not has_rows(name):
        check_task(name)
        raise InputError(
            f"skip_bad=True is for task files and data sets ('{PREFIX}NAME'); task {name!r} has no bad rows; leave it "
            "out"
        )
    if name.startswith(PREFIX):
        task = read_hub(name, split, columns or {}, model, examples, skip_bad)
    elif is_task_file(name):
        task = read_task(Path(name), split, model, skip_bad, columns).head(examples)
    else:
        check_task(name)
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        if model.tokenizer is None:
            raise InputError(
                f"task {name!r} is made of text, but model {model.name!r} has no tokenizer; give one to "
                "wrap_model(module, tokenizer), or a task file of tokens"
            )
        data_set, equals, copy = name.partition("=")
        if data_set in DATA_SETS:
            path = Path(copy).expanduser() if equals else None
            task = read_data_set(data_set, path, split, model.tokenizer, model.bos).head(examples)
        else:
            generated = GENERATORS[name](model.tokenizer, split, seed)
            pairs: Iterable[PromptPair] = islice(generated, examples or DEFAULT_EXAMPLES)
            if not has_offsets(model.tokenizer):
                pairs = (replace(pair, spans=()) for pair in pairs)
            task = Task(name, split, tokenize(pairs, model.tokenizer, model.bos, f"task {name!r}"))
    if chat:
        task = use_chat(task, model)
    elif name not in GENERATORS:
        warn_of_joined_words(task, model.tokenizer)
    return _complete(task, spans, model)


def _complete(task: Task, spans: str | None, model: TokenReader) -> Task:
    """Return the task with the asked spans, and a note of the tokenizer that made it."""
    if spans not in (None, "token"):
        raise unknown_name("kind of spans", spans, ["token"])
    task = task if spans is None else task.with_token_spans()
    return replace(task, made_by=tokenizer_sample(model.tokenizer))


def make_task(
    prompts: Iterable[PromptPair | Mapping[str, Any]] | DataFrame,
    model: TokenReader,
    name: str = "prompts",
    split: str = "all",
    spans: str | None = None,
    skip_bad: bool = False,
) -> Task:
    """Return a task of prompts in memory.

    Parameters
    ----------
    prompts
        `PromptPair`s, or mappings with the columns of a task file: clean, corrupted, correct and incorrect as text, or
        clean_ids, corrupted_ids, correct_id and incorrect_id as tokens. Or a pandas DataFrame with these columns.
    model
        A loaded model; its tokenizer encodes the prompts.
    name, split
        For reports.
    spans
        'token' makes every token position a span, for prompts of equal length. By default `Task.span_names` are those
        that the prompts name, if any.
    skip_bad
        Leave out prompts that can't be used, with a warning, instead of raising an error.

    Returns
    -------
    Task
        The examples as tokens.

    Examples
    --------
    >>> edgewise.make_task([edgewise.PromptPair("Mary met John, and", "Mary met Tom, and", " John", " Tom")], model)
    """
    check_model(model)
    if isinstance(prompts, PromptPair | Mapping | str):
        raise InputError(f"prompts must be in a list, even a single {type(prompts).__name__}: [prompt]")
    if hasattr(prompts, "to_dict") and hasattr(prompts, "columns"):  # a DataFrame iterates over its columns' names
        prompts = prompts.to_dict("records")
    rows = {n: name_columns(row) if isinstance(row, Mapping) else row for n, row in enumerate(prompts, start=1)}
    task = task_of_rows(NumberedRows(rows), name, split, model, skip_bad=skip_bad)
    warn_of_joined_words(task, model.tokenizer)
    return _complete(task, spans, model)


def has_rows(name: str) -> bool:
    """Return whether a task is a file or any data set, whose rows may be bad."""
    return name.startswith(PREFIX) or is_task_file(name)


def check_task(name: str) -> None:
    """Raise InputError if a name is neither a generator, a data set nor a task file."""
    if name.startswith(PREFIX):
        return
    if not is_task_file(name) and name not in GENERATORS and name.partition("=")[0] not in DATA_SETS:
        if os.path.isfile(name):
            raise InputError(f"{name} isn't a task file: its name must end in {', '.join(SUFFIXES)}")
        on_hub = f"mib/{name}"
        if on_hub in DATA_SETS:
            raise InputError(
                f"task {name!r} has no generator, only data: {on_hub!r} reads it from the hub (needs {EXTRA}), "
                f"'{on_hub}=FOLDER' from a local copy"
            )
        raise unknown_name("task", name, [*DESCRIPTIONS, "mib/NAME=FOLDER", "FILE.jsonl", "FILE.json", "FILE.csv"])


def load_unsplit(name: str, model: TokenReader, split: str, examples: int | None, seed: int, **how: Any) -> Task:
    """Return one split of a file without splits: a third of its distinct examples, drawn with the seed.

    `how` are further arguments of `load_task`.
    """
    return split_task(load_task(name, model, **how), split, seed).head(examples)


def split_task(whole: Task, split: str, seed: int = 0) -> Task:
    """Return one split of a task without splits: a third of its distinct examples, drawn with the seed.

    `edgewise run` splits a task file without a `split` column in this way. Examples that share a prompt belong to the
    same split.

    Parameters
    ----------
    whole
        All examples: `load_task` of a file without splits, or `make_task`.
    split
        'train', 'validation' or 'test'.
    seed
        Seed of the draw. Give the same one for all three splits.

    Returns
    -------
    Task

    Raises
    ------
    InputError
        If the split is unknown, or the task has fewer than three distinct rows that share no prompt.

    Examples
    --------
    >>> whole = edgewise.load_task("my-prompts.jsonl", model)
    >>> train, validation, test = (edgewise.split_task(whole, split) for split in ("train", "validation", "test"))
    """
    if not isinstance(whole, Task):
        raise InputError(f"a task is needed, not {whole!r}; load it first: load_task(name, model)")
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    groups = group_by_prompt(whole.examples)
    if len(groups) < len(SPLITS):
        raise InputError(
            f"{whole.name} has {len(groups)} distinct rows that share no prompt, which can't be split into "
            f"{', '.join(SPLITS)}; give it more"
        )
    order = np.random.default_rng(seed).permutation(len(groups))[SPLITS.index(split) :: len(SPLITS)]
    chosen = {example for group in order for example in groups[group]}
    examples = tuple(example for example in dict.fromkeys(whole.examples) if example in chosen)
    return replace(whole, split=split, examples=examples)


def group_by_prompt(examples: Iterable[Example]) -> list[list[Example]]:
    """Return the distinct examples in groups that share no prompt, in the order of their first example.

    Examples share a prompt if they have the same clean one, or the same pair in the other direction. A corrupted prompt
    alone does not connect examples: it may be the same for all, or the clean prompt of any other.
    """
    import networkx  # slow to import

    distinct = dict.fromkeys(examples)
    pairs = {(example.clean, example.corrupted) for example in distinct}
    graph = networkx.Graph((clean, corrupted) for clean, corrupted in pairs if (corrupted, clean) in pairs)
    graph.add_nodes_from(example.clean for example in distinct)
    components = enumerate(networkx.connected_components(graph))
    number_of = {prompt: number for number, prompts in components for prompt in prompts}
    groups: dict[int, list[Example]] = {}
    for example in distinct:
        groups.setdefault(number_of[example.clean], []).append(example)
    return list(groups.values())


def is_task_file(name: str) -> bool:
    """Whether a task's name is a task file rather than a generator or a data set."""
    return (
        not name.startswith(PREFIX)
        and name.partition("=")[0] not in DATA_SETS
        and Path(name).suffix.lower() in SUFFIXES
    )


def use_chat(task: Task, model: TokenReader) -> Task:
    """Return the task with every prompt as a message of the user, in the chat template of the model's tokenizer.

    The prompt ends where the reply begins, so answers have a leading space only if the template puts one there. An
    answer that is compared with another stands for its first token. Raise InputError if the tokenizer has no chat
    template, or the task is made of tokens.
    """
    if getattr(model.tokenizer, "chat_template", None) is None:
        raise InputError(f"model {model.name!r} has no chat template; use it without chat")
    pairs = [example.text for example in task.examples if example.text is not None]
    if len(pairs) < len(task):
        raise InputError(f"task {task.name!r} is made of tokens; a chat template needs text")
    space = ""  # what the template puts between a prompt and its reply; Llama 2 has a space
    with suppress(InputError):  # some templates take no message of the assistant
        text = _apply_template(model.tokenizer, False, user=pairs[0].clean, assistant="Yes")
        if text.partition(_render(pairs[0].clean, model))[2].startswith(" Yes"):
            space = " "

    def reply(answer: str) -> str:
        return space + answer.lstrip(" ")

    messages = []
    for pair in pairs:
        clean, corrupted = _render(pair.clean, model), _render(pair.corrupted, model)
        message = PromptPair(
            clean=clean,
            corrupted=corrupted,
            correct=reply(pair.correct),
            incorrect=None if pair.incorrect is None else reply(pair.incorrect),
            first_token_decides=pair.first_token_decides or pair.incorrect is not None,
            also_correct=tuple(map(reply, pair.also_correct)),
            also_incorrect=tuple(map(reply, pair.also_incorrect)),
            spans=_move_spans(pair.spans, pair.clean, clean),
            corrupted_spans=_move_spans(pair.corrupted_spans, pair.corrupted, corrupted),
        )
        messages.append(message)
    return replace(task, examples=tokenize(messages, model.tokenizer, model.bos, f"task {task.name!r}"))


def _apply_template(tokenizer: Any, add_generation_prompt: bool, **messages: str) -> str:
    """Return messages, role=content, in the chat template."""
    with wrap_read_errors("the chat template", "it fails on a message of the user"):
        listed = [{"role": role, "content": content} for role, content in messages.items()]
        text: str = tokenizer.apply_chat_template(listed, tokenize=False, add_generation_prompt=add_generation_prompt)
        return text


def _render(prompt: str, model: TokenReader) -> str:
    """Return a prompt as a message of the user, up to where the reply begins."""
    text = _apply_template(model.tokenizer, True, user=prompt)
    if prompt.strip() not in text:
        raise InputError("the chat template changes the text of prompts; use the model without chat")
    # Many templates begin with the BOS token, which edgewise puts before every prompt itself.
    return text if model.bos is None else text.removeprefix(str(model.tokenizer.bos_token))


def _move_spans(spans: tuple[CharacterSpan, ...], prompt: str, text: str) -> tuple[CharacterSpan, ...]:
    """Return spans of a prompt as spans of the text that contains it. `end` is where the metric is read."""
    content = prompt.strip()
    shift = text.rindex(content) - prompt.index(content)
    moved = (CharacterSpan(name, start + shift, stop + shift) for name, start, stop in spans if name != END)
    return (*moved, end_span(text)) if any(span.name == END for span in spans) else tuple(moved)
