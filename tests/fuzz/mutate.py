"""Mutations of bytes and of JSON: each gives the new bytes, what was done, and the verdict where it is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from .inputs import ACCEPT, REFUSE

Draw = Callable[[st.SearchStrategy], Any]
Path = tuple[Any, ...]
DEEP = 10**5


@dataclass(frozen=True)
class Mutated:
    """New bytes, what was done, and the verdict where it is known."""

    data: bytes
    words: str
    verdict: str | None = None


@st.composite
def bytes_of(draw: Draw, data: bytes) -> Mutated:
    """Damage that knows nothing of the format."""
    kind = draw(st.sampled_from(("flip", "cut", "insert", "zeros", "double", "swap", "number", "empty", "noise")))
    size = max(1, len(data))
    at = draw(st.integers(0, size - 1))
    length = draw(st.sampled_from((1, 2, 4, 8, 64, 1000)))
    if kind == "flip":
        new = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :] if data else b"\1"
    elif kind == "cut":
        new = data[:at]
    elif kind == "insert":
        new = data[:at] + draw(st.binary(min_size=1, max_size=16)) + data[at:]
    elif kind == "zeros":
        new = data[:at] + b"\0" * min(length, size - at) + data[at + length :]
    elif kind == "double":
        new = data[: at + length] + data[at:]
    elif kind == "swap":
        other = draw(st.integers(0, size - 1))
        first, second = sorted((at, other))
        new = data[:first] + data[second : second + length] + data[first + length :]
    elif kind == "number":
        value = draw(st.sampled_from((0, 1, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63)))
        width = 8 if value >= 2**32 else draw(st.sampled_from((4, 8)))
        new = data[:at] + value.to_bytes(width, "little") + data[at + width :]
    elif kind == "noise":
        new = data[:at] + draw(st.binary(min_size=4, max_size=64)) + data[at + length :]
    else:
        new = b""
    return Mutated(new, f"bytes {kind}: at {at} of {len(data)}, {length}")


@dataclass(frozen=True)
class Raw:
    """JSON text that stands for a value; `value` is what Python would make of it, where that is of use."""

    text: str
    value: Any = None
    forbidden: bool = False


def plain(value: Any) -> Raw:
    """A value as JSON text."""
    return Raw(json.dumps(value), value)


VALUES: tuple[Raw, ...] = (
    *map(plain, (None, True, False, "", "0", "1_0", "x", -1, 0, 1, 2, 7, 1.5, 2.0, -0.0, 1e-320, 1e308, -1e308)),
    *map(plain, (10**9, 10**12, -(10**12), 10**30, 2**31, 2**63, [], {}, [None], [[]], {"": None}, [0], {"name": "x"})),
    *map(
        plain, ("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "[bold]x[/bold]", "[/]", "[", "$x_{$", "$$", "\\frac", "a\nb")
    ),
    *map(plain, ("\u202e", "\0", "../../x", "/etc/passwd", "NaN", "true", "1e5", "\ufeff", "{0}", "%s", "a" * 10**5)),
    Raw('"\\ud800"', "\ud800"),
    Raw("NaN", float("nan"), True),
    Raw("Infinity", float("inf"), True),
    Raw("-Infinity", float("-inf"), True),
    Raw("1e999", float("inf"), True),
    Raw("-1e999", float("-inf"), True),
    Raw("[" * DEEP + "]" * DEEP, [], True),
    Raw('{"a":' * DEEP + "1" + "}" * DEEP, {}, True),
    Raw("[" * DEEP, [], True),
    Raw("9" * 5000, 10**30, True),
    Raw("01", 1, True),
    Raw("1.", 1.0, True),
    Raw(".5", 0.5, True),
    Raw("+1", 1, True),
    Raw("0x1", 1, True),
    Raw("'a'", "a", True),
    Raw("nul", None, True),
    Raw('"a\tb"', "a\tb", True),
)
NUMBERS = tuple(
    plain(value) for value in (-1, 0, 1, 2, 3, 1000, 20000, 10**6, 10**9, 10**12, 2**31, 2**63, 10**30, 0.5, -3.5)
)

# What a value may be.
Kind = Callable[[Any], bool]


def is_int(value: Any) -> bool:
    return type(value) is int


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_positive(value: Any) -> bool:
    return type(value) is int and value >= 1


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def is_bool(value: Any) -> bool:
    return type(value) is bool


def is_text(value: Any) -> bool:
    return type(value) is str


def is_object(value: Any) -> bool:
    return type(value) is dict


def is_list(value: Any) -> bool:
    return type(value) is list


def one_of(*values: Any) -> Kind:
    return lambda value: any(type(value) is type(known) and value == known for known in values)


def or_null(kind: Kind) -> Kind:
    return lambda value: value is None or kind(value)


@dataclass(frozen=True)
class Schema:
    """What is known of a JSON file: patterns of paths, `*` for any key or index, and what may stand there.

    needed  patterns that mustn't be missing
    fixed   patterns of lists that can't be shorter or longer
    """

    kinds: Mapping[Path, Kind]
    needed: frozenset[Path] = frozenset()
    fixed: frozenset[Path] = frozenset()

    def verdict(self, path: Path, value: Any) -> str | None:
        """Refusal for what mustn't stand at a path; None where it may, or nothing is known."""
        kind = self.kinds.get(pattern(path)) or self.kinds.get(path)
        return REFUSE if kind is not None and not kind(value) else None

    def verdict_without(self, path: Path) -> str | None:
        """Refusal if a path mustn't be missing."""
        return REFUSE if pattern(path) in self.needed or path in self.needed else None


NOTHING_KNOWN = Schema({})
WIDE = ("edges", "nodes")


def pattern(path: Path) -> Path:
    """A path with `*` for indices, and for the keys of tables."""
    return tuple(
        "*" if isinstance(key, int) or (place and path[place - 1] in WIDE) else key for place, key in enumerate(path)
    )


@dataclass(frozen=True)
class Tree:
    """A valid JSON document and all its paths, by pattern, so that every place is as likely as any other."""

    value: Any
    groups: tuple[tuple[Path, ...], ...]

    @classmethod
    def of(cls, value: Any) -> Tree:
        """A tree from a value."""
        groups: dict[Path, list[Path]] = {}
        _walk(value, (), groups)
        return cls(value, tuple(tuple(paths) for paths in groups.values()))


def _walk(value: Any, path: Path, groups: dict[Path, list[Path]]) -> None:
    groups.setdefault(pattern(path), []).append(path)
    if isinstance(value, dict):
        for key, one in value.items():
            _walk(one, (*path, key), groups)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _walk(one, (*path, index), groups)


def at(value: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value


def placed(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy in which the value at a path was changed; nothing else is copied."""
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = placed(copy[path[0]], path[1:], change)
    return copy


MARK = "@@mark@@"


def text_of(value: Any, raw: str | None = None, indent: int | None = None) -> bytes:
    """JSON; `raw` stands where the mark is."""
    text = json.dumps(value, indent=indent)
    return (text if raw is None else text.replace(f'"{MARK}"', raw, 1)).encode("utf-8", "surrogatepass")


def _renamed(table: dict[str, Any], key: str, new: str) -> dict[str, Any]:
    return {(new if name == key else name): one for name, one in table.items()}


@st.composite
def json_of(draw: Draw, tree: Tree, schema: Schema = NOTHING_KNOWN) -> Mutated:
    """A document of which one place was changed."""
    path = draw(st.sampled_from(draw(st.sampled_from(tree.groups))))
    here = at(tree.value, path)
    inside = [("list" if isinstance(here, list) else "object")] * 2 if isinstance(here, list | dict) else []
    number = ["number"] * 2 if type(here) in (int, float) else []
    kind = draw(
        st.sampled_from(("value", "value", "value", "remove", "rename", "twice", "same", "tail", *inside, *number))
    )
    name = "/".join(map(str, path)) or "all"
    if kind == "number" or (kind == "value" and number and draw(st.booleans())):
        raw = draw(st.sampled_from(NUMBERS))
        return _with_value(tree, path, raw, schema, name)
    if kind == "value":
        return _with_value(tree, path, draw(st.sampled_from(VALUES)), schema, name)
    if kind == "same":
        return _same(draw, tree, name)
    if kind == "tail":
        more = draw(st.sampled_from(("}", "]", "{}", ",", "x", "\0", " 1")))
        return Mutated(text_of(tree.value) + more.encode(), f"json tail: {more!r} behind the end", REFUSE)
    if kind == "list":
        return _list(draw, tree, path, here, name, schema)
    keyed = path and isinstance(path[-1], str)
    if kind == "object":
        new = placed(tree.value, path, lambda table: table | {MARK: 1})
        key = draw(st.sampled_from(("extra", "__class__", "", "\u0000", "format", "edges", "input->logits")))
        return Mutated(
            text_of(new).replace(MARK.encode(), json.dumps(key)[1:-1].encode()), f"json more: {key!r} in {name}"
        )
    if not keyed:
        return _with_value(tree, path, draw(st.sampled_from(VALUES)), schema, name)
    above, key = path[:-1], path[-1]
    if kind == "remove":
        new = placed(tree.value, above, lambda table: {k: v for k, v in table.items() if k != key})
        return Mutated(text_of(new), f"json without: {name}", schema.verdict_without(path))
    if kind == "rename":
        other = draw(
            st.sampled_from((key + " ", key.upper(), key[:-1], "x", "\x1b[1m", "a->b", f"{key}\u0000", "[/b]", "$"))
        )
        if other in at(tree.value, above):
            other = "another"
        new = placed(tree.value, above, lambda table: _renamed(table, key, other))
        return Mutated(text_of(new), f"json rename: {name} to {other!r}", schema.verdict_without(path))
    other = draw(st.sampled_from((json.dumps(here), "null", "0", "[]")))
    new = placed(tree.value, above, lambda table: table | {"@@key@@": MARK})
    data = text_of(new, other).replace(b'"@@key@@"', json.dumps(key).encode(), 1)
    return Mutated(data, f"json twice: {name}, then {other[:40]}", REFUSE)


def _with_value(tree: Tree, path: Path, raw: Raw, schema: Schema, name: str) -> Mutated:
    data = text_of(placed(tree.value, path, lambda _: MARK), raw.text)
    verdict = REFUSE if raw.forbidden else schema.verdict(path, raw.value)
    here = at(tree.value, path)
    if type(here) is type(raw.value) and here == raw.value and not raw.forbidden:
        verdict = ACCEPT
    return Mutated(data, f"json value: {name} = {raw.text[:60]}", verdict)


def _same(draw: Draw, tree: Tree, name: str) -> Mutated:
    """The same document, written otherwise."""
    way = draw(st.sampled_from(("indent", "order", "space", "escapes", "exponents")))
    if way == "indent":
        data = text_of(tree.value, indent=draw(st.integers(0, 4)))
    elif way == "order":
        data = json.dumps(_backwards(tree.value)).encode()
    elif way == "space":
        data = b" \n\t" + text_of(tree.value) + b"\r\n  "
    elif way == "escapes":
        data = json.dumps(tree.value, separators=(" ,\n", " :\t")).replace('"n', '"\\u006e').encode()
    else:
        data = json.dumps(_exponents(tree.value)).replace(f'"{MARK}', "").replace(f'{MARK}"', "").encode()
    return Mutated(data, f"json same: {way}", ACCEPT)


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _backwards(value[key]) for key in reversed(value)}
    return [_backwards(one) for one in value] if isinstance(value, list) else value


def _exponents(value: Any) -> Any:
    """Every float with an exponent: the same number in other digits."""
    if isinstance(value, dict):
        return {key: _exponents(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_exponents(one) for one in value]
    return f"{MARK}{value:.17e}{MARK}" if type(value) is float else value


def _list(draw: Draw, tree: Tree, path: Path, here: Sequence[Any], name: str, schema: Schema) -> Mutated:
    way = draw(st.sampled_from(("shorter", "longer", "twice", "backwards", "empty", "long")))
    if way == "shorter":
        new = here[: draw(st.integers(0, max(0, len(here) - 1)))]
    elif way == "longer":
        new = [*here, draw(st.sampled_from((None, 0, "x", {}, [])))]
    elif way == "twice":
        new = [*here, *here[-1:]]
    elif way == "long":
        new = list(here)[:1] * 10**5
    else:
        new = list(reversed(here)) if way == "backwards" else []
    verdict = REFUSE if pattern(path) in schema.fixed and len(new) != len(here) else None
    return Mutated(text_of(placed(tree.value, path, lambda _: list(new))), f"json list: {name} {way}", verdict)


def _again(draw: Draw, found: Mutated) -> Mutated:
    """A second change, of which nothing is known any more."""
    try:
        value = json.loads(found.data)
    except (ValueError, RecursionError):
        return found
    more = draw(json_of(Tree.of(value)))
    return Mutated(more.data, f"{found.words}, then {more.words}")


@st.composite
def text_of_json(draw: Draw, tree: Tree, schema: Schema = NOTHING_KNOWN) -> Mutated:
    """Mostly structure, some bytes; JSON that was cut is none."""
    way = draw(st.sampled_from(("tree", "tree", "tree", "tree", "bytes", "cut", "other")))
    if way == "tree":
        found = draw(json_of(tree, schema))
        return found if draw(st.integers(0, 5)) else _again(draw, found)
    data = text_of(tree.value)
    if way == "cut":
        end = draw(st.integers(0, len(data) - 1))
        return Mutated(data[:end], f"json cut: at {end} of {len(data)}", REFUSE)
    if way == "other":
        new = draw(
            st.sampled_from(
                (data.decode().encode("utf-16"), b"\xff" + data, b"\0" * 100, b" " * 1000, b"null\n", b'""')
            )
        )
        return Mutated(new, "json other: another encoding, or nothing", REFUSE)
    return draw(bytes_of(data))
