"""The data sets of the Mechanistic Interpretability Benchmark (MIB): which rows it uses, and how.

Fields, filters and answers are those of the benchmark's own loader, so that results are comparable: an answer is
encoded alone and represented by its first token. Names get a leading space. Labels of multiple choice get none,
whatever the prompt ends with; the counterfactual renames them (for example A to D into 1 to 4).
The benchmark keeps rows that can't be patched: prompts of different lengths, or answers with the same first token.
Here they are dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..errors import InputError
from .hub import Row, hub_rows, local_rows
from .task import PromptPair, Task, answer_tokens, check_rows, tokenize_usable

TokenCount = Callable[[str], int]


@dataclass(frozen=True)
class DataSet:
    """A data set on the hub, and how its rows are read.

    read  (row, function that counts tokens) -> a prompt pair, or the reason why the benchmark drops the row
    """

    repository: str
    config: str | None
    read: Callable[[Row, TokenCount], PromptPair | str]


def _names(row: Row, count: TokenCount) -> PromptPair | str:
    indirect, subject, third = (
        f" {row.text(f'metadata.{role}')}" for role in ("indirect_object", "subject", "random_c")
    )
    if not count(indirect) == count(subject) == count(third):
        return "with names of unequal token length"
    prompt, flipped = row.text("prompt"), row.text("s2_io_flip_counterfactual.prompt")
    return PromptPair(prompt, flipped, indirect, subject, first_token_decides=True)


def _choice(row: Row, count: TokenCount) -> PromptPair | str:
    right, other = _label(row, ""), _label(row, "symbol_counterfactual.")
    if count(right) != count(other):
        return "with answer labels of unequal token length"
    prompt, renamed = row.text("prompt"), row.text("symbol_counterfactual.prompt")
    return PromptPair(prompt, renamed, right, other, first_token_decides=True)


def _label(row: Row, inside: str) -> str:
    """Return the label of the right choice, whose number from 0 is `answerKey`."""
    labels, key = row.get(f"{inside}choices.label"), row.get(f"{inside}answerKey")
    if not isinstance(labels, list) or type(key) is not int or not 0 <= key < len(labels):
        raise InputError(
            f"{row.where}: '{inside}answerKey' must be an index into '{inside}choices.label', "
            f"but they are {key!r} and {labels!r}"
        )
    return Row({"label": labels[key]}, row.where).text("label")


def _arithmetic(operator: str, row: Row, count: TokenCount) -> PromptPair | str:
    if row.text("operator") != operator:
        return "with another operator"
    if row.get("random_counterfactual.prompt") is None:
        return "without a counterfactual"
    right, other = row.text("label"), row.text("random_counterfactual.label")
    if count(right) != 1 or count(other) != 1:
        return "with an answer of several tokens"
    return PromptPair(row.text("prompt"), row.text("random_counterfactual.prompt"), right, other)


DATA_SETS = {
    "mib/ioi": DataSet("mib-bench/ioi", None, _names),
    "mib/mcqa": DataSet("mib-bench/copycolors_mcqa", "4_answer_choices", _choice),
    "mib/arc-easy": DataSet("mib-bench/arc_easy", None, _choice),
    "mib/arc-challenge": DataSet("mib-bench/arc_challenge", None, _choice),
    "mib/arithmetic-addition": DataSet("mib-bench/arithmetic_addition", None, partial(_arithmetic, "+")),
    "mib/arithmetic-subtraction": DataSet("mib-bench/arithmetic_subtraction", None, partial(_arithmetic, "-")),
}


def read_data_set(name: str, copy: Path | None, split: str, tokenizer: Any, bos: int | None) -> Task:
    """Read a split of a data set, in its order, from the hub or from a local `copy`.

    `Task.dropped` has the number of dropped rows by reason.
    """
    rows: Iterable[Row]
    data_set = DATA_SETS[name]
    if copy is None:
        rows = hub_rows(data_set.repository, data_set.config, split, f"or give a local copy: --task {name}=FOLDER")
    else:
        rows = local_rows(copy, data_set.config, split)
    # Cached, because names, letters and numbers repeat.
    count = cache(lambda text: len(answer_tokens(text, tokenizer)))
    pairs: list[PromptPair] = []
    dropped: Counter[str] = Counter()
    problems: dict[int, str] = {}
    for row in rows:
        try:
            pair = data_set.read(row, count)
        except InputError as error:
            problems[len(problems)] = str(error)
            continue
        if isinstance(pair, PromptPair):
            pairs.append(pair)
        else:
            dropped[pair] += 1
    check_rows(name, problems)
    examples, unusable = tokenize_usable(pairs, tokenizer, bos)
    try:
        return Task(name, split, examples, tuple((dropped + unusable).items()))
    except InputError as error:
        raise InputError(str(error) if copy is None else f"{copy}: {error}") from None
