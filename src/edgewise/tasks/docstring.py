"""Docstrings: a function with three arguments, whose docstring has described two -> the name of the third.

The counterfactual has another third argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

WORDS = (
    "load size name path data time value key line page user order state level point count text color shape date file "
    "list table image model house water city game music story field group land world number word head hand room"
).split()
LEAST_WORDS = 16
TEMPLATE = '''def {f}(self, {a}, {b}, {c}):
    """{d1} {d2}

    :param {a2}: {d3} {d4}
    :param {b2}: {d5} {d6}
    :param'''


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt."""
    words = single_tokens(WORDS, tokenizer, "docstring", LEAST_WORDS)
    draw = Draw("docstring", seed)
    while True:
        name, a, b, c, other, *described = draw.sample(words, 11)
        texts = {f"d{number}": word for number, word in enumerate(described, start=1)}
        arguments = {"f": name, "a2": mark("A described", a), "b2": mark("B described", b)}
        marked = TEMPLATE.format(a=mark("A", a), b=mark("B", b), c=mark("C", c), **arguments, **texts)
        clean, spans = read_markers(marked)
        corrupted, _ = read_markers(TEMPLATE.format(a=a, b=b, c=other, **arguments, **texts))
        if draw.belongs((corrupted,), split) and draw.is_new((clean,), split):
            yield PromptPair(clean, corrupted, f" {c}", f" {other}", spans=(*spans, end_span(clean)))
