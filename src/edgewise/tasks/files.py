"""Prompt pairs of one's own: a .jsonl or .csv file with text, or with ready tokens."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from .task import Example, PromptPair, Reader, Task, tokenize

TEXT = ("clean", "corrupted", "correct", "incorrect")
TOKENS = ("clean_ids", "corrupted_ids", "correct_id", "incorrect_id")


def read_task(path: Path, split: str | None, model: Reader) -> Task:
    """Read a file whose rows have the columns of `TEXT`, or those of `TOKENS` (used as they are, without BOS).

    Rows may have a `split` column; without one the file is used whole, whatever split is asked for.
    """
    # Numbered before any is left out, so that errors name the row that the user sees.
    rows = dict(enumerate(read_rows(path), start=1))
    if split is not None and any("split" in row for row in rows.values()):
        without = next((number for number, row in rows.items() if not row.get("split")), None)
        if without is not None:
            raise InputError(f"{path}, example {without} has no split, but others have; give every row one, or none")
        known = sorted({str(row["split"]) for row in rows.values()})
        rows = {number: row for number, row in rows.items() if row.get("split") == split}
        if not rows:
            raise InputError(f"{path} has no rows of split {split!r}; its splits are: {', '.join(known)}")
    return replace(task_of_rows(rows, str(path), split or "all", model), name=path.stem)


def task_of_rows(rows: Mapping[int, Mapping[str, Any] | PromptPair], source: str, split: str, model: Reader) -> Task:
    """The task of numbered rows of one kind, text or tokens; errors name their `source`."""
    if not rows:
        raise InputError(f"{source} has no rows")
    first = next(iter(rows.values()))
    if isinstance(first, Mapping) and all(column in first for column in TOKENS):
        examples = tuple(_from_tokens(row, f"{source}, example {n}", model.vocabulary) for n, row in rows.items())
    else:
        pairs = [_pair(row, f"{source}, example {n}") for n, row in rows.items()]
        if model.tokenizer is None:
            raise InputError(f"{source} holds text, but this model has no tokenizer; give tokens: {', '.join(TOKENS)}")
        examples = tokenize(pairs, model.tokenizer, model.bos, source, rows)
    return Task(source, split, examples)


def has_splits(path: Path) -> bool:
    """Whether any row of a file says which split it is of."""
    return any("split" in row for row in read_rows(path))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file, or of a file with one JSON object a line."""
    if not path.is_file():
        raise InputError(f"there is no task file {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} isn't UTF-8 text: {error}") from None
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(path, text)
        return
    # Only a line feed ends a row: text inside it may hold other marks that Python would take for line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} isn't JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number} must be a JSON object, not {type(row).__name__}")
        yield row


def _csv_rows(path: Path, text: str) -> Iterator[dict[str, Any]]:
    # Not line by line: a quoted cell may hold a prompt of several lines.
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for number, row in enumerate(reader, start=1):
            if None in row:
                raise InputError(
                    f"{path}, example {number} has more cells than the header; put text that holds a comma in quotes"
                )
            yield row
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num + 1} isn't CSV: {error}") from None


def _pair(row: Any, where: str) -> PromptPair:
    """A row of text as a prompt pair; one that is a pair already is checked like any other."""
    if isinstance(row, PromptPair):
        _columns(vars(row), TEXT, str, where)
        return row
    return PromptPair(*_columns(row, TEXT, str, where))


def _columns(row: Any, columns: tuple[str, ...], kind: type, where: str) -> list[Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} must be a prompt pair or a mapping of columns, not {type(row).__name__}")
    values = [row.get(column) for column in columns]
    missing = [column for column, value in zip(columns, values, strict=True) if value is None]
    if missing:
        raise InputError(
            f"{where} lacks {', '.join(missing)}; a row needs {', '.join(TEXT)} as text, or {', '.join(TOKENS)}"
        )
    wrong = [column for column, value in zip(columns, values, strict=True) if not isinstance(value, kind)]
    if wrong:
        raise InputError(f"{where}: {', '.join(wrong)} must be text; tokens go into {', '.join(TOKENS)}")
    for column, value in zip(columns, values, strict=True):
        if isinstance(value, str) and any("\ud800" <= mark <= "\udfff" for mark in value):
            raise InputError(f"{where}: {column} holds half of a character (a lone surrogate)")
    return values


def _from_tokens(row: Any, where: str, vocabulary: int) -> Example:
    clean, corrupted, correct, incorrect = _columns(row, TOKENS, object, where)
    try:
        right, wrong = _ids([correct, incorrect])
        example = Example(_ids(clean), _ids(corrupted), right, wrong)
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from None
    strange = [
        i for i in (*example.clean, *example.corrupted, example.correct, example.incorrect) if not 0 <= i < vocabulary
    ]
    if strange:
        raise InputError(f"{where}: token {strange[0]} is outside the model's vocabulary of {vocabulary}")
    return example


def _ids(value: Any) -> tuple[int, ...]:
    """Token ids from a JSON list, or from the text of one in a CSV cell ("[1, 2]" or "1 2")."""
    if isinstance(value, str):
        value = value.replace(",", " ").strip("[] ").split()
    ids = tuple(int(i) for i in value)
    if any(isinstance(i, float) and i != int(i) for i in value):
        raise InputError(f"token ids must be whole numbers, not {value}")
    return ids
