"""Checks of tasks: errors for rows that can't be used, warnings for those that give misleading results."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import MAX_DETAILS, InputError, warn
from .task import Example, Task, TokenReader, tokenizer_sample

# Of rows with the same problem, the first are listed; the same means the same text but for quotations and numbers.
SHOWN_PER_CAUSE = 3
VARIABLE_TEXT = re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|\d+")
SKIP_ADVICE = "skip_bad=True leaves out such rows"
# Bootstrap intervals from fewer examples than this are too narrow.
FEW_EXAMPLES = 10


def check_model(model: object) -> None:
    """Raise InputError if `model` isn't a loaded model, but its name, for example."""
    if not all(hasattr(model, name) for name in ("tokenizer", "bos", "vocabulary", "max_length")):
        value = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise InputError(
            f"a loaded model is needed, not {value}; load it first: load_model(name), or wrap_model(module) for a "
            "HuggingFace model in memory"
        )


def check_examples(model: TokenReader, task: Task) -> None:
    """Raise InputError if prompts are too long for the model or have tokens that it lacks, or if `model` or `task`
    isn't one."""
    check_model(model)
    if not isinstance(task, Task):
        raise InputError(f"a task is needed, not {task!r}; load it first: load_task(name, model)")
    sample = tokenizer_sample(model.tokenizer)
    if task.made_by and sample and task.made_by != sample:
        raise InputError(
            f"the tokens of task {task.name!r} are those of another model's tokenizer than that of {model.name!r}; "
            "load the task again, with this model"
        )
    misfits = {number: describe_misfit(example, model) for number, example in enumerate(task.examples, start=1)}
    check_rows(f"task {task.name!r}", {number: f"example {number}{text}" for number, text in misfits.items() if text})


def describe_misfit(example: Example, model: TokenReader) -> str:
    """Return why a model can't run an example, to follow "example N": its length or a token; "" if it can."""
    if example.length > model.max_length:
        return f" has {example.length} tokens; the model takes {model.max_length}"
    tokens = (*example.clean, *example.corrupted, *example.answers)
    least, most = min(tokens), max(tokens)
    if least >= 0 and most < model.vocabulary:
        return ""
    outside = least if least < 0 else most
    return f": token {outside} is outside the model's vocabulary of {model.vocabulary}; use the tokens of its tokenizer"


def check_rows(source: str, problems: Mapping[int, str], more: int = 0, can_skip: bool = False) -> None:
    """Raise InputError if rows of `source` can't be used.

    `more` counts problems that aren't listed. With `can_skip`, the error says how to leave out such rows.
    """
    advice = f"; {SKIP_ADVICE}" if can_skip else ""
    if len(problems) + more == 1:
        raise InputError(f"{source}, {next(iter(problems.values()))}{advice}")
    if problems:
        details = []
        for rows in _group_by_cause(problems):
            # Rows whose problems have the same text but for their numbers need one line.
            n_texts = len({problem.replace(str(number), "", 1) for number, problem in rows[:SHOWN_PER_CAUSE]})
            n_shown = 1 if n_texts == 1 and len(rows) > SHOWN_PER_CAUSE else SHOWN_PER_CAUSE
            details += [problem for _, problem in rows[:n_shown]]
            rest = ", ".join(str(number) for number, _ in rows[n_shown:MAX_DETAILS])
            if rest:
                dots = ", ..." * (len(rows) > MAX_DETAILS)
                details.append(f"and {len(rows) - n_shown:,} more with this problem: {rest}{dots}")
        raise InputError(f"{source}: {len(problems) + more:,} of its rows can't be used{advice}", details, more)


def _group_by_cause(problems: Mapping[int, str]) -> list[list[tuple[int, str]]]:
    """Return (row, problem) pairs, grouped by cause. The most frequent cause is first."""
    causes: dict[str, list[tuple[int, str]]] = {}
    for number, problem in sorted(problems.items()):
        causes.setdefault(VARIABLE_TEXT.sub("", problem), []).append((number, problem))
    return sorted(causes.values(), key=len, reverse=True)


def warn_of_skipped(source: str, problems: Mapping[int, str], more: int, n_rows: int) -> None:
    """Warn of rows that are left out: how many, and the first problem of the most frequent causes."""
    causes = []
    for rows in _group_by_cause(problems)[:SHOWN_PER_CAUSE]:
        others = f" (and {len(rows) - 1:,} more with this problem)" if len(rows) > 1 else ""
        causes.append(f"{rows[0][1]}{others}")
    warn(f"{len(problems) + more:,} of the {n_rows:,} rows of {source} are left out: {'; '.join(causes)}")


def warn_of_sample(task: Task) -> None:
    """Warn if intervals over a task's examples are too narrow: few examples, or copies."""
    if len(task) < FEW_EXAMPLES:
        warn(f"intervals from few examples ({len(task)}) are too narrow; use {FEW_EXAMPLES} or more")
    if task.copies:
        warn(f"{task.copies:,} of the {len(task):,} examples are copies of others; intervals are too narrow")


def warn_of_overlap(task: Task, evaluated: Task, purpose: str) -> None:
    """Warn if evaluated prompts were also used for a purpose: `scored` or `used to choose recipes`."""
    n_shared = sum(map(task.has_prompt_of, evaluated.examples))
    if n_shared:
        warn(
            f"{n_shared:,} of the {len(evaluated):,} evaluated prompts are also {purpose}, so results look better "
            "than they are; give splits that differ: add a `split` column to the task file, or in Python call "
            "split_task"
        )


def warn_of_examples(task: Task) -> None:
    """Warn of examples that give misleading results."""
    examples, pairs = task.examples, [example.text for example in task.examples if example.text is not None]
    # Tokenizers attach a space to the word that follows it.
    ends = [pair for pair in pairs if pair.clean.endswith((" ", "\t")) or pair.corrupted.endswith((" ", "\t"))]
    if ends:
        prompt, answer = ends[0].clean.rstrip(" \t")[-20:], f" {ends[0].correct.strip()}"
        warn(
            f"{len(ends):,} of the {len(pairs):,} prompts of {task.name} end in a space, but models expect it at the "
            f"start of the answer; write ...{prompt!r} with the answer {answer!r}"
        )
    n_equal = sum(example.clean == example.corrupted for example in examples)
    if n_equal:
        warn(
            f"in {n_equal:,} of the {len(examples):,} examples of {task.name}, the corrupted prompt is the clean one, "
            "so all scores are 0; give a corrupted prompt with another answer"
        )
    # Often because the leading space is missing.
    several = [example for example in examples if example.incorrect is not None and example.n_reads > 1]
    if several and (pair := several[0].text) is not None:
        warn(
            f"in {len(several):,} of the {len(examples):,} examples of {task.name}, an answer has several tokens, as "
            f"in {pair.correct!r} and {pair.incorrect!r}, so total log-probabilities are compared by default; if you "
            "expect single tokens, mind the leading space"
        )
