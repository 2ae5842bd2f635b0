"""Spans: named groups of token positions, through which positions of different prompts correspond.

A prompt pair names spans by characters of its clean prompt. `assign_positions` turns them into token positions once the
prompt is tokenised: a token belongs to the span whose characters it contains, and to the span `other` if it contains
none. A pair has one such assignment for both prompts, because patching works position by position.

In task files, spans are a column, or markers in the prompts: "When <<S1:Mary>> and <<IO:John>> went". A span can have
several parts: markers of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from ..io.records import parse_json

OTHER, END = "other", "end"
NAME = r"[A-Za-z][A-Za-z0-9_ -]{0,39}"
MARKER = re.compile(rf"<<({NAME}):(.*?)>>", re.DOTALL)
OPENING = re.compile(rf"<<{NAME}:")


class CharacterSpan(NamedTuple):
    """A part of a span: characters `start` up to, not including, `stop` of a prompt."""

    name: str
    start: int
    stop: int


def mark(name: str, text: str) -> str:
    """Return text with the marker of a span around it."""
    return f"<<{name}:{text}>>"


def read_markers(text: str) -> tuple[str, tuple[CharacterSpan, ...]]:
    """Return a text without its markers, and the spans that they mark.

    Raise InputError if a marker isn't closed, or is inside another.
    """
    plain, spans, end = "", [], 0
    for match in MARKER.finditer(text):
        plain += text[end : match.start()]
        spans.append(CharacterSpan(match[1], len(plain), len(plain) + len(match[2])))
        plain += match[2]
        end = match.end()
    plain += text[end:]
    opening = OPENING.search(plain)
    if opening:
        raise InputError(
            f"the marker {opening[0]!r} isn't closed by '>>', or is inside another; if it is no marker, give the row "
            'the column spans: {"name": [start, stop]}, or {} for no spans'
        )
    return plain, tuple(spans)


def end_span(text: str) -> CharacterSpan:
    """Return the span of the last token of a prompt."""
    return CharacterSpan(END, len(text) - 1, len(text))


def parse_spans(value: Any, text: str | None) -> tuple[CharacterSpan, ...]:
    """Return the spans of a column: a mapping of names to a part of the text, or to [start, stop).

    value  the mapping, or its JSON text, as in a cell of a CSV file
    text   the clean prompt; None if the prompt is tokens: [start, stop) are then token positions
    """
    if isinstance(value, str):
        try:
            value = parse_json(value) if value.strip() else {}
        except (ValueError, RecursionError):
            value = None
    expected = '{"S1": "Mary", "end": [55, 57]}: names with a part of the clean prompt, or with its start and stop'
    if not isinstance(value, Mapping):
        raise InputError(f"spans must be a mapping such as {expected}")
    spans = []
    for name, part in value.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise InputError(f"the span name {name!r} isn't a letter, then up to 39 letters, digits, spaces, _ or -")
        if isinstance(part, str) and text is not None:
            count = text.count(part) if part else 0
            if count != 1:
                raise InputError(
                    f"span {name!r}: {part!r} occurs {count} times in the clean prompt; give [start, stop] "
                    "in characters"
                )
            part = (text.index(part), text.index(part) + len(part))
        is_range = isinstance(part, Sequence) and len(part) == 2 and all(type(number) is int for number in part)
        if not is_range:
            raise InputError(f"span {name!r} is {part!r}, but spans are such as {expected}")
        spans.append(CharacterSpan(name, *part))
    return tuple(spans)


def name_spans(spans: Iterable[CharacterSpan]) -> tuple[str, ...]:
    """Return the distinct names of spans in their order, `other` last; () without spans."""
    names = dict.fromkeys(span.name for span in spans if span.name != OTHER)
    return (*names, OTHER) if names else ()


def assign_positions(
    spans: Sequence[CharacterSpan], names: Sequence[str], offsets: Sequence[tuple[int, int]], text: str | None
) -> tuple[int, ...]:
    """Return for each token the index in `names` of the span that it belongs to.

    spans    the spans of one prompt
    names    the names of all spans of the task; `other` is among them
    offsets  for each token its first character and the one after its last; (0, 0) for tokens such as BOS
    text     the prompt; None if it is tokens. White space at the ends of a span doesn't count: tokenizers attach it to
             either side

    Raise InputError if the spans have other names, one lies outside the prompt or has no token, or two share a token.
    """
    own = name_spans(spans)
    if set(own) != set(names):
        raise InputError(
            f"the prompt has the spans {', '.join(own[:-1]) or 'none'!r}, others have {', '.join(names[:-1])!r}; give "
            "every prompt the same spans"
        )
    end = max((stop for _, stop in offsets), default=0) if text is None else len(text)
    owner: dict[int, str] = {}
    for span in spans:
        if not 0 <= span.start < span.stop <= end:
            unit = "tokens" if text is None else "characters"
            raise InputError(
                f"span {span.name!r} has {unit} {span.start} to {span.stop}, but the clean prompt has {end}; a span "
                "needs a start, and a larger stop"
            )
        start, stop = span.start, span.stop
        if text is not None and text[start:stop].strip():
            start += len(text[start:stop]) - len(text[start:stop].lstrip())
            stop = start + len(text[start:stop].rstrip())
        positions = [at for at, (first, last) in enumerate(offsets) if first < stop and last > start]
        if not positions:
            raise InputError(f"span {span.name!r} has no token")
        for position in positions:
            if owner.setdefault(position, span.name) != span.name:
                raise InputError(
                    f"the spans {owner[position]!r} and {span.name!r} overlap at token {position}; a token belongs "
                    "to one span"
                )
    return tuple(names.index(owner.get(position, OTHER)) for position in range(len(offsets)))
