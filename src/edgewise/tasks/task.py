"""The values of this folder: a pair of prompts as text, as tokens, and a whole task."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ..errors import InputError
from ..io.reading import wrap_read_errors

UNEQUAL_PROMPTS = "with prompts of unequal token length"
SAME_ANSWERS = "with answers that begin with the same token"
UNKNOWN_ANSWERS = "with an answer that the tokenizer doesn't know"
UNKNOWN_PROMPTS = "with a prompt that the tokenizer doesn't know all of"


class Reader(Protocol):
    """What a task has to know of the model that will read it: a `Model` is one.

    bos         the token put in front of every prompt, or None
    vocabulary  the number of tokens; `max_length` the longest prompt
    """

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def bos(self) -> int | None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def max_length(self) -> int: ...


@dataclass(frozen=True)
class PromptPair:
    """A clean prompt, its corrupted counterpart, and the answers that tell them apart, as text.

    An answer is the text that follows the prompt, with its leading space if it has one. With
    `first_token_decides` an answer of several tokens is represented by its first (MIB does so for names and labels).
    `also_correct` are further answers that are right: they count for accuracy, not for differences.
    """

    clean: str
    corrupted: str
    correct: str
    incorrect: str
    first_token_decides: bool = False
    also_correct: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """A prompt pair as tokens. Both prompts have equally many tokens; the metric reads the last position."""

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    correct: int
    incorrect: int
    text: PromptPair | None = None
    also_correct: tuple[int, ...] = ()

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
    def tokens(self) -> tuple[tuple[int, ...], tuple[int, ...], int, int, tuple[int, ...]]:
        """All that a model reads or that is read off it."""
        return self.clean, self.corrupted, self.correct, self.incorrect, self.also_correct

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

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt."""
        return max(example.length for example in self.examples)

    @cached_property
    def digest(self) -> str:
        """A hash of all that a result can depend on: the tokens of all examples, in their order."""
        return hashlib.sha256(repr([example.tokens for example in self.examples]).encode()).hexdigest()

    @cached_property
    def copies(self) -> int:
        """How many examples repeat the tokens of an earlier one."""
        return len(self) - len({example.tokens for example in self.examples})

    def part(self, rows: Iterable[int]) -> Task:
        """The examples at some rows."""
        return replace(self, examples=tuple(self.examples[row] for row in rows))

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.split!r}, {len(self):,} examples)"

    def head(self, limit: int | None) -> Task:
        """The first `limit` examples (all of them for None)."""
        return self if limit is None else replace(self, examples=self.examples[:limit])


def tokenize(pairs: Iterable[PromptPair], tokenizer: Any, bos: int | None, source: str) -> tuple[Example, ...]:
    """Turn text into tokens; `bos` is put in front of every prompt, unless it is None.

    Pairs that can't be used raise an `InputError` that names `source` and their numbers, from 1.
    """
    examples, problems = try_tokenize(dict(enumerate(pairs, start=1)), tokenizer, bos)
    refuse_rows(source, problems)
    return tuple(examples.values())


def try_tokenize(
    pairs: Mapping[int, PromptPair], tokenizer: Any, bos: int | None
) -> tuple[dict[int, Example], dict[int, str]]:
    """By their numbers, the pairs that can be used as tokens, and what is wrong with the others."""
    answers, unknown = _answers(list(pairs.values()), tokenizer), unknown_token(tokenizer)
    examples, problems = {}, {}
    for number, (pair, clean, corrupted) in zip(pairs, _prompts(list(pairs.values()), tokenizer, bos), strict=True):
        try:
            every = (pair.correct, pair.incorrect, *pair.also_correct)
            correct, incorrect, *also = (_answer(answer, pair, answers[answer], tokenizer) for answer in every)
            for answer, token in zip(every, (correct, incorrect, *also), strict=True):
                if token == unknown:
                    raise InputError(f"the tokenizer doesn't know the answer {answer!r}; choose another")
            example = Example(clean, corrupted, correct, incorrect, pair, tuple(also))
            for kind, text, tokens in (("clean", pair.clean, clean), ("corrupted", pair.corrupted, corrupted)):
                if _has_unknown(text, tokens, tokenizer, bos):
                    word = _strange_word(text, tokenizer)
                    raise InputError(f"the tokenizer doesn't know {word} of the {kind} prompt; choose another")
            examples[number] = example
        except InputError as error:
            problems[number] = f"example {number}: {error}"
    return examples, problems


def refuse_rows(source: str, problems: Mapping[int, str], more: int = 0) -> None:
    """Refuse rows of `source` that can't be used, if there are any: one in a line, several as a list of the first.

    `more` counts those that aren't listed.
    """
    if len(problems) + more == 1:
        raise InputError(f"{source}, {next(iter(problems.values()))}")
    if problems:
        listed = [words for _, words in sorted(problems.items())]
        raise InputError(f"{source}: {len(problems) + more:,} of its rows can't be used", listed, more)


def tokenize_usable(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> tuple[tuple[Example, ...], Counter[str]]:
    """As `tokenize`, for data that isn't the user's to mend: pairs that can't be patched are counted, by reason."""
    answers = _answers(pairs, tokenizer)
    examples: list[Example] = []
    dropped: Counter[str] = Counter()
    for pair, clean, corrupted in _prompts(pairs, tokenizer, bos):
        correct, incorrect = (
            _answer(answer, pair, answers[answer], tokenizer) for answer in (pair.correct, pair.incorrect)
        )
        if len(clean) != len(corrupted):
            dropped[UNEQUAL_PROMPTS] += 1
        elif correct == incorrect:
            dropped[SAME_ANSWERS] += 1
        elif unknown_token(tokenizer) in (correct, incorrect):
            dropped[UNKNOWN_ANSWERS] += 1
        elif any(_has_unknown(*one, tokenizer, bos) for one in ((pair.clean, clean), (pair.corrupted, corrupted))):
            dropped[UNKNOWN_PROMPTS] += 1
        else:
            examples.append(Example(clean, corrupted, correct, incorrect, pair))
    return tuple(examples), dropped


def answer_tokens(answer: str, tokenizer: Any) -> list[int]:
    """The tokens of an answer, without special tokens."""
    return _encode([answer], tokenizer)[0]


def tokens_behind(prompt: str, answer: str, tokenizer: Any) -> list[int]:
    """The tokens that `answer` adds to those of `prompt`; none if the two grow together where they meet."""
    before, whole = _encode([prompt, prompt + answer], tokenizer)
    return whole[len(before) :] if whole[: len(before)] == before else []


def next_token(prompt: str, answer: str, tokenizer: Any) -> int | None:
    """The token that `answer` is behind `prompt`; None if it isn't one, or is another one on its own."""
    behind, alone = tokens_behind(prompt, answer, tokenizer), answer_tokens(answer, tokenizer)
    return behind[0] if len(behind) == 1 and (len(alone) != 1 or alone == behind) else None


def unknown_token(tokenizer: Any) -> int | None:
    """The token that stands for what a tokenizer doesn't know, if it has one."""
    return getattr(tokenizer, "unk_token_id", None)


def _prompts(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> Iterator[tuple[PromptPair, tuple[int, ...], tuple[int, ...]]]:
    """Each pair with the tokens of its clean and of its corrupted prompt."""
    front = () if bos is None else (bos,)
    clean, corrupted = ([pair.clean for pair in pairs], [pair.corrupted for pair in pairs])
    for pair, one, other in zip(pairs, _encode(clean, tokenizer), _encode(corrupted, tokenizer), strict=True):
        yield pair, front + tuple(one), front + tuple(other)


def _answers(pairs: Sequence[PromptPair], tokenizer: Any) -> dict[str, list[int]]:
    """Every answer's own tokens; pairs share few answers, so each is encoded once."""
    texts = list(
        dict.fromkeys(answer for pair in pairs for answer in (pair.correct, pair.incorrect, *pair.also_correct))
    )
    return dict(zip(texts, _encode(texts, tokenizer), strict=True))


def _has_unknown(text: str, tokens: Sequence[int], tokenizer: Any, bos: int | None) -> bool:
    """Whether a prompt's tokens stand for something unknown, other than the text of the unknown token itself."""
    own = tokens if bos is None else tokens[1:]
    return unknown_token(tokenizer) in own and str(getattr(tokenizer, "unk_token", None)) not in text


def _strange_word(text: str, tokenizer: Any) -> str:
    """The first word that a tokenizer doesn't know, for people."""
    words = text.split()
    alone, behind = _encode(words, tokenizer), _encode([f" {word}" for word in words], tokenizer)
    either = ({*one} & {*other} for one, other in zip(alone, behind, strict=True))
    strange = (word for word, tokens in zip(words, either, strict=True) if unknown_token(tokenizer) in tokens)
    return next((f"the word {word!r}" for word in strange), "all")


def _encode(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    with wrap_read_errors("the text", "the tokenizer fails on it"):
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def _answer(answer: str, pair: PromptPair, tokens: Sequence[int], tokenizer: Any) -> int:
    if not tokens:
        raise InputError(f"the answer {answer!r} has no tokens")
    if len(tokens) == 1 or pair.first_token_decides:
        return tokens[0]
    # Llama's first tokenizers put a space in front of any text: "7" is two tokens alone, but one behind "17".
    behind = tokens_behind(pair.clean, answer, tokenizer)
    if len(behind) == 1:
        return behind[0]
    raise InputError(
        f"the answer {answer!r} is {len(tokens)} tokens for this tokenizer; "
        "an answer must be one token: choose another, and mind a leading space"
    )
