"""Indirect object identification: "When Mary and John went to the store, John gave a drink to" -> " Mary".

The counterfactual swaps the second subject for the indirect object (MIB's `s2_io_flip`), so that the other name
becomes the answer: both prompts agree up to that word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InputError
from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import answer_tokens

NAMES = (
    "Mary John Tom James Anna David Sarah Paul Laura Mark Emma Peter Alice Simon Kate Jack Lisa Adam "
    "Rachel Kevin Susan Brian Jane Scott Amy Ryan Julia Eric Sam Steve Helen Frank Martin Rose Henry "
    "Grace Oliver Lucy Daniel Ruth"
).split()
PLACES = "store garden restaurant school hospital office house station park museum library market".split()
OBJECTS = "drink ring kiss book basketball bone computer necklace letter flower ticket lamp".split()
TEMPLATES = (
    "When {a} and {b} went to the {place}, {s} gave a {object} to",
    "Then, {a} and {b} went to the {place}. {s} gave a {object} to",
    "After {a} and {b} arrived at the {place}, {s} handed a {object} to",
    "While {a} and {b} were working at the {place}, {s} gave a {object} to",
    "Friends {a} and {b} found a {object} at the {place}. {s} gave it to",
    "Then, {a} and {b} had a long argument. Afterwards {s} brought a {object} to",
    "The {place} {a} and {b} went to had a {object}. {s} gave it to",
    "Yesterday {a} and {b} met at the {place}. In the end, {s} offered a {object} to",
)
LEAST_NAMES = 6
# Subject, indirect object, and the subject's second mention; the last token is the span `end`.
SPANS = ("S1", "IO", "S2")


def usable_names(tokenizer: Any) -> tuple[str, ...]:
    """Return the names that are one token; if there are too few, the largest group of equal token length."""
    by_length: dict[int, list[str]] = {}
    for name in NAMES:
        by_length.setdefault(len(answer_tokens(f" {name}", tokenizer)), []).append(name)
    single = by_length.get(1, [])
    names = single if len(single) >= LEAST_NAMES else max(by_length.values(), key=len)
    first_tokens = {tuple(answer_tokens(f" {name}", tokenizer)[:1]): name for name in names}
    if len(first_tokens) < LEAST_NAMES:
        raise InputError(
            f"task 'ioi' needs at least {LEAST_NAMES} names that this tokenizer splits into equally many tokens and "
            f"that differ in the first, but it has {len(first_tokens)}; use a task file (FILE.jsonl)"
        )
    return tuple(sorted(first_tokens.values(), key=NAMES.index))


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end, both name orders in turn. Splits share no prompt."""
    names = usable_names(tokenizer)
    draw = Draw("ioi", seed)
    swap = False
    while True:
        template, place, object_ = draw.choice(TEMPLATES), draw.choice(PLACES), draw.choice(OBJECTS)
        first, second = draw.sample(names, 2)
        # Everything but the second subject: a clean prompt and all its counterfactuals belong to one split.
        story = template.format(a=first, b=second, s="{s}", place=place, object=object_)
        if not draw.is_new((story,), split):
            continue
        subject, indirect = (first, second) if swap else (second, first)
        swap = not swap
        role = {subject: "S1", indirect: "IO"}
        a, b = (mark(role[name], name) for name in (first, second))
        clean, named = read_markers(template.format(a=a, b=b, s=mark("S2", subject), place=place, object=object_))
        # The same order of the spans in all prompts, whichever name comes first.
        spans = (*sorted(named, key=lambda span: SPANS.index(span.name)), end_span(clean))
        corrupted = story.format(s=indirect)
        yield PromptPair(clean, corrupted, f" {indirect}", f" {subject}", first_token_decides=True, spans=spans)
