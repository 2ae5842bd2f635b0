"""Files that a stranger may have made: read strictly, in words, and with no more memory than the file is worth."""

from __future__ import annotations

import json
import math
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

# An array's shape: None where any length will do.
Shape = tuple[int | None, ...]
KINDS = {"f": "floating-point numbers", "u1": "bytes", "b": "true and false"}
# What a compressed array may hold: this much in any case, beyond that so many times its compressed bytes. Circuits of
# a model's edges, packed as bits, take a tenth of their size; zeros alone would take a thousandth.
ALWAYS_BYTES, RATIO = 16 * 2**20, 50
LONGEST_HEADER = 10_000
MOST_ARRAYS = 1000
# The largest record. JSON takes up to twenty times its bytes when it is read.
LARGEST_RECORD = 16 * 2**20
HEADER = re.compile(
    r"\{'descr': '([<>|=]?[a-zA-Z]\d{0,9})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,18},? ?)*)\), \} *\n?"
)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@contextmanager
def wrap_read_errors(what: object, advice: str = "") -> Iterator[None]:
    """Whatever a library raises while it reads `what`, usually a path, becomes an `InputError` that names it."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # What libraries in Rust raise stands beside all other errors.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = error.strerror if isinstance(error, OSError) else None
        why = "it needs more memory than there is" if isinstance(error, MemoryError) else why or first_line(error)
        # With its cause if that isn't in the file: what can't be read just now isn't damaged.
        cause = error if isinstance(error, OSError | MemoryError) else None
        raise InputError(f"{what} can't be read: {why.rstrip('.')}" + (f"; {advice}" if advice else "")) from cause


def first_line(error: BaseException) -> str:
    """What a library says, without the advice that often follows; its kind if it says nothing."""
    words = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    lines = [line.strip() for line in words.splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def file_size(path: Path, largest: int | None = None) -> int:
    """The bytes of a file, at most `largest`; refuses what is none, such as a pipe, which would be waited for."""
    with wrap_read_errors(path):
        try:
            found = path.stat()
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path}") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'no regular file'}; give a file")
    if largest is not None and found.st_size > largest:
        raise InputError(f"{path} has {found.st_size:,} bytes, but a file of its kind may have {largest:,}")
    return found.st_size


def read_json(path: Path, finite: bool = True, largest: int = LARGEST_RECORD) -> Any:
    """Read JSON as `parse_json` does, of at most `largest` bytes, and only text that can be written again."""
    file_size(path, largest)
    with wrap_read_errors(path):
        data = path.read_bytes()
        try:
            text = data.decode("utf-8")
            del data
            found = parse_json(text, finite)
            if SURROGATE.search(text):
                json.dumps(found, ensure_ascii=False).encode("utf-8")  # fails for half a character
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} isn't JSON: {first_line(error)}") from None
    return found


def parse_json(text: str, finite: bool = True) -> Any:
    """JSON as its standard has it, every key once, else a `ValueError` or `RecursionError`.

    finite  whether NaN and infinite numbers, which are no JSON, but which many write, are refused
    """
    return strict_decoder(finite).decode(text)


def strict_decoder(finite: bool = True) -> json.JSONDecoder:
    """What `parse_json` reads by."""
    numbers: dict[str, Any] = {"parse_constant": _refuse_number, "parse_float": _finite} if finite else {}
    return json.JSONDecoder(object_pairs_hook=_once, **numbers)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there more than once")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text} is no finite number")


def read_format(path: Path, name: str, version: int) -> dict[str, Any]:
    """Read a JSON object of ours, without its format and version; says so if they are others."""
    found = read_json(path)
    found = found if isinstance(found, dict) else {}
    known = [found.pop("format", None), found.pop("version", None)]
    if known != [name, version] or type(known[1]) is not int:
        kind, number = (repr(one) if isinstance(one, str | int | None) else "of its own" for one in known)
        raise InputError(f"{path} is of format {kind} version {number}; this edgewise reads {name} version {version}")
    return found


class Header(NamedTuple):
    """What an array says of itself, and where its numbers begin."""

    kind: np.dtype[Any]
    order: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """The bytes that its numbers take."""
        return math.prod(self.shape) * self.kind.itemsize


def read_array(path: Path, kind: str = "", shape: Shape | None = None) -> NDArray[Any]:
    """The array of a .npy, memory-mapped and read-only: it costs no memory until it is looked at.

    kind   how its dtype must begin, such as 'f' or 'u1'
    shape  that it must have; None for any

    All is checked before the numbers are touched, and the file must hold exactly as many as it says.
    """
    held = file_size(path)
    with wrap_read_errors(path):
        with path.open("rb") as file:
            header = _header(file, path)
        _check_header(header, kind, shape, path)
        if header.start + header.size != held:
            raise InputError(
                f"{path} is damaged: it says {header.size:,} bytes of numbers, but has {held - header.start:,}"
            )
        if not header.size:
            return np.empty(header.shape, header.kind, header.order)  # type: ignore[call-overload,no-any-return]
        return np.memmap(path, header.kind, "r", header.start, header.shape, header.order)  # type: ignore[call-overload,no-any-return]


def read_arrays(
    path: Path, expected: Mapping[str, tuple[str, Shape]], only: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz that must hold those expected, name -> (kind, shape) as in `read_array`, and no others.

    only  those to read; all are checked. Nothing is decompressed that is larger than compressed numbers can be.
    """
    held = file_size(path)
    found = {}
    with wrap_read_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sorted(one.filename for one in members) != sorted(f"{name}.npy" for name in expected):
            has = ", ".join(one.filename for one in members)
            raise InputError(f"{path} must hold the arrays {', '.join(expected)}, each once, but has {has or 'none'}")
        for name, (kind, shape) in expected.items():
            member, what = archive.getinfo(f"{name}.npy"), f"{name} in {path}"
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.compress_size > held:
                raise InputError(f"{what} is compressed in a way that NumPy doesn't write")
            if member.file_size > max(ALWAYS_BYTES, RATIO * member.compress_size):
                raise InputError(
                    f"{what} would be {member.file_size:,} bytes of {member.compress_size:,}: no array of numbers is"
                )
            with archive.open(member) as file:
                header = _header(file, what)
                _check_header(header, kind, shape, what)
                if header.start + header.size != member.file_size:
                    raise InputError(f"{what} is damaged: it says {header.size:,} bytes of numbers, but has others")
                if only is None or name in only:
                    content = file.read(header.size)
                    if len(content) != header.size or file.read(1):  # the last read checks the sum of all
                        raise InputError(f"{what} is damaged: its numbers end too early")
                    found[name] = np.frombuffer(content, header.kind).reshape(header.shape, order=header.order)  # type: ignore[call-overload]
    return found


def array_headers(path: Path) -> dict[str, Header]:
    """What the arrays of a .npz say of themselves, by name; that of a .npy has none. No number is read."""
    file_size(path)
    with wrap_read_errors(path):
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return {"": _header(file, path)}
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise InputError(f"{path} holds {len(members):,} arrays, but at most {MOST_ARRAYS} are expected")
            found = {}
            for member in members:
                with archive.open(member) as file:
                    found[member.filename.removesuffix(".npy")] = _header(file, f"{member.filename} in {path}")
            return found


def _header(file: IO[bytes], what: object) -> Header:
    """An array's header, read strictly, as NumPy writes it: nothing is evaluated."""
    start = file.read(8)
    long = start[6:7] in (b"\x02", b"\x03")
    if start[:6] != b"\x93NUMPY" or start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise InputError(f"{what} can't be read: it isn't an array of NumPy")
    length = file.read(4 if long else 2)
    size = int.from_bytes(length, "little")
    text = file.read(size) if size <= LONGEST_HEADER else b""
    found = HEADER.fullmatch(text.decode("latin-1"))
    if found is None or len(text) != size:
        raise InputError(f"{what} can't be read: its header is damaged, or of no plain array")
    kind, fortran, shape = found.groups()
    lengths = tuple(int(one) for one in shape.replace(" ", "").split(",") if one)
    return Header(np.dtype(kind), "F" if fortran == "True" else "C", lengths, 8 + len(length) + size)


def _check_header(header: Header, kind: str, shape: Shape | None, what: object) -> None:
    held = f"{header.kind.kind}{header.kind.itemsize}"
    if header.kind.hasobject or not header.kind.isnative or not held.startswith(kind):
        raise InputError(f"{what} holds {header.kind}, but {KINDS.get(kind, 'plain numbers')} are expected")
    fits = shape is None or (
        len(shape) == len(header.shape)
        and all(wanted in (None, length) for wanted, length in zip(shape, header.shape, strict=True))
    )
    if not fits:
        words = ", ".join("any" if one is None else f"{one}" for one in shape or ())
        raise InputError(f"{what} has shape {list(header.shape)}, but [{words}] is expected")
