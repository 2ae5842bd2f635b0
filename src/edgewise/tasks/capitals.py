"""Facts on countries and capitals: "The capital of Italy is Rome. The capital of France is" -> " Paris".

The counterfactual asks for another country.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

CAPITALS = dict(
    pair.split("-")
    for pair in (
        "France-Paris Italy-Rome Spain-Madrid Germany-Berlin England-London Russia-Moscow Japan-Tokyo China-Beijing "
        "Greece-Athens Austria-Vienna Poland-Warsaw Ireland-Dublin Egypt-Cairo Iraq-Baghdad Iran-Tehran Cuba-Havana "
        "Portugal-Lisbon Norway-Oslo Sweden-Stockholm Finland-Helsinki Denmark-Copenhagen Hungary-Budapest "
        "Belgium-Brussels Turkey-Ankara Ukraine-Kiev Canada-Ottawa Peru-Lima Kenya-Nairobi Lebanon-Beirut "
        "Syria-Damascus"
    ).split()
)
TEMPLATES = (
    "The capital of {a} is {capital}. The capital of {b} is",
    "Q: What is the capital of {a}? A: {capital}. Q: What is the capital of {b}? A:",
    "The government of {a} is in {capital}. The government of {b} is in",
    "In {a}, the capital is {capital}. In {b}, the capital is",
    "The capital city of {a} is {capital}. The capital city of {b} is",
    "{a} has the capital {capital}. {b} has the capital",
    "People in {a} go to {capital}. People in {b} go to",
    "Trains in {a} go to {capital}, its capital. Trains in {b} go to its capital,",
    "The king of {a} lived in {capital}. The king of {b} lived in",
    "We went from {a} to {b}: first to the capital {capital}, then to the capital",
    "{a}: {capital}, {b}:",
    "If you visit {a}, see {capital}. If you visit {b}, see",
    "A friend from {a} lives in the capital, {capital}. A friend from {b} lives in the capital,",
)
LEAST_COUNTRIES = 8


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt."""
    known = set(single_tokens([*CAPITALS, *CAPITALS.values()], tokenizer, "capitals", 2 * LEAST_COUNTRIES))
    countries = [country for country, capital in CAPITALS.items() if known >= {country, capital}]
    single_tokens(countries, tokenizer, "capitals", LEAST_COUNTRIES)
    draw = Draw("capitals", seed)
    while True:
        template, (first, country, other) = draw.choice(TEMPLATES), draw.sample(countries, 3)
        a, b, capital = mark("example", first), mark("country", country), mark("example", CAPITALS[first])
        clean, named = read_markers(template.format(a=a, b=b, capital=capital))
        corrupted = template.format(a=first, b=other, capital=CAPITALS[first])
        if draw.belongs((corrupted,), split) and draw.is_new((clean,), split):
            spans = (*sorted(named), end_span(clean))
            yield PromptPair(clean, corrupted, f" {CAPITALS[country]}", f" {CAPITALS[other]}", spans=spans)
