"""Prompt pairs as text, as tokens, and whole tasks; from text to tokens."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, overload

from ..errors import MAX_DETAILS, InputError, warn
from ..graph import Graph, SpanGraph
from ..io.reading import wrap_read_errors
from .spans import CharacterSpan, assign_positions, name_spans

# Bootstrap intervals from fewer examples than this are too narrow.
# Of rows with the same problem, the first are listed; the same means the same text but for quotations and numbers.
SHOWN_PER_CAUSE = 3
VARIABLE_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
FEW_EXAMPLES = 10


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

    correct, incorrect   text that follows the clean prompt, with its leading space if it has one. Without an incorrect
                         answer, the correct one may have several tokens
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

    @property
    def answers(self) -> tuple[str, ...]:
        """All answers."""
        incorrect = () if self.incorrect is None else (self.incorrect,)
        return (self.correct, *self.also_correct, *incorrect, *self.also_incorrect)


@dataclass(frozen=True)
class Example:
    """A prompt pair as tokens. Both prompts have equally many tokens; the metric reads the last position.

    If the correct answer has several tokens, both prompts end with all of them but the last, and the metric reads as
    many positions as the answer has tokens, the last one included.

    incorrect     None if there is no incorrect answer
    continuation  the tokens of the correct answer after its first
    span_names    the names of the spans; () if the example has none
    span_indices  [position] the index in `span_names` of the span that each token of both prompts belongs to
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
        both = {self.correct, *self.also_correct} & {self.incorrect, *self.also_incorrect}
        if both:
            raise InputError(f"the correct and the incorrect answers share the token {min(both)}")
        forced = (self.correct, *self.continuation)[:-1]
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
        return (self.correct, *self.continuation, *self.also_correct, *incorrect, *self.also_incorrect)

    @property
    def n_reads(self) -> int:
        """The number of positions that the metric reads, the last ones."""
        return 1 + len(self.continuation)

    @property
    def tokens(self) -> tuple[object, ...]:
        """All tokens that a result can depend on."""
        rest = (self.also_incorrect, self.continuation) if self.also_incorrect or self.continuation else ()
        return self.clean, self.corrupted, self.correct, self.incorrect, self.also_correct, *rest

    @property
    def spans(self) -> dict[str, tuple[int, ...]]:
        """The token positions of each span, in the order of `span_names`. Every position is in exactly one."""
        return {
            name: tuple(position for position, index in enumerate(self.span_indices) if index == number)
            for number, name in enumerate(self.span_names)
        }

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

    def head(self, limit: int | None) -> Task:
        """Return the task with its first `limit` examples; all of them for None."""
        return self if limit is None else replace(self, examples=self.examples[:limit])


def warn_of_sample(task: Task) -> None:
    """Warn if intervals over a task's examples are too narrow: few examples, or copies."""
    if len(task) < FEW_EXAMPLES:
        warn(f"intervals from few examples ({len(task)}) are too narrow; use {FEW_EXAMPLES} or more")
    if task.copies:
        warn(f"{task.copies:,} of the {len(task):,} examples are copies of others; intervals are too narrow")


def warn_of_overlap(task: Task, evaluated: Task, purpose: str) -> None:
    """Warn if evaluated examples were also used for a purpose: `scored` or `used to choose recipes`."""
    known = {example.tokens for example in task.examples}
    n_shared = sum(example.tokens in known for example in evaluated.examples)
    if n_shared:
        warn(
            f"{n_shared:,} of the {len(evaluated):,} evaluated examples are also {purpose}, so results look better "
            "than they are; give splits that differ (a task file needs a `split` column)"
        )


def warn_of_spaces(pairs: Iterable[PromptPair], source: str) -> None:
    """Warn if prompts end in a space: tokenizers attach a space to the word that follows it."""
    pairs = list(pairs)
    ends = [pair for pair in pairs if pair.clean.endswith((" ", "\t")) or pair.corrupted.endswith((" ", "\t"))]
    if ends:
        prompt, answer = ends[0].clean.rstrip(" \t")[-20:], f" {ends[0].correct.strip()}"
        warn(
            f"{len(ends):,} of the {len(pairs):,} prompts of {source} end in a space, but models expect it at the "
            f"start of the answer; write ...{prompt!r} with the answer {answer!r}"
        )


def warn_of_equal_prompts(examples: Iterable[Example], source: str) -> None:
    """Warn if clean and corrupted prompts are the same: such an example says nothing about any edge."""
    examples = list(examples)
    n_equal = sum(example.clean == example.corrupted for example in examples)
    if n_equal:
        warn(
            f"in {n_equal:,} of the {len(examples):,} examples of {source}, the corrupted prompt is the clean one, so "
            "all scores are 0; give a corrupted prompt with another answer"
        )


def tokenize(pairs: Iterable[PromptPair], tokenizer: Any, bos: int | None, source: str) -> tuple[Example, ...]:
    """Return prompt pairs as tokens. Raise InputError with `source` and the numbers, from 1, of unusable pairs."""
    examples, problems = try_tokenize(dict(enumerate(pairs, start=1)), tokenizer, bos)
    check_rows(source, problems)
    return tuple(examples.values())


def try_tokenize(
    pairs: Mapping[int, PromptPair], tokenizer: Any, bos: int | None, span_names: tuple[str, ...] = ()
) -> tuple[dict[int, Example], dict[int, str]]:
    """Return the usable pairs as tokens, and what is wrong with the others, both by number.

    `span_names` has the names of the spans in their order; by default that of the first pair with spans.
    """
    encoded, unknown = _encode_pairs(list(pairs.values()), tokenizer, bos), unknown_token(tokenizer)
    names = span_names or next((name_spans(pair.spans) for pair in pairs.values() if pair.spans), ())
    offsets = _encode_offsets(list(pairs.values()), tokenizer, bos) if names else [((), ())] * len(pairs)
    examples, problems = {}, {}
    rows = zip(pairs, pairs.values(), encoded, offsets, strict=True)
    for number, pair, (clean, corrupted, answers), characters in rows:
        try:
            tokens = {text: _answer_tokens(text, pair, answers[text], tokenizer) for text in pair.answers}
            for text, several in tokens.items():
                if unknown in several:
                    raise InputError(f"the tokenizer doesn't know the answer {text!r}; choose another")
            if len(clean) != len(corrupted):
                raise InputError(_describe_lengths(clean, corrupted, tokenizer))
            indices = _span_indices(pair, names, *characters) if names else ()
            forced, rest = tokens[pair.correct][:-1], tokens[pair.correct][1:]
            example = Example(
                clean + forced,
                corrupted + forced,
                tokens[pair.correct][0],
                None if pair.incorrect is None else tokens[pair.incorrect][0],
                pair,
                tuple(dict.fromkeys(tokens[text][0] for text in pair.also_correct)),
                tuple(dict.fromkeys(tokens[text][0] for text in pair.also_incorrect)),
                rest,
                names,
                indices + indices[-1:] * len(forced),
            )
            for kind, text, prompt in (("clean", pair.clean, clean), ("corrupted", pair.corrupted, corrupted)):
                if _has_unknown(text, prompt, tokenizer, bos):
                    word = _first_unknown_word(text, tokenizer)
                    raise InputError(f"the tokenizer doesn't know {word} of the {kind} prompt; choose another")
            examples[number] = example
        except InputError as error:
            problems[number] = f"example {number}: {error}"
    return examples, problems


def _span_indices(
    pair: PromptPair, names: tuple[str, ...], clean: Sequence[tuple[int, int]], corrupted: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the span index of each token of a pair, given the characters of the tokens of its two prompts."""
    indices = assign_positions(pair.spans, names, clean, pair.clean)
    if pair.corrupted_spans:
        others = assign_positions(pair.corrupted_spans, names, corrupted, pair.corrupted)
        both = enumerate(zip(indices, others, strict=True))
        different = next((position for position, (index, other) in both if index != other), None)
        if different is not None:
            raise InputError(
                f"token {different} belongs to span {names[indices[different]]!r} in the clean prompt, but to "
                f"{names[others[different]]!r} in the corrupted one; spans need the same positions in both"
            )
    return indices


def _encode_offsets(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Return for each pair the characters [start, stop) of each token, BOS included, of its two prompts."""
    if not has_offsets(tokenizer):
        raise InputError(
            "spans need a tokenizer that reports the characters of each token (a fast one); use prompts without spans"
        )
    prefix = [] if bos is None else [(0, 0)]
    prompts = [text for pair in pairs for text in (pair.clean, pair.corrupted)]
    with wrap_read_errors("the text", "the tokenizer fails on it"):
        encoded = tokenizer(prompts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    offsets = [prefix + tokens for tokens in encoded]
    return list(zip(offsets[::2], offsets[1::2], strict=True))


def has_offsets(tokenizer: Any) -> bool:
    """Whether a tokenizer reports the characters of each token, which spans need."""
    return bool(getattr(tokenizer, "is_fast", False))


def _describe_lengths(clean: Sequence[int], corrupted: Sequence[int], tokenizer: Any) -> str:
    """Return what is wrong with prompts of unequal lengths: the tokens between their common start and end."""
    n_shorter = min(len(clean), len(corrupted))
    start = next((place for place in range(n_shorter) if clean[place] != corrupted[place]), n_shorter)
    common_end = range(1, n_shorter - start + 1)
    end = next((place - 1 for place in common_end if clean[-place] != corrupted[-place]), n_shorter - start)
    parts = ["|".join(tokenizer.decode([t]) for t in ids[start : len(ids) - end]) for ids in (clean, corrupted)]
    return (
        f"the clean prompt has {len(clean)} tokens, the corrupted one {len(corrupted)}: {parts[0]!r} against "
        f"{parts[1]!r} (| separates tokens); patching needs equally many: reword one of them"
    )


def tokenize_usable(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> tuple[tuple[Example, ...], Counter[str]]:
    """Return the usable pairs as tokens, and the number of the others by reason.

    For data sets that the user can't change.
    """
    examples: list[Example] = []
    dropped: Counter[str] = Counter()
    unknown = unknown_token(tokenizer)
    names = name_spans(pairs[0].spans) if pairs and has_offsets(tokenizer) and all(pair.spans for pair in pairs) else ()
    offsets = _encode_offsets(pairs, tokenizer, bos) if names else [((), ())] * len(pairs)
    rows = zip(pairs, _encode_pairs(pairs, tokenizer, bos), offsets, strict=True)
    for pair, (clean, corrupted, answers), characters in rows:
        correct, incorrect = (_answer_tokens(text, pair, answers[text], tokenizer)[0] for text in pair.answers)
        if len(clean) != len(corrupted):
            dropped["with prompts of unequal token length"] += 1
        elif correct == incorrect:
            dropped["with answers that begin with the same token"] += 1
        elif unknown in (correct, incorrect):
            dropped["with an answer that the tokenizer doesn't know"] += 1
        elif _has_unknown(pair.clean, clean, tokenizer, bos) or _has_unknown(pair.corrupted, corrupted, tokenizer, bos):
            dropped["with a prompt that the tokenizer doesn't know all of"] += 1
        else:
            indices = _span_indices(pair, names, *characters) if names else ()
            examples.append(Example(clean, corrupted, correct, incorrect, pair, span_names=names, span_indices=indices))
    return tuple(examples), dropped


def warn_of_skipped(source: str, problems: Mapping[int, str], n_rows: int) -> None:
    """Warn of rows that are left out: how many, and the first problem."""
    if problems:
        first = problems[min(problems)]
        warn(f"{len(problems):,} of the {n_rows:,} rows of {source} are left out; the first: {first}")


def check_rows(source: str, problems: Mapping[int, str], more: int = 0) -> None:
    """Raise InputError if rows of `source` can't be used. `more` counts problems that aren't listed."""
    if len(problems) + more == 1:
        raise InputError(f"{source}, {next(iter(problems.values()))}")
    if problems:
        causes: dict[str, list[tuple[int, str]]] = {}
        for number, problem in sorted(problems.items()):
            causes.setdefault(VARIABLE_TEXT.sub("", problem), []).append((number, problem))
        details = []
        for rows in sorted(causes.values(), key=len, reverse=True):
            details += [problem for _, problem in rows[:SHOWN_PER_CAUSE]]
            rest = ", ".join(str(number) for number, _ in rows[SHOWN_PER_CAUSE:MAX_DETAILS])
            if rest:
                dots = ", ..." * (len(rows) > MAX_DETAILS)
                details.append(f"and {len(rows) - SHOWN_PER_CAUSE:,} more with this problem: {rest}{dots}")
        raise InputError(f"{source}: {len(problems) + more:,} of its rows can't be used", details, more)


def answer_tokens(answer: str, tokenizer: Any) -> list[int]:
    """Return the tokens of an answer, without special tokens."""
    return _encode([answer], tokenizer)[0]


def tokens_after(prompt: str, answer: str, tokenizer: Any) -> list[int]:
    """Return the tokens that `answer` adds to those of `prompt`; [] if tokens merge where the two meet."""
    before, both = _encode([prompt, prompt + answer], tokenizer)
    return both[len(before) :] if both[: len(before)] == before else []


def next_token(prompt: str, answer: str, tokenizer: Any) -> int | None:
    """Return the token of `answer` after `prompt`; None if it is several, or differs from the answer's own token."""
    after, alone = tokens_after(prompt, answer, tokenizer), answer_tokens(answer, tokenizer)
    return after[0] if len(after) == 1 and (len(alone) != 1 or alone == after) else None


def single_tokens(words: Sequence[str], tokenizer: Any, task: str, least: int) -> tuple[str, ...]:
    """Return the words that are one token, with a leading space. Raise InputError if there are fewer than `least`."""
    unknown = unknown_token(tokenizer)
    encoded = zip(words, _encode([f" {word}" for word in words], tokenizer), strict=True)
    single = tuple(word for word, tokens in encoded if len(tokens) == 1 and tokens[0] != unknown)
    if len(single) < least:
        raise InputError(
            f"task {task!r} needs at least {least} words such as {words[0]!r} that are single tokens, but this "
            f"tokenizer has {len(single)}; use another model, or a task file (FILE.jsonl)"
        )
    return single


def unknown_token(tokenizer: Any) -> int | None:
    """Return the token for unknown text, if the tokenizer has one."""
    return getattr(tokenizer, "unk_token_id", None)


def _encode_pairs(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]]:
    """Return for each pair the tokens of its clean and its corrupted prompt, and the tokens of all answers."""
    prefix = () if bos is None else (bos,)
    clean = _encode([pair.clean for pair in pairs], tokenizer)
    corrupted = _encode([pair.corrupted for pair in pairs], tokenizer)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair.answers))
    answers = dict(zip(texts, _encode(texts, tokenizer), strict=True))  # pairs share few answers
    return [(prefix + tuple(a), prefix + tuple(b), answers) for a, b in zip(clean, corrupted, strict=True)]


def _has_unknown(text: str, tokens: Sequence[int], tokenizer: Any, bos: int | None) -> bool:
    """Whether a prompt has an unknown token, other than one that its text spells out."""
    prompt = tokens if bos is None else tokens[1:]
    return unknown_token(tokenizer) in prompt and str(getattr(tokenizer, "unk_token", None)) not in text


def _first_unknown_word(text: str, tokenizer: Any) -> str:
    """Return the first word that the tokenizer doesn't know, as part of a sentence."""
    words, unknown = text.split(), unknown_token(tokenizer)
    alone, after_space = _encode(words, tokenizer), _encode([f" {word}" for word in words], tokenizer)
    for word, tokens, others in zip(words, alone, after_space, strict=True):
        if unknown in tokens and unknown in others:
            return f"the word {word!r}"
    return "all"


def _encode(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    with wrap_read_errors("the text", "the tokenizer fails on it"):
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def _answer_tokens(answer: str, pair: PromptPair, tokens: Sequence[int], tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens of an answer after the clean prompt. Only a correct answer that is alone may have several."""
    if not tokens:
        raise InputError(f"the answer {answer!r} has no tokens")
    if len(tokens) == 1 or pair.first_token_decides:
        return (tokens[0],)
    # Llama's first tokenizers put a space before any text: "7" is two tokens alone, but one after "17".
    after = tokens_after(pair.clean, answer, tokenizer)
    if len(after) == 1:
        return (after[0],)
    if pair.answers == (answer,):
        return tuple(after or tokens)
    raise InputError(
        f"the answer {answer!r} is {len(tokens)} tokens for this tokenizer; an answer must be one token: choose "
        "another, and mind a leading space; several tokens need a correct answer alone, without incorrect ones"
    )
