"""Prompt pairs as text, examples as tokens, and tasks: ordered sets of examples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, overload

from ..errors import InputError
from ..graph import Graph, SpanGraph
from .spans import CharacterSpan

# How many tokens of a tokenizer tell it from others.
SAMPLE_TOKENS = 64


class TokenReader(Protocol):
    """What a task needs to know of a model. `Model` has it.

    bos         the token put before every prompt, or None
    vocabulary  the number of tokens
    max_length  the largest number of tokens of a prompt
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
    """A clean prompt, its corrupted counterpart, and the answers that distinguish them, as text.

    correct, incorrect   text that follows the clean prompt, with its leading space if it has one. Without further
                         answers, both may have several tokens
    first_token_decides  represent an answer of several tokens by its first one, as MIB does for names and labels
    also_correct         further correct answers. They count for accuracy and probabilities, not for logit differences
    also_incorrect       further incorrect answers. They count for probabilities
    spans                named parts of the clean prompt; () if it has none. Tokens of no part belong to `other`
    corrupted_spans      the same parts of the corrupted prompt, checked if given: they must have the same tokens

    Examples
    --------
    >>> PromptPair("The sum of 1 and 2 is", "The sum of 1 and 4 is", " 3", " 5")
    """

    clean: str
    corrupted: str
    correct: str
    incorrect: str | None = None
    first_token_decides: bool = False
    also_correct: tuple[str, ...] = ()
    also_incorrect: tuple[str, ...] = ()
    spans: tuple[CharacterSpan, ...] = ()
    corrupted_spans: tuple[CharacterSpan, ...] = ()

    def __post_init__(self) -> None:
        for name in ("also_correct", "also_incorrect"):
            if isinstance(answer := getattr(self, name), str):  # its characters would be answers
                raise InputError(f"{name} must be a tuple of answers, not text; write ({answer!r},)")

    @property
    def answers(self) -> tuple[str, ...]:
        """All answers."""
        incorrect = () if self.incorrect is None else (self.incorrect,)
        return (self.correct, *self.also_correct, *incorrect, *self.also_incorrect)


def check_distinct(
    correct: tuple[int, ...],
    incorrect: tuple[int | None, ...],
    also_correct: Iterable[int],
    also_incorrect: Iterable[int],
    describe: Callable[[int], str] = str,
) -> None:
    """Raise InputError if an answer is both correct and incorrect.

    correct, incorrect  the tokens of the two answers. Answers of several tokens may share some of them.
    describe            returns a token as text
    """
    if correct == incorrect:
        raise InputError(f"the correct and the incorrect answer are the same token, {describe(correct[0])}")
    if len(correct) == len(incorrect) == 1:
        shared = {*correct, *also_correct}.intersection([*incorrect, *also_incorrect])
        if shared:
            raise InputError(f"the correct and the incorrect answers share the token {describe(min(shared))}")


@dataclass(frozen=True)
class Example:
    """A prompt pair as tokens. Both prompts have equally many tokens; the metric reads the last position.

    If the correct answer has several tokens, both prompts end with all of them but the last, and the metric reads as
    many positions as the answer has tokens, the last one included. If the incorrect answer has several, all of them but
    the last follow. They don't attend to the tokens of the correct answer: they have the positions that they would have
    right after the prompt.

    incorrect           None if there is no incorrect answer
    continuation        the tokens of the correct answer after its first
    span_names          the names of the spans; () if the example has none
    span_indices        [position] the index in `span_names` of the span that each token of both prompts belongs to
    other_continuation  the tokens of the incorrect answer after its first
    """

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    correct: int
    incorrect: int | None = None
    text: PromptPair | None = None
    also_correct: tuple[int, ...] = ()
    also_incorrect: tuple[int, ...] = ()
    continuation: tuple[int, ...] = ()
    span_names: tuple[str, ...] = ()
    span_indices: tuple[int, ...] = ()
    other_continuation: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.clean:
            raise InputError("the clean prompt is empty")
        if len(self.clean) != len(self.corrupted):
            raise InputError(
                f"the clean prompt has {len(self.clean)} tokens, the corrupted one {len(self.corrupted)}; "
                "patching needs equally many: reword one of them"
            )
        correct, incorrect = (self.correct, *self.continuation), (self.incorrect, *self.other_continuation)
        check_distinct(correct, incorrect, self.also_correct, self.also_incorrect)
        if self.incorrect is None and self.other_continuation:
            raise InputError("there are further tokens of the incorrect answer, but not its first")
        forced = correct[:-1] + incorrect[:-1]
        if forced and not self.clean[-len(forced) :] == self.corrupted[-len(forced) :] == forced:
            raise InputError("prompts must end with the tokens of an answer of several tokens, except its last")
        if len(self.span_indices) != (self.length if self.span_names else 0):
            raise InputError(f"an example of {self.length} tokens has {len(self.span_indices)} indices of spans")
        if any(not 0 <= index < len(self.span_names) for index in self.span_indices):
            raise InputError(f"an index of a span is outside the {len(self.span_names)} spans of the example")

    @property
    def length(self) -> int:
        """The number of tokens of each prompt."""
        return len(self.clean)

    @property
    def answers(self) -> tuple[int, ...]:
        """All tokens of answers."""
        incorrect = () if self.incorrect is None else (self.incorrect,)
        several = (self.correct, *self.continuation, *self.also_correct, *incorrect, *self.also_incorrect)
        return (*several, *self.other_continuation)

    @property
    def n_reads(self) -> int:
        """The number of positions that the metric reads, the last ones."""
        return 1 + len(self.continuation) + len(self.other_continuation)

    @property
    def tokens(self) -> tuple[object, ...]:
        """All tokens that a result can depend on."""
        rest: tuple[object, ...] = ()
        if self.also_incorrect or self.continuation or self.other_continuation:
            rest = (self.also_incorrect, self.continuation)
        rest += (self.other_continuation,) if self.other_continuation else ()
        return self.clean, self.corrupted, self.correct, self.incorrect, self.also_correct, *rest

    @property
    def spans(self) -> dict[str, tuple[int, ...]]:
        """The token positions of each span, in the order of `span_names`. Every position is in exactly one."""
        return {
            name: tuple(position for position, index in enumerate(self.span_indices) if index == number)
            for number, name in enumerate(self.span_names)
        }

    @property
    def reversed(self) -> Example | None:
        """The pair with prompts and answers exchanged; None if an answer is missing or has several tokens.

        It has no spans: the roles of tokens may differ between the prompts.
        """
        if self.incorrect is None or self.n_reads > 1:
            return None
        return Example(
            self.corrupted, self.clean, self.incorrect, self.correct,
            also_correct=self.also_incorrect, also_incorrect=self.also_correct,
        )  # fmt: skip

    @property
    def shared_prefix(self) -> int:
        """The number of leading tokens that the two prompts share."""
        pairs = enumerate(zip(self.clean, self.corrupted, strict=True))
        return next((position for position, (clean, corrupted) in pairs if clean != corrupted), self.length)


@dataclass(frozen=True)
class Task:
    """A named, ordered set of examples in the tokens of one model.

    name, split  for reports
    examples     at least one
    dropped      (reason, count) of the rows that can't be used with this tokenizer
    made_by      `tokenizer_sample` of the tokenizer that made the tokens; () if unknown
    """

    name: str
    split: str
    examples: tuple[Example, ...]
    dropped: tuple[tuple[str, int], ...] = ()
    made_by: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.examples:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.dropped)
            raise InputError(
                f"task {self.name!r}, split {self.split!r} has no examples" + (f" ({reasons})" if reasons else "")
            )
        different = next((e.span_names for e in self.examples if e.span_names != self.span_names), self.span_names)
        if different != self.span_names:
            raise InputError(
                f"the examples of task {self.name!r} have different spans: {', '.join(self.span_names) or 'none'} and "
                f"{', '.join(different) or 'none'}; give all of them the same, in the same order"
            )

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Task: ...
    def __getitem__(self, index: int | slice) -> Example | Task:
        """Return an example, or for a slice the task with these examples."""
        return replace(self, examples=self.examples[index]) if isinstance(index, slice) else self.examples[index]

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.split!r}, {len(self):,} examples)"

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt."""
        return max(example.length for example in self.examples)

    @property
    def span_names(self) -> tuple[str, ...]:
        """The names of the spans that all examples have, in order; () if they have none."""
        return self.examples[0].span_names

    def span_graph(self, graph: Graph) -> SpanGraph:
        """Return the graph of (edge, span) pairs for the edges of a graph and the spans of this task.

        Raises
        ------
        InputError
            If the task has no spans.
        """
        if not self.span_names:
            raise InputError(
                f"positions need a task with spans, but task {self.name!r} has none; name spans in its file (a column "
                "`spans`, or markers in prompts), or leave positions out"
            )
        return SpanGraph(graph, self.span_names)

    @cached_property
    def digest(self) -> str:
        """A hash of the tokens of all examples, in their order. Spans have no part in it: see `span_digest`."""
        return hashlib.sha256(repr([example.tokens for example in self.examples]).encode()).hexdigest()

    def has_prompt_of(self, example: Example) -> bool:
        """Whether the task has an example's clean prompt, or its pair in the other direction."""
        return not self._prompts.isdisjoint([example.clean, (example.corrupted, example.clean)])

    @cached_property
    def _prompts(self) -> set[tuple[object, ...]]:
        """All clean prompts, and all pairs of a clean and a corrupted one."""
        return {item for e in self.examples for item in (e.clean, (e.clean, e.corrupted))}

    @cached_property
    def span_digest(self) -> str:
        """A hash of the names and positions of the spans of all examples, for results that depend on them."""
        spans = [self.span_names, [example.span_indices for example in self.examples]]
        return hashlib.sha256(repr(spans).encode()).hexdigest()

    def with_token_spans(self) -> Task:
        """Return the task with a span per token position, named by its number from 0.

        Raises
        ------
        InputError
            If prompts differ in length: their positions don't correspond.
        """
        lengths = sorted({example.length for example in self.examples})
        if len(lengths) > 1:
            raise InputError(
                f"prompts of task {self.name!r} have {lengths[0]} to {lengths[-1]} tokens; spans='token' needs prompts "
                "of equal length, whose positions correspond: name spans instead"
            )
        positions = range(lengths[0])
        names = tuple(map(str, positions))
        examples = (replace(e, span_names=names, span_indices=tuple(positions)) for e in self.examples)
        return replace(self, examples=tuple(examples))

    @cached_property
    def copies(self) -> int:
        """The number of examples that repeat the tokens of an earlier one."""
        return len(self) - len({example.tokens for example in self.examples})

    def part(self, rows: Iterable[int]) -> Task:
        """Return the task with the examples at `rows` only."""
        return replace(self, examples=tuple(self.examples[row] for row in rows))

    def join(self, *others: Task | None) -> Task:
        """Return the examples of this and of other tasks, such as its other splits, without spans, which may differ."""
        examples = (example for task in (self, *others) if task is not None for example in task.examples)
        return replace(self, examples=tuple(replace(e, span_names=(), span_indices=()) for e in examples))

    def head(self, limit: int | None) -> Task:
        """Return the task with its first `limit` examples; all of them for None."""
        return self if limit is None else replace(self, examples=self.examples[:limit])


def tokenizer_sample(tokenizer: Any) -> tuple[str, ...]:
    """Return some tokens of a tokenizer, which tell it from others; () if it can't list any.

    Tokens that were added later, such as one for padding, have no part in it.
    """
    size = getattr(tokenizer, "vocab_size", 0)
    if not size or not hasattr(tokenizer, "convert_ids_to_tokens"):
        return ()
    return tuple(map(str, tokenizer.convert_ids_to_tokens(list(range(0, size, -(-size // SAMPLE_TOKENS))))))
