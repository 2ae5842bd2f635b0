"""The tasks of the embedded models whose circuits are known: `known/NAME` is the task of the model `known/NAME`.

The words are those of the models. Correct and incorrect answers are from different halves of the words, except for
greater-than, where the correct answer is the larger number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..errors import InputError
from .generators import Draw
from .spans import CharacterSpan
from .task import PromptPair
from .tokens import answer_tokens, unknown_token

PREFIX = "known/"
INDUCTION_WORDS = "sun tree river stone cloud bird lamp book chair door wheel clock".split()
BACKUP_WORDS = "red green blue black white seven eight nine ten twelve".split()
NAMES = "Anna David Emma Frank Grace Henry Julia Kevin".split()
NUMBERS = [str(number) for number in range(14)]
FILLERS = ("so", "and")
MARK, IOI_END, NUMBER_END = "then", "to", "until"
INDUCTION_CONTEXT, BACKUP_CONTEXT, IOI_LENGTH, NUMBER_LENGTH = 8, 6, 12, 9


def induction(draw: Draw) -> Iterator[PromptPair]:
    """Yield "... A B ... A" -> B. The counterfactual has other words in another order, so its answer differs."""
    while True:
        contexts = [draw.sample(INDUCTION_WORDS, INDUCTION_CONTEXT) for _ in range(2)]
        places = draw.sample(range(INDUCTION_CONTEXT - 1), 2)
        queries, answers = zip(*(words[at : at + 2] for words, at in zip(contexts, places, strict=True)), strict=True)
        if queries[0] != queries[1] and not _same_half(answers[0], answers[1], INDUCTION_WORDS):
            clean, corrupted = (" ".join([*words, word]) for words, word in zip(contexts, queries, strict=True))
            spans = _word_spans(clean, A=places[0], B=places[0] + 1, end=-1)
            yield PromptPair(clean, corrupted, f" {answers[0]}", f" {answers[1]}", spans=spans)


def ioi(draw: Draw) -> Iterator[PromptPair]:
    """Yield "so Anna and Kevin so and then Kevin so to" -> Anna.

    The counterfactual repeats the other name, and its words have other positions.
    """
    middle = len(NAMES) // 2

    def prompt(repeated: str, places: tuple[int, ...]) -> str:
        words = [draw.choice(FILLERS) for _ in range(IOI_LENGTH - 1)]
        for place, word in zip((*places, places[-1] + 1), (*names, MARK, repeated), strict=True):
            words[place] = word
        return " ".join([*words, IOI_END])

    while True:
        names = draw.sample([draw.choice(NAMES[:middle]), draw.choice(NAMES[middle:])], 2)
        layouts = [tuple(sorted(draw.sample(range(IOI_LENGTH - 2), 3))) for _ in range(2)]
        if all(a != b for a, b in zip(*layouts, strict=True)):
            answer, repeated = draw.sample(names, 2)
            clean, corrupted = prompt(repeated, layouts[0]), prompt(answer, layouts[1])
            places = dict(zip(names, layouts[0], strict=False))
            spans = _word_spans(clean, S1=places[repeated], IO=places[answer], S2=layouts[0][-1] + 1, end=-1)
            yield PromptPair(clean, corrupted, f" {answer}", f" {repeated}", spans=spans)


def greater_than(draw: Draw) -> Iterator[PromptPair]:
    """Yield "so and 7 so and so and so until" -> a larger number, not a smaller one.

    The number of the counterfactual is smaller than both answers, and has another position.
    """

    def prompt(number: int, place: int) -> str:
        words = [draw.choice(FILLERS) for _ in range(NUMBER_LENGTH - 2)]
        return " ".join([*words[:place], NUMBERS[number], *words[place:], NUMBER_END])

    while True:
        lowest, incorrect, start, correct = sorted(draw.sample(range(len(NUMBERS)), 4))
        places = draw.sample(range(NUMBER_LENGTH - 1), 2)
        clean, corrupted = prompt(start, places[0]), prompt(lowest, places[1])
        larger = tuple(f" {number}" for number in NUMBERS[start + 1 :])
        spans = _word_spans(clean, number=places[0], end=-1)
        yield PromptPair(clean, corrupted, f" {correct}", f" {incorrect}", also_correct=larger, spans=spans)


def backup(draw: Draw) -> Iterator[PromptPair]:
    """Yield "... A B ... A" -> B. The counterfactual has other words, and its last word is new: nothing to copy."""
    while True:
        context, place = draw.sample(BACKUP_WORDS, BACKUP_CONTEXT), draw.between(0, BACKUP_CONTEXT - 2)
        query, answer = context[place : place + 2]
        new = draw.choice([word for word in BACKUP_WORDS if word not in context])
        others = draw.sample([word for word in BACKUP_WORDS if word not in (query, new)], BACKUP_CONTEXT)
        incorrect = draw.choice([word for word in BACKUP_WORDS if word != query])
        if others[place + 1] != answer and not _same_half(answer, incorrect, BACKUP_WORDS):
            clean, corrupted = (" ".join(words) for words in ([*context, query], [*others, new]))
            spans = _word_spans(clean, A=place, B=place + 1, end=-1)
            yield PromptPair(clean, corrupted, f" {answer}", f" {incorrect}", spans=spans)


def _word_spans(prompt: str, **places: int) -> tuple[CharacterSpan, ...]:
    """Return spans of a word each, by the number of the word in the clean prompt. -1 is the last."""
    words = list(re.finditer("[^ ]+", prompt))
    return tuple(CharacterSpan(name, *words[place].span()) for name, place in places.items())


def _same_half(word: str, other: str, words: list[str]) -> bool:
    """Whether two words are in the same half of a list."""
    middle = len(words) // 2
    return (words.index(word) < middle) == (words.index(other) < middle)


# Task -> its pairs, the words that it needs as tokens, and an example.
SOURCES: dict[str, tuple[Callable[[Draw], Iterator[PromptPair]], list[str], str]] = {
    f"{PREFIX}induction": (induction, INDUCTION_WORDS, "sun tree river bird sun -> tree"),
    f"{PREFIX}ioi": (ioi, [*NAMES, MARK, *FILLERS, IOI_END], "so Anna and Kevin so and then Kevin so to -> Anna"),
    f"{PREFIX}greater-than": (
        greater_than, [*NUMBERS, *FILLERS, NUMBER_END], "so and 7 so and so and so until -> a larger number"
    ),
    f"{PREFIX}backup": (backup, BACKUP_WORDS, "red seven blue ten red -> seven (the model has a backup head)"),
}  # fmt: skip


def generate(task: str, tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield distinct pairs of a split, without end. Splits share no prompt, clean or corrupted."""
    make_pairs, words, _ = SOURCES[task]
    for word in words:
        tokens = answer_tokens(f" {word}", tokenizer)
        if len(tokens) != 1 or tokens[0] == unknown_token(tokenizer):
            raise InputError(
                f"task {task!r} needs words such as {word!r} as single tokens, which this model lacks; use model "
                f"{task!r}, or another task"
            )
    draw = Draw(task, seed)
    for pair in make_pairs(draw):
        if draw.accepts(pair, split):
            yield pair


KNOWN: dict[str, Callable[[Any, str, int], Iterator[PromptPair]]] = {task: partial(generate, task) for task in SOURCES}
