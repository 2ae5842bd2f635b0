"""Greater-than: "The war lasted from the year 1732 to the year 17" -> a later year, not an earlier one.

The counterfactual starts in the year 01 of the century, after which every year is later: the years that the
clean prompt forbids are then allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InputError
from .draw import Draw
from .task import PromptPair, answer_tokens

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


def usable_years(tokenizer: Any) -> tuple[int, ...]:
    """The two-digit years that are one token on their own and behind every century, as the prompt has them."""
    years = []
    for year in range(NEAREST, FARTHEST + 1):
        token = answer_tokens(f"{year:02d}", tokenizer)
        behind = (answer_tokens(f" {century}{year:02d}", tokenizer)[-1:] for century in CENTURIES)
        if len(token) == 1 and all(last == token for last in behind):
            years.append(year)
    if len(years) < 40:
        raise InputError(
            f"task 'greater-than' needs two-digit years that are single tokens, but this tokenizer has only "
            f"{len(years)} of {FARTHEST - NEAREST + 1}; use another model, or your own prompts: --task FILE.jsonl"
        )
    return tuple(years)


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Endless distinct pairs of a split; splits share no prompt."""
    years = usable_years(tokenizer)
    draw = Draw("greater-than", seed)
    while True:
        template, event, century = draw.choice(TEMPLATES), draw.choice(EVENTS), draw.choice(CENTURIES)
        year = draw.choice(years[1:-1])
        if not draw.is_new((template, event, century, year), split):
            continue
        later = draw.choice([y for y in years if y > year])
        earlier = draw.choice([y for y in years if y < year])
        clean, corrupted = (template.format(event=event, century=century, year=y) for y in (year, 1))
        yield PromptPair(clean, corrupted, f"{later:02d}", f"{earlier:02d}")
