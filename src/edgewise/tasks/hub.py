"""Data sets of the hub, or in a local folder, as tasks: `hub:NAME`, or `hub:NAME:CONFIG`, with a choice of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ..errors import InputError, warn
from .draw import SPLITS, TENTHS
from .files import TEXT, TOKENS, VALIDATION_NAMES, NumberedRows, task_of_rows
from .mib import Row, load_data_set
from .task import Task, TokenReader

PREFIX = "hub:"
COLUMNS = (*TEXT, *TOKENS, "spans")


def parse_columns(text: str) -> dict[str, str]:
    """Return the columns of `clean=prompt,corrupted=other.prompt`: name of a task's column -> field of the data set."""
    columns = {}
    for part in text.split(","):
        name, equals, field = (piece.strip() for piece in part.partition("="))
        if not equals or not field or name not in COLUMNS or name in columns:
            raise InputError(
                f"columns are such as clean=prompt,corrupted=other.prompt,correct=answer, each once, not {part!r}; "
                f"the names are {', '.join(COLUMNS)}"
            )
        columns[name] = field
    return columns


def read_hub(
    name: str, split: str, columns: Mapping[str, str], model: TokenReader, examples: int | None, skip_bad: bool
) -> Task:
    """Read the first rows of a split of a data set, without downloading the rest.

    name      `hub:NAME` or `hub:NAME:CONFIG`; NAME may be a folder
    split     'train', 'validation' or 'test'. One that the data set lacks is taken from train: two tenths of its rows,
              by number, which train then lacks
    columns   column of a task -> field of the data set. A dot leads into a nested field. Columns that aren't given have
              their own name
    examples  the largest number of rows to read; None for all
    """
    rows = dict(enumerate(islice(_rows(name.removeprefix(PREFIX), split, columns), examples), start=1))
    return task_of_rows(NumberedRows(rows), name, split, model, skip_bad=skip_bad)


def _rows(name: str, split: str, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    repository, _, config = name.partition(":")
    parts = load_data_set(name, repository, config or None, streaming=True)
    known = {"validation" if part in VALIDATION_NAMES else str(part): part for part in parts}
    missing = [each for each in SPLITS if each not in known]
    if split not in known and ("train" not in known or split not in SPLITS):
        raise InputError(f"{name} has no split {split!r}; its splits are {', '.join(map(str, parts))}")
    taken = {tenth for each in missing for tenth in TENTHS[each]}
    if missing and "train" in known and (split in missing or split == "train"):
        warn(f"{name} has no split {' and '.join(missing)}; two tenths of the rows of train are used for each of these")
    fields = {column: columns.get(column, column) for column in COLUMNS}
    for number, values in enumerate(parts[known[split if split in known else "train"]]):
        if (split not in known and number % 10 not in TENTHS[split]) or (split == "train" and number % 10 in taken):
            continue
        row = Row(values, f"{name}, row {number + 1}")
        yield {column: row.get(field) for column, field in fields.items() if column in columns or field in values}
