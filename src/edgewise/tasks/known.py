"""The tasks of the embedded models whose circuits are known: `known/NAME` is the task of the model `known/NAME`.

The words are those of the models. Correct and incorrect answers are from different halves of the words, except for
greater-than, where the correct answer is the larger number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .draw import Draw
from .task import PromptPair

PREFIX = "known/"
INDUCTION_WORDS = "sun tree river stone cloud bird lamp book chair door wheel clock".split()
BACKUP_WORDS = "red green blue black white seven eight nine ten twelve".split()
NAMES = "Anna David Emma Frank Grace Henry Julia Kevin".split()
NUMBERS = [str(number) for number in range(14)]
FILLERS = ("so", "and")
MARK, IOI_END, YEAR_END = "then", "to", "until"
CONTEXT_WORDS, IOI_LENGTH, YEAR_LENGTH = 8, 12, 7
BACKUP_CONTEXT = 6


def induction(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "... A B ... A" -> B. The counterfactual has other words in another order, so its answer differs."""
    draw = Draw("known/induction", seed)
    while True:
        contexts = [draw.sample(INDUCTION_WORDS, CONTEXT_WORDS) for _ in range(2)]
        first, second = draw.sample(range(CONTEXT_WORDS - 1), 2)
        answers = contexts[0][first + 1], contexts[1][second + 1]
        queries = contexts[0][first], contexts[1][second]
        is_usable = queries[0] != queries[1] and not _same_half(*answers, INDUCTION_WORDS)
        if is_usable and draw.is_new((*contexts[0], first), split):
            clean, corrupted = (" ".join([*words, word]) for words, word in zip(contexts, queries, strict=True))
            yield PromptPair(clean, corrupted, f" {answers[0]}", f" {answers[1]}")


def ioi(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "so Anna and Kevin and then Kevin so to" -> Anna.

    The counterfactual repeats the other name, and its words have other positions.
    """
    draw = Draw("known/ioi", seed)
    while True:
        pair = draw.choice(NAMES[: len(NAMES) // 2]), draw.choice(NAMES[len(NAMES) // 2 :])
        names = tuple(draw.sample(pair, 2))
        layouts = [_ioi_layout(draw) for _ in range(2)]
        fillers = [[draw.choice(FILLERS) for _ in range(IOI_LENGTH)] for _ in range(2)]
        if any(a == b for a, b in zip(*layouts, strict=True)):
            continue
        answer = draw.between(0, 1)
        if draw.is_new((names, layouts[0], answer, *fillers[0]), split):
            clean, corrupted = (
                _ioi_prompt(names, names[repeated], *rest)
                for repeated, *rest in zip((1 - answer, answer), layouts, fillers, strict=True)
            )
            yield PromptPair(clean, corrupted, f" {names[answer]}", f" {names[1 - answer]}")


def _ioi_layout(draw: Draw) -> tuple[int, ...]:
    """Return the positions of the two names and of the mark, which the repeated name follows."""
    first = draw.between(0, 3)
    second = draw.between(first + 1, 6)
    return first, second, draw.between(second + 1, IOI_LENGTH - 3)


def _ioi_prompt(names: tuple[str, ...], repeated: str, layout: tuple[int, ...], fillers: list[str]) -> str:
    words = dict(zip(layout, (*names, MARK), strict=True)) | {layout[-1] + 1: repeated, IOI_LENGTH - 1: IOI_END}
    return " ".join(words.get(position, filler) for position, filler in enumerate(fillers))


def greater_than(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "so and 7 so and so until" -> a larger number, not a smaller one.

    The number of the counterfactual is smaller than both answers, and has another position.
    """
    draw = Draw("known/greater-than", seed)
    while True:
        lowest, incorrect, start, correct = sorted(draw.sample(range(len(NUMBERS)), 4))
        places = draw.sample(range(YEAR_LENGTH - 1), 2)
        fillers = [[draw.choice(FILLERS) for _ in range(YEAR_LENGTH - 1)] for _ in range(2)]
        if draw.is_new((start, places[0], *fillers[0]), split):
            clean, corrupted = (
                " ".join([*words[:place], str(number), *words[place + 1 :], YEAR_END])
                for words, place, number in zip(fillers, places, (start, lowest), strict=True)
            )
            larger = tuple(f" {number}" for number in NUMBERS[start + 1 :])
            yield PromptPair(clean, corrupted, f" {correct}", f" {incorrect}", also_correct=larger)


def backup(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "... A B ... A" -> B. The counterfactual has other words, and its last word is new: nothing to copy."""
    draw = Draw("known/backup", seed)
    while True:
        context = draw.sample(BACKUP_WORDS, BACKUP_CONTEXT)
        place = draw.between(0, BACKUP_CONTEXT - 2)
        query, answer = context[place : place + 2]
        new = draw.choice([word for word in BACKUP_WORDS if word not in context])
        others = draw.sample([word for word in BACKUP_WORDS if word not in (query, new)], BACKUP_CONTEXT)
        incorrect = draw.choice(BACKUP_WORDS)
        is_usable = others[place + 1] != answer and not _same_half(answer, incorrect, BACKUP_WORDS)
        if is_usable and incorrect != query and draw.is_new((*context, place), split):
            clean, corrupted = (" ".join(words) for words in ([*context, query], [*others, new]))
            yield PromptPair(clean, corrupted, f" {answer}", f" {incorrect}")


def _same_half(word: str, other: str, words: list[str]) -> bool:
    """Whether two words are in the same half of a list."""
    middle = len(words) // 2
    return (words.index(word) < middle) == (words.index(other) < middle)


KNOWN: dict[str, Callable[[Any, str, int], Iterator[PromptPair]]] = {
    f"{PREFIX}induction": induction,
    f"{PREFIX}ioi": ioi,
    f"{PREFIX}greater-than": greater_than,
    f"{PREFIX}backup": backup,
}
KNOWN_DESCRIPTIONS = {
    f"{PREFIX}induction": "sun tree river bird sun -> tree",
    f"{PREFIX}ioi": "so Anna and Kevin so and then Kevin so to -> Anna",
    f"{PREFIX}greater-than": "so and 7 so and so until -> a larger number",
    f"{PREFIX}backup": "red seven blue ten red -> seven (the model has a backup head)",
}
