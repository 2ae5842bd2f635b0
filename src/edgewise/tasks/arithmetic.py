"""Addition and subtraction: "The sum of 12 and 34 is" -> " 46".

The counterfactual is the same sentence about other numbers with another result. Results are single tokens, and all
numbers of a task have equally many tokens, so that any two of its sentences can be patched into each other.
So with tokenizers that split numbers into digits, the sums are single digits up to 9, and the differences are of
two-digit numbers less than 10 apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..errors import InputError
from .draw import Draw
from .ioi import NAMES
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import answer_tokens, next_token, unknown_token

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


def generate(task: str, tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt, clean or corrupted."""
    unknown = unknown_token(tokenizer)
    for template in TEMPLATES[task]:
        text = template.format(name=NAMES[0], a=12, b=34)
        if unknown in answer_tokens(text, tokenizer):  # the two operations would be the same sentence
            raise InputError(
                f"task {task!r} has words that this tokenizer doesn't know, as in {text!r}; use another model, or your "
                "own prompts (FILE.jsonl)"
            )
    # The space before a result belongs to the answer, as in normal text, or to the end of the sentence: whichever
    # gives more results of one token.
    results: set[int] = set()
    end = lead = ""
    for space_after, space_before in (("", " "), (" ", "")):
        tokens = {n: next_token(f"is{space_after}", f"{space_before}{n}", tokenizer) for n in RESULTS}
        single = {number for number, token in tokens.items() if token not in (None, unknown)}
        if len(single) > len(results):
            results, end, lead = single, space_after, space_before
    problems = _usable_problems(task, results, tokenizer)
    draw = Draw(task, seed)
    while True:
        template, name = draw.choice(TEMPLATES[task]), draw.choice(NAMES)
        (*operands, right), (*others, wrong) = draw.choice(problems), draw.choice(problems)
        clean, corrupted = (template.format(name=name, a=a, b=b) + end for a, b in (operands, others))
        if right != wrong and draw.accepts(clean, corrupted, split):
            first, second = (mark(letter, str(value)) for letter, value in zip(("a", "b"), operands, strict=True))
            _, named = read_markers(template.format(name=name, a=first, b=second))
            spans = (*sorted(named), end_span(clean))  # by name: some sentences have b first
            yield PromptPair(clean, corrupted, f"{lead}{right}", f"{lead}{wrong}", spans=spans)


add = partial(generate, "arithmetic-addition")
subtract = partial(generate, "arithmetic-subtraction")


def _usable_problems(task: str, results: set[int], tokenizer: Any) -> list[tuple[int, int, int]]:
    """Return (a, b, result) for numbers of the most common token length, from the first range with enough of them."""
    for numbers in OPERANDS:
        by_length: dict[int, list[int]] = {}
        for number in numbers:
            by_length.setdefault(len(answer_tokens(f"is {number}", tokenizer)), []).append(number)
        operands = max(by_length.values(), key=len)
        problems = [(a, b, a + SIGNS[task] * b) for a in operands for b in operands]
        usable = [problem for problem in problems if problem[2] in results]
        if len(usable) >= LEAST_PROBLEMS:
            return usable
    raise InputError(
        f"task {task!r} needs at least {LEAST_PROBLEMS} problems with a result that is a single token, but this "
        f"tokenizer has {len(results)} such results from {RESULTS[0]} to {RESULTS[-1]}; use another model, or a "
        "task file (FILE.jsonl)"
    )
