"""A large JSON object, a part at a time, so that it is never in memory whole.

It only knows how such files are written. What it can't follow it leaves to a reader of whole files, which says what is
wrong, or reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .reading import parse_json, strict_decoder

CHARACTERS = 2**19
SPACE = re.compile(r"[ \t\n\r]*")
# Behind a member that is an object: another one, or the end.
GOES_ON, ENDS = re.compile(r"\}[ \t\n\r]*,"), re.compile(r"\}[ \t\n\r]*\}")


class NotInOrderError(Exception):
    """A file isn't written as expected, and must be read whole."""


def json_parts(path: Path, large: str) -> Iterator[tuple[str, Any]]:
    """The members of the object in a JSON file, (key, value), as its standard has it, every key once.

    The member `large`, an object of objects, comes in pieces, at least one: (large, some of its members), each once
    within a piece. NaN and infinite numbers are let through.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield from _parts(_Text(file), large)
    except (ValueError, RecursionError):
        raise NotInOrderError from None


def _parts(text: _Text, large: str) -> Iterator[tuple[str, Any]]:
    keys = set()
    text.take("{")
    while True:
        key = text.value()
        text.take(":")
        if not isinstance(key, str) or key in keys:
            raise ValueError(key)
        keys.add(key)
        if key == large:
            for piece in text.pieces():
                yield key, piece
        else:
            value = text.value()
            json.dumps((key, value), ensure_ascii=False).encode("utf-8")  # fails for half a character
            yield key, value
        if text.next() != ",":
            break
        text.take(",")
    text.take("}")
    if text.next():
        raise ValueError("more behind its end")


class _Text:
    """A file's text from a place on that moves forward; what lies behind it is let go."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.held, self.place = file, "", 0

    def more(self) -> bool:
        """Read on, the further the more is held: what is tried again is tried few times."""
        rest = self.held[self.place :]
        added = self.file.read(max(CHARACTERS, len(rest)))
        self.held, self.place = rest + added, 0
        return bool(added)

    def next(self) -> str:
        """The next character that isn't white space; nothing at the end."""
        while True:
            found = SPACE.match(self.held, self.place)
            self.place = found.end() if found else self.place
            if self.place < len(self.held):
                return self.held[self.place]
            if not self.more():
                return ""

    def take(self, wanted: str) -> None:
        """Pass a character."""
        if self.next() != wanted:
            raise ValueError(f"no {wanted}")
        self.place += 1

    def value(self) -> Any:
        """Pass a value, and give it."""
        self.next()
        while True:
            try:
                found, end = DECODER.raw_decode(self.held, self.place)
                if end < len(self.held):  # else it may go on
                    self.place = end
                    return found
            except json.JSONDecodeError:
                pass
            if not self.more():
                raise ValueError("no value")

    def pieces(self) -> Iterator[dict[str, Any]]:
        """Pass an object of objects, and give its members, some at a time.

        A piece ends behind a brace and a comma. Were that within a text or a deeper object, the piece would be no JSON.
        """
        self.take("{")
        if self.next() == "}":
            self.place += 1
            yield {}
            return
        while True:
            last = ENDS.search(self.held, self.place)
            end = last or self._last_member()
            if end is not None:
                yield parse_json(f"{{{self.held[self.place : end.start() + 1]}}}", finite=False)
                self.place = end.end()
            if last is not None:
                return
            if not self.more():
                raise ValueError("no end")

    def _last_member(self) -> re.Match[str] | None:
        """Where the last member ends that is held whole, with another one behind it."""
        brace = len(self.held)
        while (brace := self.held.rfind("}", self.place, brace)) >= 0:
            if found := GOES_ON.match(self.held, brace):
                return found
        return None


DECODER = strict_decoder(finite=False)
