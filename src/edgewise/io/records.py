"""Read JSON files and convert their plain values to typed ones."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, unknown_name
from ..graph import KINDS, BaseGraph, Graph
from .reading import file_size, first_line, wrap_read_errors

# The largest JSON file of ours. Parsed JSON takes up to twenty times its bytes of memory.
MAX_JSON_BYTES = 16 * 2**20
# Type -> function that makes a value of this type from plain data. For types that msgspec does not know, and for
# dataclasses that are stored in another way.
Decoders = Mapping[Any, Callable[[Any], Any]]


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file. Raise InputError if it is too large or `parse_json` cannot read it."""
    file_size(path, max_bytes)
    with wrap_read_errors(path):
        data = path.read_bytes()
        try:
            return parse_json(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} isn't JSON: {first_line(error)}") from None


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text: standard JSON in UTF-8, finite numbers, every key of an object once.

    Raise ValueError or RecursionError if the text is anything else.
    """

    def check_keys(pairs: list[tuple[str, Any]]) -> None:  # msgspec does not notice a repeated key
        if len(dict(pairs)) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there more than once")

    value = msgspec.json.decode(data)
    json.loads(data, object_pairs_hook=check_keys)
    return value


def read_versioned_json(path: Path, name: str, version: int) -> dict[str, Any]:
    """Return a JSON object whose `format` and `version` are as given, without these two keys."""
    record = read_json(path)
    record = record if isinstance(record, dict) else {}
    stored = [record.pop("format", None), record.pop("version", None)]
    if stored != [name, version] or type(stored[1]) is not int:
        shown = [repr(value) if isinstance(value, str | int | None) else "unknown" for value in stored]
        versions = record.get("versions")
        writer = versions.get("edgewise") if isinstance(versions, dict) else None
        by = f", written by edgewise {writer}" if isinstance(writer, str) else ""
        raise InputError(
            f"{path} has format {shown[0]} version {shown[1]}{by}; this edgewise reads {name} version {version}"
        )
    return record


def convert_record(kind: Any, data: Any, where: str, decoders: Decoders | None = None) -> Any:
    """Return plain data, as JSON has it, as a value of a type. Raise InputError if it is of another type.

    kind      a dataclass or TypedDict, whose data needs all its keys and no others, or any type that msgspec knows
    where     which value of which file this is, for errors
    decoders  functions for types that are stored in another way, such as methods, which are stored by name
    """
    if not (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)):
        return _convert(kind, data, where, decoders or {})
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be an object, not {type(data).__name__}")
    decoders = {BaseGraph: lambda value: convert_graph(value, where)} | dict(decoders or {})
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(hints)
    if missing := [name for name in names if name not in data]:
        raise InputError(f"{where} lacks {', '.join(missing)}")
    if unknown := [str(name) for name in data if name not in names]:
        raise InputError(f"{where} has {', '.join(unknown)}, which edgewise doesn't know")
    values = {name: _convert(hints[name], data[name], f"{where}.{name}", decoders) for name in names}
    try:
        return kind(**values)  # type: ignore[operator]
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def convert_graph(data: Any, where: str) -> BaseGraph:
    """Return the graph of any kind that `BaseGraph.record` describes."""
    if not isinstance(data, Mapping) or "kind" not in data:
        return _convert(Graph, data, f"{where}.graph", {})  # type: ignore[no-any-return]
    if data["kind"] not in list(KINDS):
        raise unknown_name(f"kind of graph in {where}:", str(data["kind"])[:40], list(KINDS))
    fields = {key: value for key, value in data.items() if key != "kind"}
    return convert_record(KINDS[data["kind"]], fields, f"{where}.graph")  # type: ignore[no-any-return]


def _convert(kind: Any, value: Any, where: str, decoders: Decoders) -> Any:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    choices = [choice for choice in typing.get_args(kind) if choice is not type(None)] if is_union else [kind]
    if len(choices) == 1 and choices[0] in decoders and not (is_union and value is None):
        return decoders[choices[0]](value)

    def decode(part_type: type, part: Any) -> Any:
        if part_type not in decoders:
            raise NotImplementedError(f"values of {part_type} can't be read from a file")
        return decoders[part_type](part)

    try:
        return msgspec.convert(value, kind, dec_hook=decode)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        place = re.sub(r"^.*\$|`$", "", path)
        raise InputError(f"{where}{place}: {message[:1].lower()}{message[1:]}") from None
