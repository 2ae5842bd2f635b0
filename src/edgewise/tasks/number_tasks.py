"""Tasks whose answers are numbers: addition, subtraction and greater-than."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import InputError
from .draw import Draw, marked_pair
from .spans import mark
from .task import PromptPair
from .tokens import answer_tokens, next_token, unknown_token
from .word_tasks import NAMES

ARITHMETIC_TEMPLATES = {
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


def arithmetic(task: str, tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The sum of 12 and 34 is" -> " 46": distinct pairs of a split, without end. Splits share no prompt.

    The counterfactual is the same sentence about other numbers with another result. Results are single tokens, and all
    numbers of a task have equally many tokens, so that any two of its sentences can be patched into each other.
    So with tokenizers that split numbers into digits, the sums are single digits up to 9, and the differences are of
    two-digit numbers less than 10 apart.
    """
    unknown, templates = unknown_token(tokenizer), ARITHMETIC_TEMPLATES[task]
    for template in templates:
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
        template, name = draw.choice(templates), draw.choice(NAMES)
        (a, b, right), (other_a, other_b, wrong) = draw.choice(problems), draw.choice(problems)
        marked = template.format(name=name, a=mark("a", str(a)), b=mark("b", str(b))) + end
        corrupted = template.format(name=name, a=other_a, b=other_b) + end
        pair = marked_pair(marked, corrupted, f"{lead}{right}", f"{lead}{wrong}", ("a", "b"))
        if right != wrong and draw.accepts(pair, split):
            yield pair


add = partial(arithmetic, "arithmetic-addition")
subtract = partial(arithmetic, "arithmetic-subtraction")


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


EVENTS = (
    "war reign empire project mission voyage strike trial siege festival drought journey alliance crisis "
    "famine campaign treaty expedition construction dynasty"
).split()
CENTURIES = (11, 12, 13, 14, 15, 16, 17)
YEAR_TEMPLATES = (
    "The {event} lasted from the year {century}{year:02d} to the year {century}",
    "The {event} began in the year {century}{year:02d} and ended in the year {century}",
)
NEAREST, FARTHEST = 2, 98
LEAST_YEARS = 40


class Endings(NamedTuple):
    """The possible answers after the century.

    starts   the years in which a prompt can start, so that there is an answer on either side
    answers  the numbers that can follow, ascending
    years    how many years an answer stands for
    digits   how many digits it has
    """

    starts: Sequence[int]
    answers: Sequence[int]
    years: int
    digits: int


def usable_endings(tokenizer: Any) -> Endings:
    """Return two-digit years if enough of them are tokens, else single digits if the tokenizer splits numbers."""
    years = []
    for year in range(NEAREST, FARTHEST + 1):
        token = answer_tokens(f"{year:02d}", tokenizer)
        in_centuries = (answer_tokens(f" {century}{year:02d}", tokenizer)[-1:] for century in CENTURIES)
        if len(token) == 1 and all(last == token for last in in_centuries):
            years.append(year)
    if len(years) >= LEAST_YEARS:
        return Endings(years[1:-1], years, years=1, digits=2)
    for century in CENTURIES:
        tokens = {next_token(f" {century}", f"{digit}", tokenizer) for digit in range(10)}
        longer = {next_token(f" {century}{digit}", "0", tokenizer) for digit in range(10)}
        if len(tokens) < 10 or None in tokens | longer:
            raise InputError(
                "task 'greater-than' needs years whose last two digits are one token, or one token each, but this "
                f"tokenizer has only {len(years)} of {FARTHEST - NEAREST + 1} two-digit years and doesn't split all "
                "others digit by digit; use another model, or a task file (FILE.jsonl)"
            )
    return Endings(range(10, 90), range(10), years=10, digits=1)


def greater_than(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The war lasted from the year 1732 to the year 17" -> a later year, not an earlier one.

    The answer is the token that follows the century: the year in the century ("54") for tokenizers that have two-digit
    tokens, and its first digit ("5") for those that split numbers digit by digit. A decade decides the order only if it
    isn't that of the first year, so answers are digits above and below its own. Any later year is right, any earlier
    one wrong: by default, the metric is the probability of all later ones minus that of all earlier ones. Logit
    differences are taken with one of each.

    The counterfactual starts in the year 01 of the century, after which every year, and every decade, can follow: what
    the clean prompt forbids is then allowed. Splits share no clean prompt.
    """
    endings = usable_endings(tokenizer)
    draw = Draw("greater-than", seed)
    while True:
        template, event, century = draw.choice(YEAR_TEMPLATES), draw.choice(EVENTS), draw.choice(CENTURIES)
        year = draw.choice(endings.starts)
        if not draw.is_new((template, event, century, year), split):
            continue
        first = year // endings.years
        texts = {answer: f"{answer:0{endings.digits}d}" for answer in endings.answers}
        later = tuple(text for answer, text in texts.items() if answer > first)
        earlier = tuple(text for answer, text in texts.items() if answer < first)
        correct, incorrect = draw.choice(later), draw.choice(earlier)
        corrupted = template.format(event=event, century=century, year=1)
        start = template.removesuffix("{century}").replace("{year:02d}", mark("year", "{year:02d}"))
        named = {"event": mark("event", event), "century": mark("century", str(century))}
        marked = start.format(**named, year=year) + str(century)
        yield marked_pair(marked, corrupted, correct, incorrect, also_correct=later, also_incorrect=earlier)
