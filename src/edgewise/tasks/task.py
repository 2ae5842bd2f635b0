"""The values of this folder: a pair of prompts as text, as tokens, and a whole task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError


@dataclass(frozen=True)
class PromptPair:
    """A clean prompt, its corrupted counterpart, and the answers that tell them apart, as text.

    An answer is the text that follows the prompt, with its leading space if it has one. With
    `first_token_decides` an answer of several tokens is represented by its first (MIB does so for names).
    """

    clean: str
    corrupted: str
    correct: str
    incorrect: str
    first_token_decides: bool = False


@dataclass(frozen=True)
class Example:
    """A prompt pair as tokens. Both prompts have equally many tokens; the metric reads the last position."""

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    correct: int
    incorrect: int
    text: PromptPair | None = None

    def __post_init__(self) -> None:
        if not self.clean:
            raise InputError("the clean prompt is empty")
        if len(self.clean) != len(self.corrupted):
            raise InputError(
                f"the clean prompt has {len(self.clean)} tokens, the corrupted one {len(self.corrupted)}; "
                "patching needs equally many: reword one of them"
            )
        if self.correct == self.incorrect:
            raise InputError(f"the correct and the incorrect answer are the same token, {self.correct}")

    @property
    def length(self) -> int:
        """The number of tokens in either prompt."""
        return len(self.clean)

    @property
    def shared_prefix(self) -> int:
        """How many leading tokens the two prompts share."""
        for position, (clean, corrupted) in enumerate(zip(self.clean, self.corrupted, strict=True)):
            if clean != corrupted:
                return position
        return self.length


@dataclass(frozen=True)
class Task:
    """A named, ordered set of examples, ready for one model.

    `dropped` counts the rows that were left out, by reason.
    """

    name: str
    split: str
    examples: tuple[Example, ...]
    dropped: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.examples:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.dropped)
            raise InputError(
                f"task {self.name!r}, split {self.split!r} has no examples" + (f" ({reasons})" if reasons else "")
            )

    def __len__(self) -> int:
        return len(self.examples)

    def head(self, count: int | None) -> Task:
        """The first `count` examples (all of them for None)."""
        return self if count is None else replace(self, examples=self.examples[:count])


def tokenize(pairs: Iterable[PromptPair], tokenizer: Any, bos: int | None, source: str) -> tuple[Example, ...]:
    """Turn text into tokens; `bos` is put in front of every prompt, unless it is None.

    A pair that can't be used raises an `InputError` that names `source` and the pair's number, from 1.
    """
    pairs = tuple(pairs)
    if not pairs:
        return ()
    clean = _encode([pair.clean for pair in pairs], tokenizer)
    corrupted = _encode([pair.corrupted for pair in pairs], tokenizer)
    front = () if bos is None else (bos,)
    examples = []
    for number, pair in enumerate(pairs, start=1):
        try:
            correct, incorrect = (_answer(answer, pair, tokenizer) for answer in (pair.correct, pair.incorrect))
            one, other = (front + tuple(ids[number - 1]) for ids in (clean, corrupted))
            examples.append(Example(one, other, correct, incorrect, pair))
        except InputError as error:
            raise InputError(f"{source}, example {number}: {error}") from None
    return tuple(examples)


def answer_tokens(answer: str, tokenizer: Any) -> list[int]:
    """The tokens of an answer, without special tokens."""
    return _encode([answer], tokenizer)[0]


def _encode(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def _answer(answer: str, pair: PromptPair, tokenizer: Any) -> int:
    tokens = answer_tokens(answer, tokenizer)
    if not tokens:
        raise InputError(f"the answer {answer!r} has no tokens")
    if len(tokens) > 1 and not pair.first_token_decides:
        raise InputError(
            f"the answer {answer!r} is {len(tokens)} tokens for this tokenizer; "
            "an answer must be one token: choose another, and mind a leading space"
        )
    return tokens[0]
