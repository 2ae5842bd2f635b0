"""Greater-than: "The war lasted from the year 1732 to the year 17" -> a later year, not an earlier one.

The answer is the token that follows the century: the year in the century ("54") for tokenizers that have two-digit
tokens, and its first digit ("5") for those that split numbers digit by digit. A decade decides the order only if it
isn't that of the first year, so answers are digits above and below its own. Any later year is right, any earlier
one wrong: by default, the metric is the probability of all later ones minus that of all earlier ones. Logit differences
are taken with one of each.

The counterfactual starts in the year 01 of the century, after which every year, and every decade, can follow: what
the clean prompt forbids is then allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import answer_tokens, next_token

EVENTS = (
    "war reign empire project mission voyage strike trial siege festival drought journey alliance crisis "
    "famine campaign treaty expedition construction dynasty"
).split()
CENTURIES = (11, 12, 13, 14, 15, 16, 17)
TEMPLATES = (
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


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no clean prompt."""
    endings = usable_endings(tokenizer)
    draw = Draw("greater-than", seed)
    while True:
        template, event, century = draw.choice(TEMPLATES), draw.choice(EVENTS), draw.choice(CENTURIES)
        year = draw.choice(endings.starts)
        if not draw.is_new((template, event, century, year), split):
            continue
        first = year // endings.years
        right = [answer for answer in endings.answers if answer > first]
        later = draw.choice(right)
        wrong = [answer for answer in endings.answers if answer < first]
        earlier = draw.choice(wrong)
        clean, corrupted = (template.format(event=event, century=century, year=y) for y in (year, 1))
        correct, incorrect = (f"{answer:0{endings.digits}d}" for answer in (later, earlier))
        also = [tuple(f"{answer:0{endings.digits}d}" for answer in answers) for answers in (right, wrong)]
        named = {"event": mark("event", event), "century": mark("century", str(century)), "year": year}
        start, _, _ = template.rpartition("{century}")
        _, named_spans = read_markers(start.replace("{year:02d}", mark("year", "{year:02d}")).format(**named))
        spans = (*named_spans, end_span(clean))
        yield PromptPair(
            clean, corrupted, correct, incorrect, also_correct=also[0], also_incorrect=also[1], spans=spans
        )
