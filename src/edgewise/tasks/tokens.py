"""From the text of prompt pairs to tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError, warn
from ..io.reading import wrap_read_errors
from .checks import check_rows
from .spans import assign_positions, name_spans
from .task import Example, PromptPair, Task, check_distinct


class UnusableError(InputError):
    """Why a prompt pair can't be used with a tokenizer; `reason` is the same for all such pairs, to count them."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def tokenize(pairs: Iterable[PromptPair], tokenizer: Any, bos: int | None, source: str) -> tuple[Example, ...]:
    """Return prompt pairs as tokens. Raise InputError with `source` and the numbers, from 1, of unusable pairs."""
    examples, problems = try_tokenize(dict(enumerate(pairs, start=1)), tokenizer, bos)
    check_rows(source, {number: f"example {number}: {problem}" for number, problem in problems.items()})
    return tuple(examples.values())


def try_tokenize(
    pairs: Mapping[int, PromptPair], tokenizer: Any, bos: int | None, span_names: tuple[str, ...] = ()
) -> tuple[dict[int, Example], dict[int, InputError]]:
    """Return the usable pairs as tokens, and what is wrong with the others, both by number.

    `span_names` has the names of the spans in their order; by default that of the first pair with spans.
    """
    encoded, unknown = _encode_pairs(list(pairs.values()), tokenizer, bos), unknown_token(tokenizer)
    names = span_names or next((name_spans(pair.spans) for pair in pairs.values() if pair.spans), ())
    offsets = _encode_offsets(list(pairs.values()), tokenizer, bos) if names else [((), ())] * len(pairs)
    examples: dict[int, Example] = {}
    problems: dict[int, InputError] = {}
    rows = zip(pairs, pairs.values(), encoded, offsets, strict=True)
    for number, pair, (clean, corrupted, answers), characters in rows:
        try:
            tokens = {text: _answer_tokens(text, pair, answers[text], tokenizer) for text in pair.answers}
            for text, several in tokens.items():
                if unknown in several:
                    message = f"the tokenizer doesn't know the answer {text!r}; choose another"
                    raise UnusableError(message, "with an answer that the tokenizer doesn't know")
            if len(clean) != len(corrupted):
                message = _describe_lengths(clean, corrupted, tokenizer)
                raise UnusableError(message, "with prompts of unequal token length")
            correct, incorrect = tokens[pair.correct], tokens.get(pair.incorrect or "", ())
            also_correct, also_incorrect = (
                tuple(dict.fromkeys(tokens[text][0] for text in texts))
                for texts in (pair.also_correct, pair.also_incorrect)
            )
            try:
                check_distinct(
                    correct, incorrect, also_correct, also_incorrect, lambda t: f"{t} ({tokenizer.decode([t])!r})"
                )
            except InputError as error:
                raise UnusableError(str(error), "with answers that begin with the same token") from None
            indices = _span_indices(pair, names, *characters) if names else ()
            forced = correct[:-1] + incorrect[:-1]
            example = Example(
                clean=clean + forced,
                corrupted=corrupted + forced,
                correct=correct[0],
                incorrect=incorrect[0] if incorrect else None,
                text=pair,
                also_correct=also_correct,
                also_incorrect=also_incorrect,
                continuation=correct[1:],
                span_names=names,
                span_indices=indices + indices[-1:] * len(forced),
                other_continuation=incorrect[1:],
            )
            for kind, text, prompt in (("clean", pair.clean, clean), ("corrupted", pair.corrupted, corrupted)):
                is_unknown = unknown in (prompt if bos is None else prompt[1:])
                if is_unknown and str(getattr(tokenizer, "unk_token", None)) not in text:  # the text may spell it out
                    word = _first_unknown_word(text, tokenizer)
                    message = f"the tokenizer doesn't know {word} of the {kind} prompt; choose another"
                    raise UnusableError(message, "with a prompt that the tokenizer doesn't know all of")
            examples[number] = example
        except InputError as error:
            problems[number] = error
    return examples, problems


def warn_of_joined_words(task: Task, tokenizer: Any) -> None:
    """Warn if answers continue the last word of their prompt, but would be another token after a space."""
    pairs = [example.text for example in task.examples if example.text is not None]
    joined = {
        text: pair for pair in pairs if _has_case(pair.clean[-1:]) for text in pair.answers if _has_case(text[:1])
    }
    others = set()
    for text, pair in joined.items():
        without, with_space = (replace(pair, correct=answer) for answer in (text, f" {text}"))
        first, spaced = (row[2] for row in _encode_pairs([without, with_space], tokenizer, None))
        if first[text][:1] != spaced[f" {text}"][:1]:
            others.add(text)
    n_pairs = sum(_has_case(pair.clean[-1:]) and not others.isdisjoint(pair.answers) for pair in pairs)
    if n_pairs:
        text = next(text for text in joined if text in others)
        word = joined[text].clean.split()[-1]
        warn(
            f"in {n_pairs:,} of the {len(pairs):,} prompts of {task.name}, an answer without a leading space follows a "
            f"word: {word!r} and {text!r} read {word + text!r}; write {f' {text}'!r}"
        )


def _has_case(character: str) -> bool:
    """Whether a character is a letter of a script that puts spaces between words, such as Latin or Cyrillic."""
    return character.lower() != character.upper()


def answer_tokens(answer: str, tokenizer: Any) -> list[int]:
    """Return the tokens of an answer, without special tokens."""
    return _encode_answers([answer], tokenizer)[0]


def _encode_answers(answers: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Return the tokens of answers. Those that begin with a space are encoded after a word.

    Some tokenizers, such as that of Llama 2 in tokenizer.json, put a space before any text: " Mary" alone has two.
    """
    [before] = _encode(["a"], tokenizer)
    after_word = _encode([f"a{answer}" for answer in answers], tokenizer)
    return [
        joined[len(before) :] if answer[:1].isspace() and joined[: len(before)] == before else alone
        for answer, alone, joined in zip(answers, _encode(answers, tokenizer), after_word, strict=True)
    ]


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
    encoded = zip(words, _encode_answers([f" {word}" for word in words], tokenizer), strict=True)
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


def has_offsets(tokenizer: Any) -> bool:
    """Whether a tokenizer reports the characters of each token, which spans need."""
    return bool(getattr(tokenizer, "is_fast", False))


def _encode(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    with wrap_read_errors("the text", "the tokenizer fails on it"):
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def _encode_pairs(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]]:
    """Return for each pair the tokens of its clean and its corrupted prompt, and text -> tokens of its answers.

    Some tokenizers, such as Llama 2's, put a space before any text: "A" alone is the token of " A", but "(A" has
    another one. There, answers without a space are encoded after the last word of the clean prompt, unless tokens
    merge.
    """
    clean = _encode([pair.clean for pair in pairs], tokenizer)
    corrupted = _encode([pair.corrupted for pair in pairs], tokenizer)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair.answers))
    after_space = _encode_answers([f" {text}" for text in texts], tokenizer)
    encoded = zip(texts, _encode_answers(texts, tokenizer), after_space, strict=True)
    alone, needs_word = {}, set()  # pairs share few answers, and few last words
    for text, tokens, spaced in encoded:
        alone[text] = tokens
        if tokens and not text[:1].isspace() and tokens == spaced[-len(tokens) :]:
            needs_word.add(text)
    words = [pair.clean.rpartition(" ")[2] for pair in pairs]
    joined = {(word, t) for word, pair in zip(words, pairs, strict=True) for t in pair.answers if t in needs_word}
    keys = sorted(joined)
    before = _encode([word for word, _ in keys], tokenizer)
    both = _encode([word + text for word, text in keys], tokenizer)
    after = {key: b[len(a) :] for key, a, b in zip(keys, before, both, strict=True) if b[: len(a)] == a}
    rows = zip(pairs, words, clean, corrupted, strict=True)
    return [
        (_with_bos(a, bos), _with_bos(b, bos), {t: after.get((word, t)) or alone[t] for t in pair.answers})
        for pair, word, a, b in rows
    ]


def _with_bos(tokens: Sequence[int], bos: int | None) -> tuple[int, ...]:
    """Return the tokens of a prompt with the BOS token before them, unless its text begins with that token."""
    return tuple(tokens) if bos is None or tokens[:1] == [bos] else (bos, *tokens)


def _encode_offsets(
    pairs: Sequence[PromptPair], tokenizer: Any, bos: int | None
) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Return for each pair the characters [start, stop) of each token, BOS included, of its two prompts."""
    if not has_offsets(tokenizer):
        raise InputError(
            "spans need a tokenizer that reports the characters of each token (a fast one); use prompts without spans"
        )
    prompts = [text for pair in pairs for text in (pair.clean, pair.corrupted)]
    with wrap_read_errors("the text", "the tokenizer fails on it"):
        encoded = tokenizer(prompts, add_special_tokens=False, return_offsets_mapping=True)
    listed = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    offsets = [[(0, 0)] * (len(_with_bos(tokens, bos)) - len(tokens)) + places for tokens, places in listed]
    return list(zip(offsets[::2], offsets[1::2], strict=True))


def _answer_tokens(answer: str, pair: PromptPair, tokens: Sequence[int], tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens of an answer after the clean prompt. Answers of sets must have one."""
    if not tokens:
        raise InputError(f"the answer {answer!r} has no tokens")
    if len(tokens) == 1 or pair.first_token_decides:
        return (tokens[0],)
    after = tokens_after(pair.clean, answer, tokenizer) or tokens
    if len(after) == 1:
        return (after[0],)
    if not pair.also_correct and not pair.also_incorrect:
        return tuple(after)
    raise InputError(
        f"the answer {answer!r} is {len(tokens)} tokens for this tokenizer; each answer of a set must be one token: "
        "choose another, and mind a leading space; or give one correct and at most one incorrect answer"
    )


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


def _first_unknown_word(text: str, tokenizer: Any) -> str:
    """Return the first word that the tokenizer doesn't know, as part of a sentence."""
    words, unknown = text.split(), unknown_token(tokenizer)
    alone, after_space = _encode(words, tokenizer), _encode([f" {word}" for word in words], tokenizer)
    for word, tokens, others in zip(words, alone, after_space, strict=True):
        if unknown in tokens and unknown in others:
            return f"the word {word!r}"
    return "all"
