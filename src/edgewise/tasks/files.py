"""Task files: .jsonl, .json or .csv files of prompt pairs, as text or as tokens."""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from reprlib import repr as short
from typing import Any

from ..errors import MAX_DETAILS, InputError, did_you_mean, warn
from ..io.reading import file_size, first_line, wrap_read_errors
from ..io.records import parse_json
from .checks import check_rows, describe_misfit, warn_of_examples, warn_of_skipped
from .spans import assign_positions, name_spans, parse_spans, read_markers
from .task import Example, PromptPair, Task, TokenReader
from .tokens import try_tokenize

TEXT = ("clean", "corrupted", "correct", "incorrect")
TOKENS = ("clean_ids", "corrupted_ids", "correct_id", "incorrect_id")
COLUMNS = {*TEXT, *TOKENS, "spans", "split"}
# The last column of TEXT and of TOKENS may be missing in all rows.
N_REQUIRED = 3
NUMBER = "[0-9]{1,18}"
NUMBERS = f" *{NUMBER}(?:(?: +| *, *){NUMBER})* *"
LARGEST_FILE = 1 << 30
SUFFIXES = (".jsonl", ".json", ".csv")
COLUMNS_ADVICE = "columns={'clean': 'NAME', ...} says which columns of the file these are"
# Other names of the split validation.
VALIDATION_NAMES = ("val", "valid", "dev")


@dataclass(frozen=True)
class NumberedRows:
    """The rows of a task by number, from 1, and what is wrong with others. `more` counts problems that aren't listed.

    Rows are numbered before any is left out, so that errors have the numbers that the user sees.
    """

    rows: Mapping[int, Any]
    problems: Mapping[int, str] = field(default_factory=dict)
    more: int = 0


def read_task(
    path: Path,
    split: str | None,
    model: TokenReader,
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Task:
    """Read a file whose rows have the columns of `TEXT`, or those of `TOKENS` (used as they are, without BOS).

    Rows may have a `spans` column, or prompts with markers (see spans.py).
    They may have a `split` column; val, valid and dev are other names of validation. Without the column, all rows are
    used for every split. `columns` names other columns of the file: column of a task -> column of the file.
    """
    parsed = parse_file(path, columns)
    rows, problems = parsed.rows, parsed.problems
    span_names = _span_names(next(iter(rows.values()), {}))  # of the first row of the file, so all splits agree
    has_column = any("split" in row for row in rows.values())
    if split is not None and has_column:
        without = [number for number, row in rows.items() if not row.get("split") or not isinstance(row["split"], str)]
        advice = "has no split, but others have; give every row one, or none"
        problems = dict(problems) | {number: f"example {number} {advice}" for number in without}
        rows = {number: row for number, row in rows.items() if number not in problems}
    if not skip_bad or not rows:
        check_rows(str(path), problems, parsed.more, can_skip=bool(rows))
    if split is not None and has_column:
        known = sorted({row["split"] for row in rows.values()})
        rows = {number: row for number, row in rows.items() if _has_split(row, split)}
        if not rows:
            raise InputError(
                f"{path} has no rows of split {split!r}; its splits are: {', '.join(known)}; add such rows, or remove "
                "the column to use all rows for every split"
            )
    is_csv = path.suffix.lower() == ".csv"
    numbered = NumberedRows(rows, problems, parsed.more)
    task = task_of_rows(numbered, str(path), split or "all", model, is_csv, span_names, skip_bad)
    return replace(task, name=path.stem)


def task_of_rows(
    numbered: NumberedRows,
    source: str,
    split: str,
    model: TokenReader,
    is_csv: bool = False,
    span_names: tuple[str, ...] = (),
    skip_bad: bool = False,
) -> Task:
    """Return the task of rows, which are mappings or prompt pairs, all text or all tokens. Errors name their `source`.

    `span_names` has the names of the spans in their order; by default that of the first row. With `skip_bad`, rows that
    can't be used, or that are too long for the model, are left out with a warning and counted in `Task.dropped`.
    """
    rows = numbered.rows
    if not rows:
        raise InputError(f"{source} has no rows")
    first = next(iter(rows.values()))
    has_tokens = isinstance(first, Mapping) and all(column in first for column in TOKENS[:N_REQUIRED])
    columns: tuple[str, ...] = TOKENS if has_tokens else TEXT
    if not any(
        row.incorrect is not None if isinstance(row, PromptPair) else isinstance(row, Mapping) and columns[-1] in row
        for row in rows.values()
    ):
        if isinstance(first, Mapping) and all(first.get(column) is not None for column in columns[:N_REQUIRED]):
            _check_unused(source, first, columns[-1])
        columns = columns[:N_REQUIRED]
    if not has_tokens and model.tokenizer is None:
        raise InputError(f"{source} holds text, but this model has no tokenizer; give tokens: {', '.join(TOKENS)}")
    examples: dict[int, Example] = {}
    pairs: dict[int, PromptPair] = {}
    problems = dict(numbered.problems)
    span_names = span_names or _span_names(first)
    for number, row in rows.items():
        try:
            if has_tokens:
                examples[number] = _parse_tokens(row, columns, is_csv, span_names)
            else:
                pairs[number] = _parse_text(row, columns, is_csv)
        except InputError as error:
            problems[number] = f"example {number}{error}"
    if not has_tokens:
        examples, unusable = try_tokenize(pairs, model.tokenizer, model.bos, span_names)
        problems |= {number: f"example {number}: {problem}" for number, problem in unusable.items()}
    for number, example in examples.items():
        if misfit := describe_misfit(example, model):
            problems[number] = f"example {number}{misfit}"
    dropped: tuple[tuple[str, int], ...] = ()
    examples = {number: example for number, example in examples.items() if number not in problems}
    if skip_bad and problems:
        dropped = (("that can't be used", len(problems) + numbered.more),)
        warn_of_skipped(source, problems, numbered.more, len(rows) + len(numbered.problems) + numbered.more)
    if not skip_bad or not examples:
        check_rows(source, problems, numbered.more, can_skip=bool(examples))
    task = Task(source, split, tuple(examples.values()), dropped)
    warn_of_examples(task)
    return task


def has_splits(path: Path, split: str | None = None, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a file has rows with a split, or rows of that split. Rows that can't be read don't count."""
    rows = parse_file(path, columns).rows.values()
    return any("split" in row and (split is None or _has_split(row, split)) for row in rows)


def _has_split(row: Mapping[str, Any], split: str) -> bool:
    value = str(row["split"]).strip().lower()
    return value == split.lower() or (split == "validation" and value in VALIDATION_NAMES)


def count_copies(path: Path, columns: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return how many rows of a file repeat an earlier one in all columns, and the number of rows."""
    rows = [json.dumps(row, sort_keys=True) for row in parse_file(path, columns).rows.values()]
    return len(rows) - len(set(rows)), len(rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file. Raise InputError if one can't be read."""
    parsed = parse_file(path)
    check_rows(str(path), parsed.problems, parsed.more)
    return list(parsed.rows.values())


def parse_file(path: Path, columns: Mapping[str, str] | None = None) -> NumberedRows:
    """Return the rows of a CSV file, of a .json file with an array, or of a file with one JSON object per line.

    Column names are in lower case, and those of a task where `columns` says so. Never read a pipe or a device.
    """
    file_size(path, LARGEST_FILE)
    with wrap_read_errors(path):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} isn't UTF-8 text: {error}; save it as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{path} isn't text: it holds a NUL byte")
    if path.suffix.lower() == ".csv":
        return _csv_rows(path, text, columns or {})
    values = _json_lines(text)
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        try:
            items = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} isn't JSON: {first_line(error)}") from None
        values = ((f"row {number}", item) for number, item in enumerate(items, start=1))
    rows, more = {}, 0
    problems: dict[int, str] = {}
    first_names: list[str] = []
    for number, (place, value) in enumerate(values, start=1):
        if isinstance(value, dict):
            first_names = first_names or list(value)
            rows[number] = name_columns(value if columns is None else rename_columns(value, columns))
        elif len(problems) == MAX_DETAILS:  # a large file that is no task must not fill the memory with problems
            more += 1
        elif isinstance(value, Exception):
            problems[number] = f"{place} isn't JSON: {first_line(value)}"
        else:
            advice = "; an array needs a file named .json" if isinstance(value, list) else ""
            problems[number] = f"{place} must be a JSON object, not {type(value).__name__}{advice}"
    if columns and rows:
        for column, name in columns.items():
            if not any(column in row for row in rows.values()):
                raise _lacks_field(path, name, first_names)
    return NumberedRows(rows, problems, more)


def rename_columns(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with the columns of a task; `columns` has the field of each. A dot leads into a nested field."""
    renamed = {}
    for column, name in columns.items():
        with suppress(KeyError):
            renamed[column] = descend(row, name)
    return {name: value for name, value in row.items() if name not in {*columns, *columns.values()}} | renamed


def descend(values: Mapping[str, Any], field: str) -> Any:
    """Return the value of a dotted field, whose levels may be nested. None if a level above it is null."""
    if field in values:
        return values[field]
    parts = field.split(".")
    for cut in range(1, len(parts)):
        outer = ".".join(parts[:cut])
        if outer in values and values[outer] is None:
            return None
        if isinstance(values.get(outer), Mapping):
            return descend(values[outer], ".".join(parts[cut:]))
    raise KeyError(field)


def _lacks_field(path: Path, field: str, names: Sequence[str]) -> InputError:
    shown = ", ".join(map(short, names[:MAX_DETAILS]))
    return InputError(f"{path} has no column {field!r}; it has {shown}{did_you_mean(field, names)}")


def name_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose known columns are in lower case, without spaces around them, unless two become equal."""
    plain = {name: name.strip().lower() for name in row if isinstance(name, str)}
    names = [plain[name] if plain.get(name) in COLUMNS else name for name in row]
    return dict(row) if len(set(names)) < len(names) else dict(zip(names, row.values(), strict=True))


def _json_lines(text: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of the lines that aren't empty. The value of a line that isn't JSON is an error."""
    # Only a line feed ends a row: str.splitlines would also split at other characters inside a prompt.
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if line.strip():
            try:
                yield f"line {number}", parse_json(line)
            except (ValueError, RecursionError) as error:
                yield f"line {number}", error


def _csv_rows(path: Path, text: str, columns: Mapping[str, str]) -> NumberedRows:
    advice = "put text that holds a comma in quotes"
    # Not line by line: a quoted cell may have several lines.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next((cells for cells in reader if cells), [])
        for name, count in Counter(header).items():
            if count > 1:
                raise InputError(f"{path} has the column {name!r} twice")
        for name in columns.values():
            if name not in header:
                raise _lacks_field(path, name, header)
        names = list(name_columns(rename_columns(dict.fromkeys(header), columns)))
        if names and not any(set(columns[:N_REQUIRED]) <= set(names) for columns in (TEXT, TOKENS)):
            missing = ", ".join(name for name in TEXT if name not in names)
            raise InputError(
                f"{path} lacks the columns {missing}; it has {', '.join(map(short, names[:MAX_DETAILS]))}, but needs "
                f"{', '.join(TEXT)} as text, or {', '.join(TOKENS)}{', with commas between cells' * (len(names) == 1)}"
                f"; {COLUMNS_ADVICE}"
            )
        # Without the cells that a short row lacks: many columns and many short rows would fill the memory.
        rows, problems = {}, {}
        for number, cells in enumerate(filter(None, reader), start=1):
            if len(cells) <= len(header):
                row = dict(zip(header if columns else names, cells, strict=False))
                rows[number] = name_columns(rename_columns(row, columns)) if columns else row
            else:
                problems[number] = f"example {number} has more cells than the header; {advice}"
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} isn't CSV: {error}") from None
    return NumberedRows(rows, problems)


def _check_unused(source: str, row: Mapping[str, Any], incorrect: str) -> None:
    """Refuse rows whose column `incorrect` seems to be misspelt; warn of other columns that are not used."""
    unused = [name for name in row if name not in COLUMNS]
    misspelt = [name for name in unused if not name or difflib.get_close_matches(name, [incorrect])]
    if misspelt:
        raise InputError(
            f"{source} has no column {incorrect!r}, but one named {short(misspelt[0])}; rename it to {incorrect!r}, or "
            "remove it if there are no incorrect answers"
        )
    if unused:
        shown = ", ".join(map(short, unused[:MAX_DETAILS]))
        warn(
            f"{source} has no column {incorrect!r}, so the metric reads the correct answer alone; not used: {shown}; "
            f"if one of these holds the incorrect answers, rename it to {incorrect!r}"
        )


def _parse_text(row: Any, names: tuple[str, ...], is_csv: bool) -> PromptPair:
    """Return a row of text, or a prompt pair, as a checked prompt pair.

    Answers may be a text, a list of them, or in a CSV file a list as JSON text.
    """
    is_pair = isinstance(row, PromptPair)
    columns = _columns(vars(row) if is_pair else row, names)
    sets: dict[str, Sequence[Any]] = {}
    for column in names[2:]:
        value = columns[column]
        if is_csv and isinstance(value, str) and value.lstrip().startswith("["):
            with suppress(ValueError, RecursionError):
                value = parse_json(value)
        if is_pair:
            sets[column] = (value, *getattr(row, f"also_{column}"))
        else:
            sets[column] = value if isinstance(value, list | tuple) else [value]
        if not sets[column]:
            raise InputError(": a list of answers is empty")
    texts = [(column, columns[column]) for column in names[:2]]
    texts += [(column, text) for column, answers in sets.items() for text in answers]
    wrong = dict.fromkeys(column for column, text in texts if not isinstance(text, str))
    if wrong:
        raise InputError(f": {', '.join(wrong)} must be text; tokens go into {', '.join(TOKENS)}")
    for column, text in texts:
        if has_surrogate(text):
            raise InputError(f": {column} holds half of a character (a lone surrogate)")
    if is_pair:
        return row  # type: ignore[no-any-return]
    for column, (first, *rest) in sets.items():
        columns |= {column: first, f"also_{column}": tuple(rest)}
    try:
        if row.get("spans") is not None:  # then text that looks like a marker is text
            return PromptPair(**columns, spans=parse_spans(row["spans"], columns["clean"]))
        columns["clean"], spans = read_markers(columns["clean"])
        columns["corrupted"], corrupted_spans = read_markers(columns["corrupted"])
    except InputError as error:
        raise InputError(f": {error}") from None
    return PromptPair(**columns, spans=spans, corrupted_spans=corrupted_spans)


def _span_names(row: Any) -> tuple[str, ...]:
    """Return the names of the spans of a row in their order; () if it has none or isn't valid."""
    if isinstance(row, PromptPair):
        return name_spans(row.spans)
    try:
        if row.get("spans") is not None:
            return name_spans(parse_spans(row["spans"], row.get("clean")))
        return name_spans(read_markers(row["clean"])[1])
    except (InputError, AttributeError, KeyError, TypeError):
        return ()


def _columns(row: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a row. The message of an error follows "example N"."""
    if not isinstance(row, Mapping):
        raise InputError(f" must be a prompt pair or a mapping of columns, not {type(row).__name__}")
    missing = [column for column in columns if row.get(column) is None]
    if missing:
        names = ", ".join([short(name) for name in row if row[name] is not None][:MAX_DETAILS])
        raise InputError(
            f" lacks {', '.join(missing)}; it has {names or 'no columns'}, but a row needs {', '.join(TEXT)} as "
            f"text, or {', '.join(TOKENS)}; {COLUMNS_ADVICE}"
        )
    return {column: row[column] for column in columns}


def has_surrogate(text: str) -> bool:
    """Whether a text has a lone surrogate, half of a character, which tokenizers don't take."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _parse_tokens(row: Any, names: tuple[str, ...], is_csv: bool, span_names: tuple[str, ...]) -> Example:
    """Return a row of token ids as an example. Cells of a CSV file are text. Spans are [start, stop) in tokens."""
    columns = _columns(row, names)
    try:
        values = [_parse_cell(value, column) if is_csv else value for column, value in columns.items()]
        clean, corrupted = map(_token_ids, values[:2])
        answers = [
            _token_ids(value) if isinstance(value, list | tuple) else (_token_id(value),) for value in values[2:]
        ]
        if not all(answers):
            raise InputError("a list of answers is empty")
        right, wrong = answers[0], answers[1] if answers[1:] else ()
        incorrect = wrong[0] if wrong else None
        example = Example(clean, corrupted, right[0], incorrect, also_correct=right[1:], also_incorrect=wrong[1:])
        spans = () if row.get("spans") is None else parse_spans(row["spans"], None)
        if names := span_names or name_spans(spans):
            offsets = [(position, position + 1) for position in range(example.length)]
            indices = assign_positions(spans, names, offsets, None)
            example = replace(example, span_names=names, span_indices=indices)
    except InputError as error:
        raise InputError(f": {error}") from None
    return example


def _parse_cell(text: str, column: str) -> list[int] | int:
    """Return the token ids of a CSV cell: "[1, 2]" or "1 2"; for an answer also a single one."""
    is_single = column.endswith("_id")
    if is_single and re.fullmatch(NUMBER, text.strip(" ")):
        return int(text)
    if not re.fullmatch(rf"\[({NUMBERS})?\]|({NUMBERS})?", text.strip(" ")):
        raise InputError(f"{column} must be token ids in plain digits, not {short(text)}")
    return [int(number) for number in re.findall(NUMBER, text)]


def _token_ids(value: Any) -> tuple[int, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"token ids must be a list of whole numbers, not {short(value)}")
    return tuple(map(_token_id, value))


def _token_id(value: Any) -> int:
    """Return a whole number of any type, such as NumPy's, as an int. Booleans, texts and fractions aren't taken."""
    try:
        if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise TypeError
        return index(value)
    except TypeError:
        raise InputError(f"token ids must be whole numbers, not {short(value)}") from None
