"""What scorers, solvers, filters, learners, metrics, ablations and measures have in common.

A method is a small frozen object with a name; its fields are its parameters. Functions take the object, custom ones
included, and never ask which one it is. Each family (such as the scorers) has one constant that maps names to classes;
the functions here read such a mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, TypeVar

from .errors import InputError, unknown_name
from .graph import BaseGraph
from .io.records import Decoders, convert_record

M = TypeVar("M", bound="Method")


class Method:
    """The base class of every family. The command line and files use `name`, by default the class name."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def record(self) -> dict[str, Any]:
        """Return the name and the parameters as plain data."""
        return {"name": self.name} | as_record(self)


class TitledMethod(Method):
    """A method that tables show by a title, by default its name."""

    title: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "title" not in cls.__dict__:
            cls.title = cls.name


def choose(kind: str, known: Mapping[str, type[M]], name: str, **options: Any) -> M:
    """Return the method called `name`, in any case, with the options that aren't None."""
    method = known[as_known(kind, name, known)]
    values = {option: value for option, value in options.items() if value is not None}
    accepted = parameters(method)
    for option in values:
        if option not in accepted:
            only = f", only {', '.join(accepted)}" if accepted else ""
            raise InputError(f"{kind} {method.name!r} takes no {option}{only}")
    return method(**values)


def as_known(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the known name that equals `name` in any case. Raise InputError if there is none."""
    names = list(known)
    match = next((candidate for candidate in names if candidate.lower() == name.lower()), None)
    if match is None:
        raise unknown_name(kind, name, names)
    return match


def check_is(kind: str, family: type, value: object) -> None:
    """Raise InputError if a value isn't an object of a family, but for example its name or its class."""
    if not isinstance(value, family):
        shown = value.__name__ if isinstance(value, type) else repr(value)
        article = "an" if kind[0] in "aeiou" else "a"
        expected = f"{article} {kind} must be an object of a class that derives from {family.__name__}"
        raise InputError(f"{expected}, not {shown}{_write_object(family, value)}")
    check_frozen(value)


def _write_object(family: type, value: object) -> str:
    """Return the end of a sentence that says how to write an object, for a class or the name of a class; else ""."""
    named = (kind for kind in _subclasses(family) if kind is value or (isinstance(value, str) and kind.name == value))
    kind: Any = next(named, None)
    if kind is None:
        return ""
    package = kind.__module__.rpartition(".")[0]
    return f"; write {kind.__name__}()" + (f", from {package}" if package else "")


def _subclasses(family: type) -> Iterator[Any]:
    kinds: list[Any] = family.__subclasses__()
    for kind in kinds:
        yield kind
        yield from _subclasses(kind)


def check_frozen(value: object) -> None:
    """Raise InputError if a method has attributes that aren't fields, or if its fields can change.

    Stored results are found again by the fields of their methods, so nothing else may decide what a method does.
    """
    kind = type(value)
    is_frozen = not is_dataclass(kind) or kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    cached = {
        name for base in kind.__mro__ for name, member in vars(base).items() if isinstance(member, cached_property)
    }
    extra = [name for name in vars(value) if name not in parameters(kind) and name not in cached]
    if extra or not is_frozen:
        reason = f"{', '.join(extra)} of {kind.__name__} is not a field" if extra else f"{kind.__name__} isn't frozen"
        raise InputError(
            f"{reason}; a method's fields are its parameters: decorate the class with @dataclass(frozen=True)"
        )


def parameters(method: type) -> tuple[str, ...]:
    """Return the names of a method's parameters."""
    return tuple(field.name for field in fields(method)) if is_dataclass(method) else ()


def as_record(value: Any) -> Any:
    """Return the fields of a frozen value, or the items of a tuple, as plain data for JSON."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return {name: plain(getattr(value, name)) for name in parameters(type(value))}


def plain(value: Any) -> Any:
    """Return one value as plain data. A method becomes its record, or its name if it has no parameters."""
    if isinstance(value, BaseGraph):
        return value.record()
    if isinstance(value, Method):
        record = value.record()
        return record if len(record) > 1 else value.name
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and torch
        return value.tolist()
    return as_record(value) if isinstance(value, tuple | list) or is_dataclass(value) else value


def from_record(
    kind: str,
    known: Mapping[str, type[M]],
    record: str | Mapping[str, Any],
    family: type[M] | None = None,
    more_decoders: Decoders | None = None,
) -> M:
    """Return the method that `plain` or `Method.record` wrote: all its parameters, each of its type.

    With `family`, a name that isn't in `known` gives a placeholder of that family. Without, it raises InputError.
    `more_decoders` read parameters that are methods of other families.
    """
    name = record_name(kind, record)
    if family is not None and name not in known:
        return placeholder(family, record)
    method = known[as_known(kind, name, known)]
    values = {} if isinstance(record, str) else {key: value for key, value in record.items() if key != "name"}
    if isinstance(record, str) or not is_dataclass(method):
        return choose(kind, known, name, **values)
    # A method may have another one of its family as a parameter.
    own = {} if family is None else {family: lambda value: from_record(kind, known, value, family, more_decoders)}
    return convert_record(method, values, f"{kind} {name!r}", own | dict(more_decoders or {}))  # type: ignore[no-any-return]


def placeholder(family: type[M], record: str | Mapping[str, Any]) -> M:
    """Return a stand-in for a custom method that isn't registered here. It can be shown and written, but not run.

    It has the name and the parameters of the original. What the family leaves to its classes raises InputError.
    """
    values = {} if isinstance(record, str) else {key: value for key, value in record.items() if key != "name"}
    make: Any = _placeholder_class(family)  # type: ignore[arg-type]
    return make(record_name(family.__name__.lower(), record), json.dumps(values))  # type: ignore[no-any-return]


@cache
def _placeholder_class(family: type) -> Any:
    def record(self: Any) -> dict[str, Any]:
        return {"name": self.name} | json.loads(self.values)

    def unavailable(self: Any, *_: Any, **__: Any) -> Any:
        kind = family.__name__.lower()
        raise InputError(f"{self.name!r} is a custom {kind} that isn't registered here: it can be shown, but not run")

    declared = {name for base in family.__mro__ for name in vars(base).get("__annotations__", {})}
    members: dict[str, Any] = dict.fromkeys(getattr(family, "__abstractmethods__", ()), unavailable)
    members |= {name: property(unavailable) for name in declared if not hasattr(family, name)}
    if "title" in declared:
        members["title"] = property(lambda self: self.name)
    fields = {"name": "", "values": "{}", "__annotations__": {"name": str, "values": str}}
    return dataclass(frozen=True)(type("Placeholder", (family,), members | fields | {"record": record}))


def record_name(kind: str, record: object) -> str:
    """Return the name in a record, which is a name or an object with one. Raise InputError if there is none."""
    name = record.get("name") if isinstance(record, Mapping) else record
    if not isinstance(name, str):
        raise InputError(f"{kind} must be the name of one, or an object with a name")
    return name
