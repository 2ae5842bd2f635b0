"""Read the rows of a data set from the hub, or from a local copy in the hub's layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..io.reading import file_size, first_line, wrap_read_errors
from .draw import SPLITS
from .files import has_surrogate, read_rows

KINDS = (".jsonl", ".parquet")
# train.jsonl, train-00000-of-00002.parquet, and the latter with a hash, as older uploads have it.
FILE_NAME = re.compile(rf"({'|'.join(SPLITS)})(?:-\d+-of-(\d+)(?:-\w+)?)?")
# The most rows of a parquet file, and the most bytes that a byte of it may unpack to. Prompts need far less.
MOST_ROWS, MOST_EXPANSION = 2_000_000, 200
EXTRA = "pip install edgewise[hub]"


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
            return _descend(self.values, field)
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


def hub_rows(repository: str, config: str | None, split: str, advice: str) -> Iterator[Row]:
    """Yield the rows of a data set on the hub, in order. The package `datasets` caches downloads."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"reading {repository} from the hub needs the package `datasets`, which isn't installed: {EXTRA}; {advice}"
        ) from None
    try:
        rows: Any = datasets.load_dataset(repository, config, split=split)
    except Exception as error:  # the package raises many kinds of errors
        reason = first_line(error)
        raise InputError(f"{repository}, split {split!r} can't be loaded from the hub: {reason}; {advice}") from None
    for number, values in enumerate(rows, start=1):
        yield Row(values, f"{repository}, split {split!r}, row {number}")


def local_rows(path: Path, config: str | None, split: str) -> Iterator[Row]:
    """Yield the rows of a split of a local copy: a folder as on the hub, or one of its files (.jsonl, .parquet).

    A file named after a split is used for that split only, any other file for every split.
    """
    for file in split_files(path, config, split):
        rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else read_rows(file)
        for number, values in enumerate(rows, start=1):
            yield Row(values, f"{file}, row {number}")


def split_files(path: Path, config: str | None, split: str) -> list[Path]:
    """Return the files of a split in a local copy: in the folder itself, its data/, or its folder of `config`."""
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
            files = sorted(file for file in folder.glob(f"*{kind}") if _split_of(file) == split)
            if files:
                _check_complete(folder, files, split)
                return files
    raise InputError(
        f"{path} has no file of split {split!r}; looked for {split}.jsonl and {split}-00000-of-00001.parquet "
        f"in {', '.join(inside)}"
    )


def _descend(values: Mapping[str, Any], field: str) -> Any:
    if field in values:
        return values[field]
    parts = field.split(".")
    for cut in range(1, len(parts)):
        outer = ".".join(parts[:cut])
        if outer in values and values[outer] is None:
            return None
        if isinstance(values.get(outer), Mapping):
            return _descend(values[outer], ".".join(parts[cut:]))
    raise KeyError(field)


def _split_of(file: Path) -> str | None:
    named = FILE_NAME.fullmatch(file.stem)
    return named[1] if named else None


def _check_complete(folder: Path, files: Sequence[Path], split: str) -> None:
    """Raise InputError if files of the split are missing, as after an interrupted download."""
    named = FILE_NAME.fullmatch(files[0].stem)
    if named and named[2] and int(named[2]) != len(files):
        raise InputError(f"{folder} has {len(files)} of the {int(named[2])} files of split {split!r}; copy the rest")


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
