"""Multiple choice: the prompt gives the colour of a thing and four choices; the answer is the letter of that colour.

The counterfactual keeps the question and renames the choices' letters (MIB's symbol counterfactual), so that only
the letter of the right choice changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InputError
from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import answer_tokens

THINGS = "box cup hat chair ball bag coat car bike door lamp shirt kite boat vase rug".split()
COLOURS = "red blue green black white brown yellow orange purple pink gray gold".split()
LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z".split()
TEMPLATE = "Question: The {thing} is {colour}. What color is the {thing}?{choices}\nAnswer:"
CHOICES = 4
SPANS = ("colour", "right letter", "right choice", "wrong letter", "wrong choice")


def usable_letters(tokenizer: Any) -> tuple[str, ...]:
    """Return the letters that are one token, with their leading space."""
    letters = tuple(letter for letter in LETTERS if len(answer_tokens(f" {letter}", tokenizer)) == 1)
    if len(letters) < 2 * CHOICES:
        raise InputError(
            f"task 'mcqa' needs {2 * CHOICES} letters that are single tokens, but this tokenizer has {len(letters)}; "
            "use another model, or a task file (FILE.jsonl)"
        )
    return letters


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt."""
    letters = usable_letters(tokenizer)
    draw = Draw("mcqa", seed)
    while True:
        thing, colours, right = draw.choice(THINGS), draw.sample(COLOURS, CHOICES), draw.between(0, CHOICES - 1)
        if not draw.is_new((thing, *colours, right), split):
            continue
        drawn = draw.sample(letters, 2 * CHOICES)
        clean, corrupted = (
            TEMPLATE.format(
                thing=thing,
                colour=colours[right],
                choices="".join(f"\n{letter}. {colour}" for letter, colour in zip(symbols, colours, strict=True)),
            )
            for symbols in (drawn[:CHOICES], drawn[CHOICES:])
        )
        kinds = ["right" if place == right else "wrong" for place in range(CHOICES)]
        letters_and_colours = (
            f"\n{mark(f'{kind} letter', letter)}. {mark(f'{kind} choice', colour)}"
            for kind, letter, colour in zip(kinds, drawn, colours, strict=False)
        )
        _, named = read_markers(
            TEMPLATE.format(thing=thing, colour=mark("colour", colours[right]), choices="".join(letters_and_colours))
        )
        spans = (*sorted(named, key=lambda span: SPANS.index(span.name)), end_span(clean))
        yield PromptPair(clean, corrupted, f" {drawn[right]}", f" {drawn[CHOICES + right]}", spans=spans)
