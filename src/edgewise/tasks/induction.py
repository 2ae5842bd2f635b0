"""Induction: "Words: sun tree river bird sun" -> " tree", the word that followed the last one before.

The counterfactual has another word there, so its answer is that word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

WORDS = (
    "sun tree river stone cloud bird lamp book chair door wheel clock house garden water light bread horse table "
    "paper music summer winter morning glass silver gold king road ship field wind fire snow box ball cup dog cat hat"
).split()
CONTEXT = 8
LEAST_WORDS = 16


def generate(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt."""
    words = single_tokens(WORDS, tokenizer, "induction", LEAST_WORDS)
    draw = Draw("induction", seed)
    while True:
        *context, other = draw.sample(words, CONTEXT + 1)
        place = draw.between(0, CONTEXT - 2)
        answer = context[place + 1]
        marked = [mark("A", w) if w == context[place] else mark("B", w) if w == answer else w for w in context]
        clean, spans = read_markers(f"Words: {' '.join(marked)} {context[place]}")
        corrupted = clean.replace(f" {answer} ", f" {other} ")
        if draw.belongs((corrupted,), split) and draw.is_new((clean,), split):
            yield PromptPair(clean, corrupted, f" {answer}", f" {other}", spans=(*spans, end_span(clean)))
