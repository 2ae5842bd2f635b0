"""Prompt pairs of one's own: a .jsonl or .csv file with text, or with ready tokens."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import index
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeVar

from ..errors import MAX_DETAILS, InputError
from ..io.reading import file_size, first_line, wrap_read_errors
from ..io.records import parse_json
from .task import Example, PromptPair, Reader, Task, refuse_rows, try_tokenize

TEXT = ("clean", "corrupted", "correct", "incorrect")
TOKENS = ("clean_ids", "corrupted_ids", "correct_id", "incorrect_id")
NUMBER = "[0-9]{1,18}"
NUMBERS = f" *{NUMBER}(?:(?: +| *, *){NUMBER})* *"
LARGEST = 1 << 30
Read = TypeVar("Read")


def read_task(path: Path, split: str | None, model: Reader) -> Task:
    """Read a file whose rows have the columns of `TEXT`, or those of `TOKENS` (used as they are, without BOS).

    Rows may have a `split` column; without one the file is used whole, whatever split is asked for.
    """
    # Numbered before any is left out, so that errors name the row that the user sees.
    rows = dict(enumerate(read_rows(path), start=1))
    if split is not None and any("split" in row for row in rows.values()):
        without = [number for number, row in rows.items() if not row.get("split") or not isinstance(row["split"], str)]
        advice = "has no split, but others have; give every row one, or none"
        refuse_rows(str(path), {number: f"example {number} {advice}" for number in without})
        known = sorted({row["split"] for row in rows.values()})
        rows = {number: row for number, row in rows.items() if row["split"] == split}
        if not rows:
            raise InputError(f"{path} has no rows of split {split!r}; its splits are: {', '.join(known)}")
    found = task_of_rows(rows, str(path), split or "all", model, of_cells=path.suffix.lower() == ".csv")
    return replace(found, name=path.stem)


def task_of_rows(
    rows: Mapping[int, Mapping[str, Any] | PromptPair], source: str, split: str, model: Reader, of_cells: bool = False
) -> Task:
    """The task of numbered rows of one kind, text or tokens; errors name their `source`.

    Tokens are whole numbers, or the text of some if the rows are `of_cells` of a CSV file.
    """
    if not rows:
        raise InputError(f"{source} has no rows")
    first = next(iter(rows.values()))
    if isinstance(first, Mapping) and all(column in first for column in TOKENS):
        examples, problems = _each(rows, lambda row: _from_tokens(row, model.vocabulary, of_cells))
    else:
        if model.tokenizer is None:
            raise InputError(f"{source} holds text, but this model has no tokenizer; give tokens: {', '.join(TOKENS)}")
        pairs, problems = _each(rows, _pair)
        examples, more = try_tokenize(pairs, model.tokenizer, model.bos)
        problems |= more
    refuse_rows(source, problems)
    return Task(source, split, tuple(examples.values()))


def _each(rows: Mapping[int, Any], read: Callable[[Any], Read]) -> tuple[dict[int, Read], dict[int, str]]:
    """By their numbers, what was read of rows, and what is wrong with the others."""
    found, problems = {}, {}
    for number, row in rows.items():
        try:
            found[number] = read(row)
        except InputError as error:
            problems[number] = f"example {number}{error}"
    return found, problems


def has_splits(path: Path, split: str | None = None) -> bool:
    """Whether any row of a file says which split it is of, or is of that one."""
    return any("split" in row and split in (None, row["split"]) for row in read_rows(path))


def count_copies(path: Path) -> tuple[int, int]:
    """How many rows of a file repeat an earlier one, all columns alike, and how many there are."""
    rows = [json.dumps(row, sort_keys=True) for row in read_rows(path)]
    return len(rows) - len(set(rows)), len(rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, or of a file with one JSON object a line; strictly, and never from a pipe or device."""
    file_size(path, LARGEST)
    with wrap_read_errors(path):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} isn't UTF-8 text: {error}") from None
    if "\0" in text:
        raise InputError(f"{path} isn't text: it holds a NUL byte")
    return _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)


def _json_rows(path: Path, text: str) -> list[dict[str, Any]]:
    rows, more = [], 0
    problems: dict[int, str] = {}
    # Only a line feed ends a row: text inside it may hold other marks that Python would take for line ends.
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            if isinstance(row, dict):
                rows.append(row)
                continue
            words = f"line {number} must be a JSON object, not {type(row).__name__}"
        except (ValueError, RecursionError) as error:
            words = f"line {number} isn't JSON: {first_line(error)}"
        # Of a file that is no task at all, not every line is worth its memory.
        if len(problems) < MAX_DETAILS:
            problems[number] = words
        else:
            more += 1
    refuse_rows(str(path), problems, more)
    return rows


def _csv_rows(path: Path, text: str) -> list[dict[str, Any]]:
    # Not line by line: a quoted cell may hold a prompt of several lines.
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = reader.fieldnames or []
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise InputError(f"{path} has the column {twice!r} twice")
        if names and not set(TEXT) <= set(names) and not set(TOKENS) <= set(names):
            lacking = ", ".join(name for name in TEXT if name not in names)
            raise InputError(
                f"{path} lacks the columns {lacking}; it needs {', '.join(TEXT)} as text, or {', '.join(TOKENS)}"
            )
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num + 1} isn't CSV: {error}") from None
    advice = "has more cells than the header; put text that holds a comma in quotes"
    long = [number for number, row in enumerate(rows, start=1) if None in row]
    refuse_rows(str(path), {number: f"example {number} {advice}" for number in long})
    return rows


def _pair(row: Any) -> PromptPair:
    """A row of text as a prompt pair; one that is a pair already is checked like any other."""
    if isinstance(row, PromptPair):
        _columns(vars(row), TEXT, str)
        return row
    return PromptPair(*_columns(row, TEXT, str))


def _columns(row: Any, columns: tuple[str, ...], kind: type) -> list[Any]:
    """The values of columns; errors go on from the row's number."""
    if not isinstance(row, Mapping):
        raise InputError(f" must be a prompt pair or a mapping of columns, not {type(row).__name__}")
    values = [row.get(column) for column in columns]
    missing = [column for column, value in zip(columns, values, strict=True) if value is None]
    if missing:
        raise InputError(f" lacks {', '.join(missing)}; a row needs {', '.join(TEXT)} as text, or {', '.join(TOKENS)}")
    wrong = [column for column, value in zip(columns, values, strict=True) if not isinstance(value, kind)]
    if wrong:
        raise InputError(f": {', '.join(wrong)} must be text; tokens go into {', '.join(TOKENS)}")
    for column, value in zip(columns, values, strict=True):
        if isinstance(value, str) and has_surrogate(value):
            raise InputError(f": {column} holds half of a character (a lone surrogate)")
    return values


def has_surrogate(text: str) -> bool:
    """Whether a text holds half of a character, which no tokenizer takes."""
    return any("\ud800" <= mark <= "\udfff" for mark in text)


def _from_tokens(row: Any, vocabulary: int, of_cells: bool) -> Example:
    values = _columns(row, TOKENS, object)
    try:
        if of_cells:
            values = [_cell(value, column) for column, value in zip(TOKENS, values, strict=True)]
        clean, corrupted, correct, incorrect = values
        right, wrong = _id(correct), _id(incorrect)
        example = Example(_ids(clean), _ids(corrupted), right, wrong)
    except InputError as error:
        raise InputError(f": {error}") from None
    strange = [
        i for i in (*example.clean, *example.corrupted, example.correct, example.incorrect) if not 0 <= i < vocabulary
    ]
    if strange:
        raise InputError(f": token {strange[0]} is outside the model's vocabulary of {vocabulary}")
    return example


def _cell(text: str, column: str) -> list[int] | int:
    """The token ids of a CSV cell: "[1, 2]" or "1 2", or a single one."""
    if column.endswith("_id") and re.fullmatch(NUMBER, text.strip(" ")):
        return int(text)
    listed = re.fullmatch(rf"\[({NUMBERS})?\]|({NUMBERS})?", text.strip(" "))
    if column.endswith("_id") or not listed:
        raise InputError(f"{column} must be token ids in plain digits, not {short(text)}")
    return [int(number) for number in re.findall(NUMBER, text)]


def _ids(value: Any) -> tuple[int, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"token ids must be a list of whole numbers, not {short(value)}")
    return tuple(map(_id, value))


def _id(value: Any) -> int:
    """A whole number of any kind, also of an array; no truth values, texts or fractions."""
    try:
        if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise TypeError
        return index(value)
    except TypeError:
        raise InputError(f"token ids must be whole numbers, not {short(value)}") from None
