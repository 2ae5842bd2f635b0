"""What every reader of untrusted files shares: a check of the file's size and errors that name the file."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError


@contextmanager
def wrap_read_errors(what: object, advice: str = "") -> Iterator[None]:
    """Turn every error of a library that reads `what`, usually a path, into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # Libraries in Rust raise PanicException, which does not derive from Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = error.strerror if isinstance(error, OSError) else None
        reason = "it needs more memory than there is" if isinstance(error, MemoryError) else reason or first_line(error)
        # The cause tells callers that the file may be readable later: the disk or the memory failed.
        cause = error if isinstance(error, OSError | MemoryError) else None
        raise InputError(f"{what} can't be read: {reason.rstrip('.')}" + (f"; {advice}" if advice else "")) from cause


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    message = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def file_size(path: Path, max_bytes: int | None = None) -> int:
    """Return the size of a regular file in bytes. Raise InputError for anything else, such as a pipe or a folder."""
    with wrap_read_errors(path):
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path}") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InputError(f"{path} is {kind}; give a file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise InputError(f"{path} has {status.st_size:,} bytes, but a file of its kind may have {max_bytes:,}")
    return status.st_size
