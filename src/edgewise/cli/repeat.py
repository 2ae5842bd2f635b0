"""A command whose result is in place already shows it: results hold what they were made from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..io.atomic import check_file, to_plain, write_json
from ..io.reading import first_line
from ..io.records import read_json
from ..method import plain
from ..recipes.run_info import versions
from ..runtime.unit_keys import code_digest
from .console import note, show_progress
from .options import DRY_RUN, JSON, OVERWRITE, option

if TYPE_CHECKING:
    from ..models import Model
    from ..runtime import Session
    from ..tasks import Task

KEY = "made_from"
# Longer values, such as digests, aren't shown.
MAX_SHOWN = 40
# Larger files aren't read to see whether they are the same.
MAX_TEXT = 10**9


def made_from(**inputs: Any) -> dict[str, Any]:
    """Return everything that a result depends on as plain data, as JSON has it; None is left out."""
    values = {name: plain(value) for name, value in inputs.items() if value is not None}
    values |= {"versions": versions(), "code": code_digest()}
    return dict(json.loads(json.dumps(values, default=to_plain)))


def describe_examples(model: Model, name: str, task: Task) -> dict[str, Any]:
    """Return a model and the examples of a task, as inputs for `made_from`."""
    examples = {"split": task.split, "examples": len(task), "prompts": task.digest}
    return {"model": model.digest, "task": name, **examples}


def check_same(path: Path, recorded: object, inputs: Mapping[str, Any]) -> None:
    """Raise InputError if the result at `path` was made from other inputs, and say which. Else print a note."""
    advice = "choose another --out, or replace it with --overwrite"
    if not isinstance(recorded, Mapping):
        raise InputError(f"{path} exists already, and doesn't say what it was made from; {advice}")
    if differences := _list_differences(recorded, inputs):
        raise InputError(f"{path} exists already, made from other inputs ({'; '.join(differences)}); {advice}")
    note(f"{path} was made by the same command from the same inputs: nothing is computed again")


def note_resumed(session: Session) -> None:
    """Print a note if the session's store has work of a stopped command. Call this before anything is stored."""
    if not session.store.is_empty:
        note("resuming a stopped command, as far as its inputs are the same")


@contextmanager
def resume(session: Session) -> Iterator[Session]:
    """Return the session with progress on stderr, after a note if its store has work of a stopped command."""
    note_resumed(session)
    with show_progress(session) as session:
        yield session


def read_record(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it can't be read or is no object."""
    try:
        record = read_json(path)
    except InputError:
        return {}
    return record if isinstance(record, dict) else {}


@contextmanager
def name_damaged_file(path: Path | None) -> Iterator[None]:
    """Raise InputError with the name of a command's earlier result if it lacks what is shown of it."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} can't be read: {first_line(error)}; replace it with --overwrite") from error


@dataclass(frozen=True)
class JsonOptions:
    """Whether a result is printed as JSON, and the JSON file that it is written to."""

    out_file: Path | None = option(None, "Output", "Also write the result to this JSON file.", "--out")
    overwrite: bool = OVERWRITE
    dry_run: bool = DRY_RUN
    json: bool = JSON

    @property
    def has_result(self) -> bool:
        """Whether the file is there already, and is to be shown."""
        return not self.overwrite and self.out_file is not None and self.out_file.is_file()

    def check(self, sources: Iterable[str | Path | None], per_example: bool) -> None:
        """Raise InputError if the file can't be written or is one of the sources, or if there is no place for JSON."""
        if self.out_file is not None:
            check_file(self.out_file, self.overwrite or self.has_result, [source for source in sources if source])
        elif per_example and not self.json:
            raise InputError("--per-example adds values to JSON; give --json or --out FILE too")

    def read(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result that the same inputs made before; None if there is none."""
        if self.out_file is None or not self.has_result:
            return None
        record = read_record(self.out_file)
        check_same(self.out_file, record.get(KEY), inputs)
        return record

    def write(self, record: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        """Return a result together with its inputs, after writing it if there is a file to write to."""
        record = record | {KEY: inputs}
        if self.out_file is not None:
            check_file(self.out_file, self.overwrite)  # another program may have written it meanwhile
            write_json(self.out_file, record)
        return record


def is_written(path: Path, text: str) -> bool:
    """Whether a file has this content already. Else the text is to be written."""
    return path.is_file() and path.stat().st_size < MAX_TEXT and path.read_bytes() == text.encode()


def _list_differences(recorded: Mapping[str, Any], inputs: Mapping[str, Any], prefix: str = "") -> list[str]:
    differences = []
    if recorded.get("seed") != inputs.get("seed"):  # learners and filters repeat the seed: say once that it differs
        recorded = _without_seeds(recorded) | {"seed": recorded.get("seed")}
        inputs = _without_seeds(inputs) | {"seed": inputs.get("seed")}
    for name in dict.fromkeys((*inputs, *recorded)):
        before, now = recorded.get(name), inputs.get(name)
        label = f"{prefix}{name.replace('_', ' ')}"
        if before == now:
            continue
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            differences += _list_differences(before, now, f"{label}: ")
        elif max(len(str(before)), len(str(now))) > MAX_SHOWN:
            differences.append(f"other {label}")
        else:
            differences.append(f"{label} was {before}, is {now}")
    return differences


def _without_seeds(value: Any) -> Any:
    """Return plain data without the seeds at any depth."""
    if isinstance(value, Mapping):
        return {key: _without_seeds(item) for key, item in value.items() if key != "seed"}
    return [_without_seeds(item) for item in value] if isinstance(value, list) else value
