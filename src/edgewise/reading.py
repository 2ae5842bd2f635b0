"""Files that a stranger may have made: read strictly, in words, and with no more memory than the file is worth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError


@contextmanager
def told_of(what: object, advice: str = "") -> Iterator[None]:
    """Whatever a library raises while it reads `what`, usually a path, becomes an `InputError` that names it."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{what} can't be read: it needs more memory than there is{_behind(advice)}") from None
    except OSError as error:
        raise InputError(f"{what} can't be read: {error.strerror or first_line(error)}{_behind(advice)}") from None
    except Exception as error:
        raise InputError(f"{what} can't be read: {first_line(error)}{_behind(advice)}") from None


def _behind(advice: str) -> str:
    return f"; {advice}" if advice else ""


def first_line(error: BaseException) -> str:
    """What a library says, without the advice that often follows; its kind if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_json(path: Path) -> Any:
    """Read JSON; says which file isn't there or isn't JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} isn't JSON: {error}") from None


def read_format(path: Path, name: str, version: int) -> dict[str, Any]:
    """Read a JSON object of ours; says so if it is of another format or version."""
    found = read_json(path)
    found = found if isinstance(found, dict) else {}
    if found.get("format") != name or found.get("version") != version:
        raise InputError(
            f"{path} is of format {found.get('format')!r} version {found.get('version')!r}; "
            f"this edgewise reads {name} version {version}"
        )
    return found
