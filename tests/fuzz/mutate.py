"""Generic mutations of valid files: bytes, JSON, tables, .npy and zip archives (.npz, .pt)."""

from __future__ import annotations

import csv
import io
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy], Any]
DEPTH = 10**5
MARK = "@@mark@@"
INTEGERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63)
# Texts that a terminal, a figure or a file system could take for an instruction.
TEXTS = (
    "", "0", "1_0", "x", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "[bold]x[/bold]", "[/]", "[", "$x_{$",
    "$$", "\\frac{", "a\nb", "\u202e", "\0", "\u2028", "\x7f", "../../x", "/etc/passwd", "NaN", "true", "1e5", "\ufeff",
    "{0}", "%s", "a" * 10**5, "[link=file:///x]y[/link]", ":smile:", "²", "٣", "9" * 5000,
)  # fmt: skip
VALUES = (
    None, True, False, -1, 0, 1, 2, 7, 1.5, 2.0, -0.0, 1e-320, 1e308, -1e308, 10**9, 10**12, -(10**12), 10**30, 2**31,
    2**63, [], {}, [None], [[]], {"": None}, [0], {"name": "x"}, *TEXTS,
)  # fmt: skip
# JSON texts, most of which are wrong.
RAW = (
    *map(json.dumps, VALUES), '"\\ud800"', "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "[" * DEPTH, "01", "1.",
    "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "1" + "}" * DEPTH, "9" * 5000, ".5", "+1", "0x1", "'a'", "nul",
    '"a\tb"',
)  # fmt: skip


def mutate(draw: Draw, name: str, data: bytes) -> tuple[bytes, str]:
    """Return new content of a file, changed as its suffix allows, and what was changed."""
    kind = name.rpartition(".")[2]
    change = {"json": mutate_json, "jsonl": mutate_lines, "csv": mutate_table, "npy": mutate_array}.get(kind)
    change = mutate_archive if kind in ("npz", "pt") else change
    if change is None or draw(st.integers(0, 4)) == 0:
        return mutate_bytes(draw, data)
    return change(draw, data)


def mutate_bytes(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change bytes without knowing the format."""
    kind = draw(st.sampled_from(("flip", "cut", "insert", "zeros", "double", "swap", "number", "number", "empty")))
    at = draw(st.integers(0, max(0, len(data) - 1)))
    length = draw(st.sampled_from((1, 2, 4, 8, 64, 1000)))
    new = {
        "flip": lambda: (
            data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :] if data else b""
        ),
        "cut": lambda: data[:at],
        "insert": lambda: data[:at] + draw(st.binary(min_size=1, max_size=64)) + data[at:],
        "zeros": lambda: data[:at] + b"\0" * length + data[at + length :],
        "double": lambda: data[: at + length] + data[at:],
        "swap": lambda: data[at : at + length] + data[length:],
        "number": lambda: _put_number(draw, data, at),
        "empty": lambda: draw(st.sampled_from((b"", b"\0" * 100, b" ", b"\xff" + data, b"null", b"[]", b"{}"))),
    }[kind]()
    return new, f"bytes {kind} at {at} of {len(data)}"


def _put_number(draw: Draw, data: bytes, at: int) -> bytes:
    value = draw(st.sampled_from(INTEGERS))
    width = 8 if value >= 2**32 else draw(st.sampled_from((4, 8)))
    at = at // 4 * 4 if draw(st.booleans()) else at
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


def mutate_json(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change one place of a JSON text."""
    tree = json.loads(data)
    path = draw(st.sampled_from(draw(st.sampled_from(_paths(data)))))
    name = "/".join(map(str, path)) or "all"
    kind = draw(st.sampled_from(("value", "value", "value", "remove", "rename", "add", "list", "spaces", "tail")))
    if kind == "value" or not path:
        raw = draw(st.sampled_from(RAW))
        return json.dumps(_replace(tree, path, MARK)).replace(f'"{MARK}"', raw, 1).encode(), f"{name} = {raw[:60]}"
    if kind == "spaces":
        return b" \n\t" + json.dumps(tree, indent=3).encode() + b"\r\n ", "other white space"
    if kind == "tail":
        return data + draw(st.sampled_from((b"}", b"]", b"{}", b",", b"x", b"\0"))), "more after the end"
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    key, here = path[-1], parent[path[-1]]
    if kind == "list" and isinstance(here, list):
        parent[key] = draw(st.sampled_from((here[:-1], [*here, None], here + here, here[::-1], [], here[:1] * 10**5)))
    elif isinstance(parent, list) or kind == "remove":
        del parent[key]
    elif kind == "rename":
        parent[draw(st.sampled_from((key + " ", key.upper(), key[:-1], *TEXTS[:20], "a->b")))] = parent.pop(key)
    else:
        parent[draw(st.sampled_from(("extra", "__class__", "", "format", "edges", "input->logits")))] = here
    return json.dumps(tree).encode(), f"{kind} {name}"


@cache
def _paths(data: bytes) -> tuple[tuple[tuple[Any, ...], ...], ...]:
    """Return the paths of a JSON text in groups of similar ones, so that every kind of place is equally likely."""
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        is_wide = len(path) > 1 and path[-2] in ("edges", "nodes")
        pattern = tuple("*" if isinstance(key, int) else key for key in path)
        groups.setdefault((*pattern[:-1], "*") if is_wide else pattern, []).append(path)
        for key, part in value.items() if isinstance(value, dict) else enumerate(value) if type(value) is list else ():
            walk(part, (*path, key))

    walk(json.loads(data), ())
    return tuple(map(tuple, groups.values()))


def _replace(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value[path[0]] = _replace(value[path[0]], path[1:], new)
    return value


def mutate_lines(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change the first line of a file with a JSON object per line."""
    first, _, rest = data.partition(b"\n")
    new, words = mutate_json(draw, first)
    return new + b"\n" + rest * draw(st.sampled_from((0, 1, 1, 200))), f"line 1: {words}"


def mutate_table(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change one cell of a CSV file, or the length of a row."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    row, column = draw(st.integers(0, 2)), draw(st.integers(0, len(rows[0]) - 1))
    rows[row][column] = draw(
        st.sampled_from((*TEXTS, "x" * 140000, "[1, 2]", "[1,,2]", "1 2 3", '"', "\r", "a,b", "-1"))
    )
    if draw(st.integers(0, 4)) == 0:
        rows[row] = draw(st.sampled_from((rows[row][:-1], [*rows[row], "x"], [])))
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode("utf-8", "surrogatepass"), f"cell {row}, {column}"


HEADERS = (
    "", "{}", "()", "x", "{" * 50, "(" * 2000, "[" * 9000, "__import__('os').system('true')", "{1: 2}", "\xff\xfe",
    "1" * 6000, "-" * 5000 + "1", "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1" * 50 + ", " * 30,
    "{'descr': [('a', '<f8', (10**9,))], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': ('<f8', (2, 2)), 'fortran_order': False, 'shape': (1,)}",
)  # fmt: skip
DTYPES = (
    "'<f4'", "'>f8'", "'<f2'", "'<c16'", "'<i8'", "'|b1'", "'<u1'", "'<U4'", "'|S8'", "'<M8[s]'", "'|V8'", "'|O'", "3",
    "[('a', '<f8')]", "[('a', '|O')]", "('<f8', {'x': 1})", "'V99999999999'",
)  # fmt: skip
SHAPES = (
    "()", "(0,)", "(-1,)", "(1000000000000,)", "(1, 100000000)", "(True,)", "(1.0,)", "('1',)", "5", "None",
    "(4611686018427387904, 4)", str((1,) * 70), "(0, 99999999999999999999)",
)  # fmt: skip


def mutate_array(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change the header of a .npy file."""
    start = 10 + int.from_bytes(data[8:10], "little")
    header = data[10:start].decode("latin1")
    kind = draw(st.sampled_from(("descr", "shape", "header", "order", "value")))
    if kind == "value":
        at = start + draw(st.integers(0, max(0, len(data) - start - 8))) // 8 * 8
        value = draw(st.sampled_from((float("nan"), float("inf"), 1e308, 1e-320, -0.0, -1.0)))
        return data[:at] + struct.pack("<d", value) + data[at + 8 :], f"value {value}"
    if kind == "header":
        new = draw(st.sampled_from(HEADERS))
    elif kind == "order":
        new = header.replace("False", draw(st.sampled_from(("True", "1", "None"))))
    else:
        field, values = ("'descr': ", DTYPES) if kind == "descr" else ("'shape': ", SHAPES)
        before, _, after = header.partition(field)
        end = after.index(", '") if kind == "descr" else after.index(")") + 1
        new = f"{before}{field}{draw(st.sampled_from(values))}{after[end:]}"
    text = new.encode("latin1") + b"\n"
    return data[:8] + struct.pack("<H", len(text)) + text + data[start:], f"header {new[:80]}"


CODE = "import os; os.environ['EDGEWISE_FUZZ_CODE_RAN'] = '1'"


def hostile_pickle(draw: Draw) -> bytes:
    """Return a pickle that runs code, or takes all memory, if it is loaded without care."""
    module, name, argument = draw(
        st.sampled_from(
            (("builtins", "exec", CODE), ("builtins", "eval", f"exec({CODE!r})"), ("os", "system", "false"),
             ("torch.hub", "load", "x"), ("torch", "load", "x"),
             ("runpy", "run_path", "x"), ("builtins", "getattr", "x"),
             ("builtins", "bytearray", 2**31 - 1), ("torch", "Tensor", 2**31 - 1))
        )
    )  # fmt: skip
    text = argument.encode() if isinstance(argument, str) else b""
    value = b"X" + struct.pack("<I", len(text)) + text if text else b"J" + struct.pack("<i", argument)
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + value + b"\x85R."


def mutate_archive(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """Change one member of a zip archive, the list of members or the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = draw(st.sampled_from(sorted(members)))
    kind = draw(
        st.sampled_from(("member", "member", "member", "rename", "repeat", "remove", "add", "directory", "bomb"))
    )
    parts = [(member, content, zipfile.ZIP_STORED) for member, content in members.items()]
    if kind == "member":
        is_pickle = name.endswith(".pkl") and draw(st.booleans())
        new, words = (hostile_pickle(draw), "hostile pickle") if is_pickle else mutate(draw, name, members[name])
        method = draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
        return make_archive([(m, new if m == name else c, method) for m, c, _ in parts]), f"{name}: {words}"
    if kind == "bomb":
        claimed = draw(st.sampled_from((None, 100, len(members[name]))))
        return make_bomb(members, name, claimed), f"bomb in {name}, claims {claimed}"
    if kind == "directory":
        new = bytearray(make_archive(parts))
        entries = [at for at in range(len(new)) if new.startswith(b"PK\x01\x02", at)]
        offset, form = draw(st.sampled_from(((8, "<H"), (10, "<H"), (16, "<I"), (20, "<I"), (24, "<I"), (42, "<I"))))
        value = draw(st.sampled_from((0, 1, 8, 99, *INTEGERS))) % 2 ** (8 * struct.calcsize(form))
        struct.pack_into(form, new, draw(st.sampled_from(entries)) + offset, value)
        return bytes(new), f"directory field {offset} = {value}"
    other = draw(st.sampled_from((f"../{name}", f"/{name}", name.upper(), "x\0y", f"{name}/", "\x1b[1m.npy", "x.npy")))
    content = draw(st.sampled_from((members[name], b"", b"big", members[name][:-1])))
    if kind == "rename":
        parts = [(other if m == name else m, c, method) for m, c, method in parts]
    elif kind == "remove":
        parts = [part for part in parts if part[0] != name]
    else:
        parts.append((other if kind == "add" else name, content, zipfile.ZIP_STORED))
    return make_archive(parts), f"{kind} {name}"


def make_archive(parts: list[tuple[str, bytes, int]]) -> bytes:
    """Return a zip archive of (name, content, method)."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for name, content, method in parts:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return file.getvalue()


def make_bomb(members: Mapping[str, bytes], name: str, claimed: int | None, megabytes: int = 700) -> bytes:
    """Return an archive in which one member decompresses to many zeros; it may claim another size."""
    begin = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = begin.compress(members[name]) + begin.flush(zlib.Z_FULL_FLUSH) + _zeros(megabytes)
    size = len(members[name]) + megabytes * 2**20 if claimed is None else claimed
    entries = [(one, held, 0, len(held), zlib.crc32(held)) for one, held in members.items() if one != name]
    entries.append((name, packed, 8, size, 0))
    body, directory = b"", b""
    for member, content, method, length, checksum in entries:
        text = member.encode()
        facts = struct.pack("<HHHIIIHH", method, 0, 0x21, checksum, len(content), length, len(text), 0)
        directory += b"PK\x01\x02" + struct.pack("<HHH", 20, 20, 0) + facts
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + text
        body += b"PK\x03\x04" + struct.pack("<HH", 20, 0) + facts + text + content
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


@cache
def _zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b"\0" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + packer.flush()
