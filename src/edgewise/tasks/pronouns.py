"""Gendered pronouns: "So Paul is a really good friend, isn't" -> " he".

The counterfactual has a name of the other gender.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

NAMES = {
    "he": "John Tom James David Paul Mark Peter Simon Jack Adam Kevin Brian Scott Ryan Eric Steve Frank Martin".split(),
    "she": "Mary Anna Sarah Laura Emma Alice Kate Lisa Rachel Susan Jane Amy Julia Helen Rose Grace Lucy Ruth".split(),
}
QUALITIES = "good great kind nice smart funny close old real true".split()
ROLES = "friend teacher doctor cook singer writer leader player student neighbor".split()
TEMPLATES = (
    "So {name} is a really {quality} {role}, isn't",
    "Well, {name} is such a {quality} {role}, isn't",
    "I think that {name} is a {quality} {role}, isn't",
)
LEAST_NAMES = 4


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end, both genders in turn. Splits share no prompt."""
    names = {pronoun: single_tokens(listed, tokenizer, "pronouns", LEAST_NAMES) for pronoun, listed in NAMES.items()}
    single_tokens(list(names), tokenizer, "pronouns", len(names))
    draw = Draw("pronouns", seed)
    right, wrong = names
    while True:
        template, quality, role = draw.choice(TEMPLATES), draw.choice(QUALITIES), draw.choice(ROLES)
        name, other = draw.choice(names[right]), draw.choice(names[wrong])
        marked = template.format(name=mark("name", name), quality=quality, role=mark("role", role))
        clean, spans = read_markers(marked)
        corrupted = template.format(name=other, quality=quality, role=role)
        if draw.belongs((corrupted,), split) and draw.is_new((clean,), split):
            yield PromptPair(clean, corrupted, f" {right}", f" {wrong}", spans=(*spans, end_span(clean)))
            right, wrong = wrong, right
