"""Mutations of npy and of zip archives (npz, pt): headers, shapes, sizes that lie, bombs."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .inputs import ACCEPT, REFUSE
from .mutate import Mutated, bytes_of

Draw = Callable[[st.SearchStrategy], Any]
MAGIC = b"\x93NUMPY"
HEADERS = (
    "",
    "{}",
    "()",
    "None",
    "x",
    "{'descr': '<f8'}",
    "{" * 50,
    "(" * 2000,
    "[" * 20000,
    "{'descr': '<f8', 'fortran_order': False, 'shape': (",
    "__import__('os').system('true')",
    "{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}",
    "{1: 2}",
    "{'shape': 1}",
    "\xff\xfe",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'more': 1}",
    "{'descr': None, 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [('a', '<f8', (10**9,))], 'fortran_order': False, 'shape': (1,)}",
    "1" * 6000,
    "-" * 5000 + "1",
    "{'descr': [], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': ('<f8', (2, 2)), 'fortran_order': False, 'shape': (1,)}",
)
SHAPES = (
    "()",
    "(0,)",
    "(0, 0)",
    "(-1,)",
    "(1000000000000,)",
    "(1, 100000000)",
    "(True,)",
    "(1.0,)",
    "('1',)",
    "5",
    "None",
    "(4611686018427387904, 4)",
    "(2,) * 3",
    "(1,) * 70",
    str((1,) * 40),
)


def npy(
    descr: str, shape: str, data: bytes, fortran: object = False, version: tuple[int, int] = (1, 0), pad: str = ""
) -> bytes:
    """An npy file of these very words."""
    return framed(f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, {pad}}}", data, version)


def framed(header: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy file of a header's text and data."""
    text = header.encode("latin1" if version != (3, 0) else "utf-8", "replace")
    text += b" " * (-(len(text) + 1 + (10 if version == (1, 0) else 12)) % 64) + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text) % 2**16 if version == (1, 0) else len(text))
    return MAGIC + bytes(version) + length + text + data


@st.composite
def npy_of(draw: Draw, array: np.ndarray, kinds: str = "f", fixed: bool = True, finite: bool = True) -> Mutated:
    """The npy of an array, changed.

    kinds   of dtypes that its reader takes
    fixed   whether its shape is known beforehand; otherwise it may have other rows
    finite  whether its values must be
    """
    way = draw(
        st.sampled_from(
            ("dtype", "shape", "order", "version", "header", "cut", "long", "value", "rows", "bytes", "object", "names")
        )
    )
    descr, shape, data = repr(array.dtype.str), repr(array.shape), array.tobytes()
    if way == "dtype":
        new = draw(
            st.sampled_from(
                (
                    "<f4",
                    ">f8",
                    "<f2",
                    "<f8",
                    "<c16",
                    "<i8",
                    "|b1",
                    "<u1",
                    "<U4",
                    "|S8",
                    "<M8[s]",
                    "<m8[D]",
                    "|V8",
                    "<f16",
                )
            )
        )
        with np.errstate(all="ignore"):
            try:
                other = array.astype(new)
            except (TypeError, ValueError):
                other = np.zeros(array.shape, new)
        given = npy(repr(new), shape, other.tobytes())
        return Mutated(given, f"npy dtype: {new}", None if other.dtype.kind in kinds else REFUSE)
    if way == "shape":
        new = draw(
            st.sampled_from(
                (
                    *SHAPES,
                    repr((*array.shape[::-1], 1)),
                    repr((*array.shape, 1)),
                    repr((1, *array.shape)),
                    repr(tuple(n + 1 for n in array.shape)),
                )
            )
        )
        return Mutated(npy(descr, new, data), f"npy shape: {new}", REFUSE if fixed else None)
    if way == "order":
        fortran = draw(st.sampled_from((True, 1, "'x'", None)))
        same = np.asfortranarray(array).tobytes("A") if fortran is True else data
        return Mutated(
            npy(descr, shape, same, fortran),
            f"npy order: {fortran}",
            ACCEPT if fortran is True and array.ndim < 2 else None,
        )
    if way == "version":
        version = draw(st.sampled_from(((1, 0), (2, 0), (3, 0), (0, 0), (9, 9), (1, 1))))
        verdict = ACCEPT if version in ((1, 0), (2, 0), (3, 0)) else REFUSE
        return Mutated(npy(descr, shape, data, version=version), f"npy version: {version}", verdict)
    if way == "header":
        header = draw(st.sampled_from(HEADERS))
        return Mutated(
            framed(header, data, draw(st.sampled_from(((1, 0), (2, 0))))), f"npy header: {header[:60]}", REFUSE
        )
    if way == "cut":
        whole = npy(descr, shape, data)
        end = draw(st.integers(0, len(whole) - 1))
        return Mutated(whole[:end], f"npy cut: at {end} of {len(whole)}", REFUSE)
    if way == "long":
        more = draw(st.sampled_from((1, 8, 1000)))
        return Mutated(npy(descr, shape, data + b"\0" * more), f"npy long: {more} bytes too many", REFUSE)
    if way == "value" and array.dtype.kind == "f":
        changed = array.copy()
        value = draw(st.sampled_from((np.nan, np.inf, -np.inf, 1e308, 1e-320, -0.0)))
        changed.reshape(-1)[draw(st.integers(0, array.size - 1))] = value
        return Mutated(
            npy(descr, shape, changed.tobytes()),
            f"npy value: {value}",
            REFUSE if finite and not np.isfinite(value) else None,
        )
    if way == "rows":
        other = draw(
            st.sampled_from(
                (
                    array[:0],
                    array[:-1],
                    array[1:],
                    array[..., :-1],
                    array[None],
                    array.reshape(-1),
                    np.concatenate([array, array[:1]]),
                )
            )
        )
        verdict = ACCEPT if other.shape == array.shape and (other == array).all() else REFUSE if fixed else None
        return Mutated(
            npy(descr, repr(other.shape), other.tobytes()), f"npy rows: {other.shape} for {array.shape}", verdict
        )
    if way == "object":
        return Mutated(npy("'|O'", shape, hostile_pickle(draw)), "npy object: a pickle inside", REFUSE)
    if way == "names":
        record = draw(
            st.sampled_from(
                (
                    "[('a', '<f8')]",
                    "[('a', '<f4'), ('b', '<f4')]",
                    "[('', '<f8')]",
                    "[('a', '|O')]",
                    "('<f8', {'x': 1})",
                    "[('a', [('b', '<f8')])]",
                )
            )
        )
        return Mutated(npy(record, shape, data), f"npy names: {record}", REFUSE if "V" not in kinds else None)
    return draw(bytes_of(npy(descr, shape, data)))


CODE = "import os; os.environ['EDGEWISE_FUZZ_CODE_RAN'] = '1'"


def hostile_pickle(draw: Draw) -> bytes:
    """A pickle that runs code if it is loaded as pickles are."""
    module, name, given = draw(
        st.sampled_from(
            (
                ("builtins", "exec", CODE),
                ("builtins", "eval", f"exec({CODE!r})"),
                ("os", "system", "false"),
                ("torch.hub", "load", "x"),
                ("torch", "load", "x"),
                ("torch._dynamo.guards", "exec", CODE),
                ("numpy", "load", "x"),
                ("runpy", "run_path", "x"),
                ("builtins", "getattr", "x"),
            )
        )
    )
    protocol = draw(st.sampled_from((0, 2, 4)))
    text = given.encode()
    call = b"X" + struct.pack("<I", len(text)) + text + b"\x85R."
    head = b"" if protocol == 0 else bytes([0x80, protocol])
    return head + f"c{module}\n{name}\n".encode() + call


def member(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> tuple[str, bytes, int]:
    """A member of an archive that is to be made."""
    return name, data, method


def archive(members: Sequence[tuple[str, bytes, int]]) -> bytes:
    """A zip of members, of equal bytes every time."""
    file = io.BytesIO()
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as made:
        warnings.simplefilter("ignore")
        for name, data, method in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            made.writestr(info, data)
    return file.getvalue()


@cache
def zeros(megabytes: int) -> bytes:
    """A deflated stream of that many zeros: one block, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(b"\0" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    return packed * megabytes + packer.flush()


def bomb(members: Mapping[str, bytes], name: str, head: bytes, megabytes: int, claimed: int | None = None) -> bytes:
    """An archive of which one member is a few bytes, then zeros, more than anybody wants; it may claim another size."""
    begin = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = begin.compress(head) + begin.flush(zlib.Z_FULL_FLUSH) + zeros(megabytes)
    size = len(head) + megabytes * 2**20
    entries = [(one, held, 0, len(held), zlib.crc32(held)) for one, held in members.items() if one != name]
    entries.append((name, data, 8, size if claimed is None else claimed, _checksum(head, megabytes)))
    body, directory = b"", b""
    for one, held, method, length, checksum in entries:
        text = one.encode()
        facts = struct.pack("<HHHIIIHH", method, 0, 0x21, checksum, len(held), length, len(text), 0)
        directory += b"PK\x01\x02" + struct.pack("<HHH", 20, 20, 0) + facts
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + text
        body += b"PK\x03\x04" + struct.pack("<HH", 20, 0) + facts + text + held
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + end


@cache
def _checksum(head: bytes, megabytes: int) -> int:
    found, block = zlib.crc32(head), b"\0" * 2**20
    for _ in range(megabytes):
        found = zlib.crc32(block, found)
    return found


CENTRAL = b"PK\x01\x02"
# Fields of an archive's directory: their place in an entry and their format.
FIELDS = {
    "flags": (8, "<H"),
    "method": (10, "<H"),
    "checksum": (16, "<I"),
    "packed": (20, "<I"),
    "size": (24, "<I"),
    "name": (28, "<H"),
    "extra": (30, "<H"),
    "comment": (32, "<H"),
    "offset": (42, "<I"),
}


@st.composite
def zip_of(
    draw: Draw, members: Mapping[str, bytes], change: Callable[[Draw, str], Mutated], needed: Sequence[str]
) -> Mutated:
    """An archive of which a member, the list of members or the directory was changed.

    change  (draw, a member's name) -> the member, mutated
    needed  the members that a reader can't do without
    """
    way = draw(
        st.sampled_from(
            ("member", "member", "member", "packed", "renamed", "twice", "without", "more", "lies", "bytes", "cut")
        )
    )
    held = [member(name, data) for name, data in members.items()]
    place = draw(st.integers(0, len(held) - 1))
    name, data, _ = held[place]
    if way == "member":
        found = change(draw, name)
        method = draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        held[place] = member(name, found.data, method)
        return Mutated(archive(held), f"zip {name}: {found.words}", found.verdict)
    if way == "packed":
        method = draw(st.sampled_from((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)))
        held[place] = member(name, data, method)
        return Mutated(archive(held), f"zip packed: {name} by {method}")
    if way == "renamed":
        other = draw(
            st.sampled_from(
                (f"../{name}", f"/{name}", name.upper(), "", "x\0y", f"{name}/", "\x1b[1m.npy", "a" * 60000)
            )
        )
        held[place] = member(other, data)
        return Mutated(archive(held), f"zip renamed: {name} to {other[:30]!r}", REFUSE if name in needed else None)
    if way == "twice":
        other = draw(st.sampled_from((data, b"", data[:-1], change(draw, name).data)))
        return Mutated(archive([*held, member(name, other)]), f"zip twice: {name}", REFUSE if name in needed else None)
    if way == "without":
        del held[place]
        return Mutated(archive(held), f"zip without: {name}", REFUSE if name in needed else None)
    if way == "more":
        more = draw(st.sampled_from(("more.npy", "x", "archive/data/99", "archive/byteorder", "__pycache__/x.py")))
        return Mutated(
            archive([*held, member(more, draw(st.sampled_from((b"", b"little", b"big", data))))]), f"zip more: {more}"
        )
    whole = archive(held)
    if way == "cut":
        end = draw(st.integers(0, len(whole) - 1))
        return Mutated(whole[:end], f"zip cut: at {end} of {len(whole)}", REFUSE)
    if way == "lies":
        entries = [at for at in range(len(whole)) if whole.startswith(CENTRAL, at)]
        entry = entries[place] if place < len(entries) else entries[0]
        field = draw(st.sampled_from(sorted(FIELDS)))
        offset, form = FIELDS[field]
        most = 2 ** (8 * struct.calcsize(form)) - 1
        value = draw(
            st.sampled_from((0, 1, 8, 12, 14, 99, most // 2, most - 1, most, len(data) + 1, len(data) * 2))
        ) % (most + 1)
        new = bytearray(whole)
        struct.pack_into(form, new, entry + offset, value)
        return Mutated(bytes(new), f"zip lies: {field} of {name} = {value}")
    return draw(bytes_of(whole))
