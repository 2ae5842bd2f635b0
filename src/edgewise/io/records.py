"""Plain data from a file as values of the types that they are to have: what isn't of its type is refused, by its place.

A type is what an annotation says: numbers, text, unions, tuples, lists, mappings with text as keys, dataclasses, typed
dictionaries. JSON has no tuples and no dataclasses: lists and objects become them.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short
from typing import Any, Literal, Union

from ..errors import InputError

# Makes a value of a type of one's own from plain data.
Makers = Mapping[Any, Callable[[Any], Any]]
LARGEST = 2**63
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}


def typed(hint: Any, value: Any, where: str, makers: Makers | None = None) -> Any:
    """A value as one of a type; `where` says which value of which file it is."""
    makers = makers or {}
    if hint in makers:
        return makers[hint](value)
    if hint is Any:
        return value
    if hint in (None, *WORDS):
        return _plain(type(None) if hint is None else hint, value, where)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(parts, value, where, makers)
    if origin is Literal:
        if not any(type(value) is type(one) and value == one for one in parts):
            raise _refusal(where, f"one of {', '.join(map(repr, parts))}", value)
        return value
    if origin in (tuple, list, Sequence):
        return _several(origin, parts, value, where, makers)
    if origin is Mapping or origin is dict:
        _check_object(value, where)
        return {name: typed(parts[1], one, f"{where}.{name}", makers) for name, one in value.items()}
    if dataclasses.is_dataclass(hint):
        found = members(hint, [field.name for field in dataclasses.fields(hint)], value, where, makers)
        try:
            return hint(**found)  # type: ignore[operator]
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if typing.is_typeddict(hint):
        return members(hint, list(typing.get_type_hints(hint)), value, where, makers)
    raise TypeError(f"values of type {hint} can't be read from plain data")


def members(hint: Any, names: Sequence[str], value: Any, where: str, makers: Makers | None = None) -> dict[str, Any]:
    """An object's members, of the types that a class has for these names: all of them, and no others."""
    _check_object(value, where)
    lacking, unknown = [n for n in names if n not in value], [n for n in value if n not in names]
    if lacking:
        raise InputError(f"{where} lacks {', '.join(lacking)}")
    if unknown:
        raise InputError(f"{where} has {', '.join(unknown)}, which edgewise doesn't know")
    hints = typing.get_type_hints(hint)
    return {name: typed(hints[name], value[name], f"{where}.{name}", makers) for name in names}


def _plain(kind: type, value: Any, where: str) -> Any:
    if kind is float and type(value) is int and abs(value) < LARGEST:
        return float(value)
    if type(value) is not kind or (isinstance(value, int) and abs(value) >= LARGEST):
        raise _refusal(where, WORDS[kind], value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal(where, "a finite number", value)
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, where: str, makers: Makers) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    # A whole number stays one where both are allowed.
    kinds = tuple(sorted(kinds, key=lambda kind: type(value) is not kind))
    for kind in kinds[:-1]:
        try:
            return typed(kind, value, where, makers)
        except InputError:
            pass
    return typed(kinds[-1], value, where, makers)


def _several(kind: Any, parts: tuple[Any, ...], value: Any, where: str, makers: Makers) -> Any:
    if type(value) is not list and type(value) is not tuple:
        raise _refusal(where, "a list", value)
    if kind is tuple and parts[-1] is not Ellipsis:
        if len(value) != len(parts):
            raise InputError(f"{where} must have {len(parts)} entries, but has {len(value)}")
        hints: Sequence[Any] = parts
    else:
        hints = parts[:1] * len(value)
    found = (
        typed(hint, one, f"{where}[{at}]", makers) for at, (hint, one) in enumerate(zip(hints, value, strict=True))
    )
    return list(found) if kind is list else tuple(found)


def _check_object(value: Any, where: str) -> None:
    if not isinstance(value, Mapping) or not all(type(name) is str for name in value):
        raise _refusal(where, "an object", value)


def _refusal(where: str, words: str, value: Any) -> InputError:
    return InputError(f"{where} must be {words}, but is {short(value)}")
