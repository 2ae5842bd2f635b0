"""Subject-verb agreement: "The keys near the table" -> " are", not " is".

The counterfactual has the subject in the other number. The noun between subject and verb may have either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

NOUNS = (
    "key box door book friend boy girl tree car house song picture letter flower window table horse bird dog cat "
    "king game player student teacher doctor child-children man-men woman-women"
).split()
PLACES = "near behind beside before from with by under".split()
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))
LEAST_NOUNS = 6


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end, both numbers in turn. Splits share no prompt."""
    pairs = [(noun.split("-")[0], noun.split("-")[1] if "-" in noun else _plural(noun)) for noun in NOUNS]
    known = set(single_tokens([noun for pair in pairs for noun in pair], tokenizer, "agreement", 2 * LEAST_NOUNS))
    nouns = [pair for pair in pairs if known >= set(pair)]
    verbs = [single_tokens(verb, tokenizer, "agreement", 2) for verb in VERBS]
    draw = Draw("agreement", seed)
    number = 0
    while True:
        (subject, between), place, verb = draw.sample(nouns, 2), draw.choice(PLACES), draw.choice(verbs)
        text = f"The {{}} {place} the {draw.choice(between)}"
        clean, spans = read_markers(text.format(mark("subject", subject[number])))
        corrupted = text.format(subject[1 - number])
        if draw.belongs((corrupted,), split) and draw.is_new((clean,), split):
            spans = (*spans, end_span(clean))
            yield PromptPair(clean, corrupted, f" {verb[number]}", f" {verb[1 - number]}", spans=spans)
            number = 1 - number


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("x") else f"{noun}s"
