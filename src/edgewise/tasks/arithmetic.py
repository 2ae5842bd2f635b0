"""Addition and subtraction: "The sum of 12 and 34 is" -> " 46".

The counterfactual is the same sentence about other numbers with another result. Results are single tokens, and all
numbers of a task have equally many tokens, so that any two of its sentences can be patched into each other.
So with tokenizers that split numbers into digits, the sums are single digits up to 9, and the differences are of
two-digit numbers less than 10 apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import InputError
from .draw import Draw
from .ioi import NAMES
from .task import PromptPair, answer_tokens, next_token, unknown_token

TEMPLATES = {
    "arithmetic-addition": (
        "The sum of {a} and {b} is",
        "{name} adds {a} and {b} and gets",
        "{name} asks: What is {a} plus {b}? The answer is",
        "{name} writes: {a} + {b} =",
    ),
    "arithmetic-subtraction": (
        "The difference between {a} and {b} is",
        "{name} subtracts {b} from {a} and gets",
        "{name} asks: What is {a} minus {b}? The answer is",
        "{name} writes: {a} - {b} =",
    ),
}
SIGNS = {"arithmetic-addition": 1, "arithmetic-subtraction": -1}
# Two-digit numbers if they have enough results of one token, else single digits.
OPERANDS = (range(10, 100), range(1, 10))
RESULTS = range(1, 199)
LEAST_PROBLEMS = 30


@dataclass(frozen=True)
class Problem:
    """Two numbers and the result of the task's operation."""

    a: int
    b: int
    result: int


@dataclass(frozen=True)
class Form:
    """Where a tokenizer needs the space between a sentence and its result.

    end      the end of the sentence: a space, or nothing
    lead     the start of the answer: nothing, or a space
    results  the numbers that are single tokens in this form
    """

    end: str
    lead: str
    results: frozenset[int]


def usable_form(tokenizer: Any) -> Form:
    """Return the form with more single-token results. Ties go to the space in the answer, as in normal text."""
    forms = []
    for end, lead in (("", " "), (" ", "")):
        tokens = {number: next_token(f"is{end}", f"{lead}{number}", tokenizer) for number in RESULTS}
        useless = (None, unknown_token(tokenizer))
        forms.append(Form(end, lead, frozenset(number for number in RESULTS if tokens[number] not in useless)))
    return max(forms, key=lambda form: len(form.results))


def usable_problems(task: str, results: frozenset[int], tokenizer: Any) -> tuple[Problem, ...]:
    """Return the problems with these results and numbers of equal token length, from the first range with enough."""
    for numbers in OPERANDS:
        operands = _with_equal_length(numbers, tokenizer)
        problems = (Problem(a, b, a + SIGNS[task] * b) for a in operands for b in operands)
        usable = tuple(problem for problem in problems if problem.result in results)
        if len(usable) >= LEAST_PROBLEMS:
            return usable
    raise InputError(
        f"task {task!r} needs at least {LEAST_PROBLEMS} problems with a result that is a single token, but this "
        f"tokenizer has {len(results)} such results from {RESULTS[0]} to {RESULTS[-1]}; use another model, or a "
        "task file: --task FILE.jsonl"
    )


def generate(task: str, tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt, clean or corrupted."""
    _check_words(task, tokenizer)
    form = usable_form(tokenizer)
    problems = usable_problems(task, form.results, tokenizer)
    draw = Draw(task, seed)
    while True:
        template, name = draw.choice(TEMPLATES[task]), draw.choice(NAMES)
        asked, other = draw.choice(problems), draw.choice(problems)
        clean, corrupted = (template.format(name=name, a=p.a, b=p.b) + form.end for p in (asked, other))
        if asked.result == other.result or not draw.belongs((corrupted,), split):
            continue
        if draw.is_new((clean,), split):
            yield PromptPair(clean, corrupted, f"{form.lead}{asked.result}", f"{form.lead}{other.result}")


add = partial(generate, "arithmetic-addition")
subtract = partial(generate, "arithmetic-subtraction")


def _with_equal_length(numbers: Sequence[int], tokenizer: Any) -> list[int]:
    """Return the numbers with the most common number of tokens after a word."""
    by_length: dict[int, list[int]] = {}
    for number in numbers:
        by_length.setdefault(len(answer_tokens(f"is {number}", tokenizer)), []).append(number)
    return max(by_length.values(), key=len)


def _check_words(task: str, tokenizer: Any) -> None:
    """Raise InputError if words are unknown: the two operations would be the same sentence."""
    for template in TEMPLATES[task]:
        text = template.format(name=NAMES[0], a=12, b=34)
        if unknown_token(tokenizer) in answer_tokens(text, tokenizer):
            raise InputError(
                f"task {task!r} has words that this tokenizer doesn't know, as in {text!r}; use another model, or your "
                "own prompts: --task FILE.jsonl"
            )
