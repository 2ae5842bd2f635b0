"""Data sets of the hub, or copies of them: those of the Mechanistic Interpretability Benchmark (MIB), and any other.

MIB's fields, filters and answers are those of the benchmark's own loader, so that results are comparable: an answer is
represented by its first token. Names get a leading space. Labels of multiple choice get none, whatever the prompt ends
with; the counterfactual renames them (for example A to D into 1 to 4).
The benchmark keeps rows that can't be patched: prompts of different lengths, or answers with the same first token.
Here they are dropped and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, warn
from ..io.reading import file_size, first_line, wrap_read_errors
from .checks import check_rows
from .files import TEXT, TOKENS, VALIDATION_NAMES, NumberedRows, descend, has_surrogate, read_rows, task_of_rows
from .generators import SPLITS, TENTHS
from .spans import CharacterSpan, end_span
from .task import PromptPair, Task, TokenReader
from .tokens import UnusableError, answer_tokens, has_offsets, try_tokenize

TokenCount = Callable[[str], int]
KINDS = (".jsonl", ".parquet")
# train.jsonl, train-00000-of-00002.parquet, and the latter with a hash, as older uploads have it.
FILE_NAME = re.compile(rf"({'|'.join(SPLITS)})(?:-\d+-of-(\d+)(?:-\w+)?)?")
# The most rows of a parquet file, and the most bytes that a byte of it may unpack to. Prompts need far less.
MOST_ROWS, MOST_EXPANSION = 2_000_000, 200
EXTRA = "pip install edgewise[hub]"
# Tasks of any data set are named `hub:NAME`, or `hub:NAME:CONFIG`.
PREFIX = "hub:"
HUB_COLUMNS = (*TEXT, *TOKENS, "spans")


@dataclass(frozen=True)
class Row:
    """A row of a data set, and where it is from, for error messages."""

    values: Mapping[str, Any]
    where: str

    def get(self, field: str) -> Any:
        """Return the value of a dotted field; its levels may be nested, or flattened into a column's name.

        None if the field, or a level above it, is null. Raise InputError if there is no such field.
        """
        try:
            return descend(self.values, field)
        except KeyError:
            raise InputError(
                f"{self.where} lacks {field!r}; it has {', '.join(map(repr, self.values)) or 'no fields'}: "
                "is it another data set, or another version?"
            ) from None

    def text(self, field: str) -> str:
        """Return the value of a text field; whole numbers become text."""
        value = self.get(field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{self.where}: {field!r} must be text or a whole number, not {value!r}")
        if has_surrogate(str(value)):
            raise InputError(f"{self.where}: {field!r} holds half of a character (a lone surrogate)")
        return str(value)


class DataSet(NamedTuple):
    """A data set on the hub, and how its rows are read.

    config  the name of its subset; None if it has only one
    read    (row, function that counts tokens) -> a prompt pair, or the reason why the benchmark drops the row
    """

    repository: str
    config: str | None
    read: Callable[[Row, TokenCount], PromptPair | str]


def _ioi_pair(row: Row, count: TokenCount) -> PromptPair | str:
    # The third name is in none of these prompts. The benchmark compares its length, too, so the same rows are used.
    indirect, subject, third = (
        f" {row.text(f'metadata.{role}')}" for role in ("indirect_object", "subject", "random_c")
    )
    if not count(indirect) == count(subject) == count(third):
        return "with names of unequal token length"
    prompt, flipped = row.text("prompt"), row.text("s2_io_flip_counterfactual.prompt")
    # The spans of the names, as the generator `ioi` has them, if each name occurs as often as it should.
    subjects, objects = (
        [match.span() for match in re.finditer(rf"\b{re.escape(name.strip())}\b", prompt)]
        for name in (subject, indirect)
    )
    spans: tuple[CharacterSpan, ...] = ()
    if prompt and len(subjects) == 2 and len(objects) == 1:
        places = zip(("S1", "IO", "S2"), (subjects[0], objects[0], subjects[1]), strict=True)
        spans = (*(CharacterSpan(name, *place) for name, place in places), end_span(prompt))
    return PromptPair(prompt, flipped, indirect, subject, first_token_decides=True, spans=spans)


def _choice(row: Row, count: TokenCount) -> PromptPair | str:
    right, other = _label(row, ""), _label(row, "symbol_counterfactual.")
    if count(right) != count(other):
        return "with answer labels of unequal token length"
    prompt, renamed = row.text("prompt"), row.text("symbol_counterfactual.prompt")
    return PromptPair(prompt, renamed, right, other, first_token_decides=True)


def _label(row: Row, inside: str) -> str:
    """Return the label of the right choice, whose number from 0 is `answerKey`."""
    labels, key = row.get(f"{inside}choices.label"), row.get(f"{inside}answerKey")
    if not isinstance(labels, list) or type(key) is not int or not 0 <= key < len(labels):
        raise InputError(
            f"{row.where}: '{inside}answerKey' must be an index into '{inside}choices.label', "
            f"but they are {key!r} and {labels!r}"
        )
    return Row({"label": labels[key]}, row.where).text("label")


def _arithmetic(operator: str, row: Row, count: TokenCount) -> PromptPair | str:
    if row.text("operator") != operator:
        return "with another operator"
    if row.get("random_counterfactual.prompt") is None:
        return "without a counterfactual"
    right, other = row.text("label"), row.text("random_counterfactual.label")
    if count(right) != 1 or count(other) != 1:
        return "with an answer of several tokens"
    return PromptPair(row.text("prompt"), row.text("random_counterfactual.prompt"), right, other)


DATA_SETS = {
    "mib/ioi": DataSet("mib-bench/ioi", None, _ioi_pair),
    "mib/mcqa": DataSet("mib-bench/copycolors_mcqa", "4_answer_choices", _choice),
    "mib/arc-easy": DataSet("mib-bench/arc_easy", None, _choice),
    "mib/arc-challenge": DataSet("mib-bench/arc_challenge", None, _choice),
    "mib/arithmetic-addition": DataSet("mib-bench/arithmetic_addition", None, partial(_arithmetic, "+")),
    "mib/arithmetic-subtraction": DataSet("mib-bench/arithmetic_subtraction", None, partial(_arithmetic, "-")),
}


def read_data_set(name: str, copy: Path | None, split: str, tokenizer: Any, bos: int | None) -> Task:
    """Read a split of a data set, in its order, from the hub or from a local `copy`.

    `Task.dropped` has the number of dropped rows by reason.
    """
    data_set = DATA_SETS[name]
    tables: Iterable[tuple[object, Iterable[Mapping[str, Any]]]]  # their sources, for error messages, and their rows
    if copy is None:
        on_hub, advice = f"{data_set.repository}, split {split!r}", f"; or give a local copy: task '{name}=FOLDER'"
        tables = [(on_hub, load_data_set(on_hub, data_set.repository, data_set.config, advice, split=split))]
    else:
        files = split_files(copy, data_set.config, split)
        tables = ((f, _parquet_rows(f) if f.suffix.lower() == ".parquet" else read_rows(f)) for f in files)
    # Cached, because names, letters and numbers repeat.
    count = cache(lambda text: len(answer_tokens(text, tokenizer)))
    pairs: list[PromptPair] = []
    dropped: Counter[str] = Counter()
    problems: dict[int, str] = {}
    rows = (
        Row(values, f"{source}, row {number}")
        for source, table in tables
        for number, values in enumerate(table, start=1)
    )
    for row in rows:
        try:
            pair = data_set.read(row, count)
        except InputError as error:
            problems[len(problems)] = str(error)
            continue
        if isinstance(pair, PromptPair):
            pairs.append(pair)
        else:
            dropped[pair] += 1
    check_rows(name, problems)
    if not has_offsets(tokenizer) or not all(pair.spans for pair in pairs):
        pairs = [replace(pair, spans=()) for pair in pairs]
    examples, unusable = try_tokenize(dict(enumerate(pairs)), tokenizer, bos)
    dropped.update(
        error.reason if isinstance(error, UnusableError) else "that can't be used" for error in unusable.values()
    )
    try:
        return Task(name, split, tuple(examples.values()), tuple(dropped.items()))
    except InputError as error:
        raise InputError(str(error) if copy is None else f"{copy}: {error}") from None


def parse_columns(text: str) -> dict[str, str]:
    """Return column of a task -> field of the file or data set, of `clean=prompt,corrupted=other.prompt`."""
    columns = {}
    for part in text.split(","):
        name, equals, field = (piece.strip() for piece in part.partition("="))
        if not equals or not field or name not in HUB_COLUMNS or name in columns:
            raise InputError(
                f"columns are such as clean=prompt,corrupted=other.prompt,correct=answer, each once, not {part!r}; "
                f"the names are {', '.join(HUB_COLUMNS)}"
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
    source = name.removeprefix(PREFIX)
    repository, _, config = source.partition(":")
    parts = load_data_set(source, repository, config or None, streaming=True)
    known = {"validation" if part in VALIDATION_NAMES else str(part): part for part in parts}
    missing = [each for each in SPLITS if each not in known]
    if split not in known and ("train" not in known or split not in SPLITS):
        raise InputError(f"{source} has no split {split!r}; its splits are {', '.join(map(str, parts))}")
    if missing and "train" in known and (split in missing or split == "train"):
        listed = " and ".join(missing)
        warn(f"{source} has no split {listed}; two tenths of the rows of train are used for each of these")
    tenths = set(range(10)) if split in known else set(TENTHS[split])
    if split == "train":
        tenths -= {tenth for each in missing for tenth in TENTHS[each]}
    fields = {column: columns.get(column, column) for column in HUB_COLUMNS}
    rows: dict[int, dict[str, Any]] = {}
    for number, values in enumerate(parts[known.get(split, known.get("train"))]):
        if number % 10 in tenths:
            row = Row(values, f"{source}, row {number + 1}")
            used = {column: field for column, field in fields.items() if column in columns or field in values}
            rows[len(rows) + 1] = {column: row.get(field) for column, field in used.items()}
            if len(rows) == examples:
                break
    return task_of_rows(NumberedRows(rows), name, split, model, skip_bad=skip_bad)


def load_data_set(name: str, repository: str, config: str | None, advice: str = "", **options: Any) -> Any:
    """Return what the package `datasets` loads. Errors name the data set by `name` and end with `advice`."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"reading {name} needs the package `datasets`, which isn't installed: {EXTRA}{advice}"
        ) from None
    try:
        return datasets.load_dataset(repository, config, **options)
    except Exception as error:  # the package raises many kinds of errors
        raise InputError(f"{name} can't be loaded as a data set: {first_line(error)}{advice}") from None


def split_files(path: Path, config: str | None, split: str) -> list[Path]:
    """Return the files of a split in a local copy: a folder as on the hub, or one of its files (.jsonl, .parquet).

    A folder has them in itself, in its data/, or in its folder of `config`. A file named after a split is used for that
    split only, any other file for every split.
    """
    if path.exists() and not path.is_dir():
        named = FILE_NAME.fullmatch(path.stem)
        if path.suffix.lower() not in KINDS:
            raise InputError(f"{path} can't be read; a copy's files are {' or '.join(KINDS)}")
        if named and named[1] != split:
            raise InputError(
                f"{path} holds split {named[1]!r}, but split {split!r} is needed; give the folder that has both"
            )
        return [path]
    if not path.is_dir():
        raise InputError(f"there is no file or folder {path}")
    # A copy of several configs has a folder for each; that folder comes first.
    inside = [*([config, f"data/{config}"] if config else []), ".", "data"]
    for folder in (path / name for name in inside):
        for kind in KINDS:
            names = {file: FILE_NAME.fullmatch(file.stem) for file in sorted(folder.glob(f"*{kind}"))}
            parts = {file: name[2] for file, name in names.items() if name and name[1] == split}
            if parts:
                n_files = next(iter(parts.values()))
                if n_files and int(n_files) != len(parts):  # as after an interrupted download
                    raise InputError(
                        f"{folder} has {len(parts)} of the {int(n_files)} files of split {split!r}; copy the rest"
                    )
                return list(parts)
    raise InputError(
        f"{path} has no file of split {split!r}; looked for {split}.jsonl and {split}-00000-of-00001.parquet "
        f"in {', '.join(inside)}"
    )


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    file_size(path)
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"reading {path} needs the package `pyarrow`, which isn't installed: {EXTRA}; .jsonl files need nothing"
        ) from None
    # Not `read_table`, which would take a folder name such as "ioi=copy" for a column.
    with wrap_read_errors(path, "is it parquet?"), parquet.ParquetFile(path) as file:
        check_unpacked_size(path, file.metadata)
        return file.read().to_pylist()


def check_unpacked_size(path: Path, metadata: Any) -> None:
    """Raise InputError if a parquet file claims to unpack to far more than its size justifies."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    unpacked, limit = sum(group.total_byte_size for group in groups), MOST_EXPANSION * path.stat().st_size
    if metadata.num_rows > min(MOST_ROWS, limit) or not 0 <= unpacked <= limit:
        raise InputError(
            f"{path} has {path.stat().st_size:,} bytes, but claims {metadata.num_rows:,} rows and {unpacked:,} bytes "
            "when unpacked; that can't be a data set of prompts"
        )
