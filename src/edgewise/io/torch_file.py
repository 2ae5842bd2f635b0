"""What torch saved, read without torch: tensors and plain values, nothing that could run.

A file is a zip of stored members: `data.pkl` is a pickle that names tensors, and a member per storage has the numbers.
The pickle is read by an interpreter that knows the few instructions of plain data and calls nothing but what is listed
here. A tensor stays a note of where its numbers are until its array is asked for, and it may not be larger than its
storage: so no file becomes more memory than it has bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .reading import file_size, wrap_read_errors

# By the storage's class: how torch calls the numbers, and how NumPy reads them.
STORAGES = {
    "DoubleStorage": ("float64", "<f8"),
    "FloatStorage": ("float32", "<f4"),
    "HalfStorage": ("float16", "<f2"),
    "BFloat16Storage": ("bfloat16", "<u2"),
    "LongStorage": ("int64", "<i8"),
    "IntStorage": ("int32", "<i4"),
    "ShortStorage": ("int16", "<i2"),
    "CharStorage": ("int8", "i1"),
    "ByteStorage": ("uint8", "u1"),
    "BoolStorage": ("bool", "u1"),
}
PURE: Any = pickle._Unpickler  # type: ignore[attr-defined]
# How much text may be there again by reference, for every byte of a pickle.
REPEATED = 64
# Those of torch's protocol, 2, that plain data needs.
OPCODES = (
    pickle.PROTO, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1,
    pickle.BINFLOAT, pickle.BINUNICODE, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1,
    pickle.TUPLE2, pickle.TUPLE3, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT,
    pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINPERSID, pickle.GLOBAL,
)  # fmt: skip


@dataclass(frozen=True)
class Global:
    """The name of something of Python's, which isn't fetched."""

    module: str
    name: str


@dataclass(frozen=True)
class Storage:
    """Numbers of one kind, in a member of the file."""

    kind: str
    item: np.dtype[Any]
    length: int
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Tensor:
    """A dense tensor: which numbers of a storage it has, in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The dtype, as torch calls it."""
        return self.storage.kind

    def array(self) -> NDArray[Any]:
        """Its numbers; those of half precision as float32, which holds them exactly, and flags as bytes."""
        item = self.storage.item
        flat = np.frombuffer(self.storage.read(), item)[self.offset :]
        strides = tuple(step * item.itemsize for step in self.strides)
        found: NDArray[Any] = np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)
        if self.kind == "bfloat16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32) if self.kind == "float16" else found


def read_torch(path: Path) -> Any:
    """The plain values and `Tensor`s of a file that `torch.save` wrote."""
    size = file_size(path)
    with wrap_read_errors(path), path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        raise InputError(
            f"{path} isn't a torch file: it was saved by a torch older than 1.6, or not by torch; save it again"
        )
    with wrap_read_errors(path, "it isn't a torch file, or it is damaged"):
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, size)
            data = archive.read(members["data.pkl"])
            if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
                raise InputError(f"{path} was saved on a big-endian machine; save it again on another one")
        return _Unpickler(data, path, members).load()


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by their names below the folder that torch puts them into; stored, each once, none inside another."""
    infos = archive.infolist()
    folder = infos[0].filename.partition("/")[0] + "/"
    found = {info.filename.removeprefix(folder): info for info in infos if info.filename.startswith(folder)}
    if len(found) != len(infos) or sum(info.file_size for info in infos) > size:
        raise ValueError("its members are more than it has room for")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            raise ValueError("its members are compressed, which torch doesn't do")
    return found


class _Unpickler(PURE):
    """The pure Python unpickler, with few instructions: that in C takes memory as the file says."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {code[0]: PURE.dispatch[code[0]] for code in OPCODES}

    def __init__(self, data: bytes, path: Path, members: Mapping[str, zipfile.ZipInfo]) -> None:
        super().__init__(io.BytesIO(data))
        self.path, self.members, self.repeats = path, members, REPEATED * len(data)

    def find_class(self, module: str, name: str) -> Global:
        """The name alone."""
        if module.partition(".")[0] != "torch" and (module, name) != ("collections", "OrderedDict"):
            raise InputError(
                f"{self.path} isn't a torch file of tensors and plain values: it wants {module}.{name}, and nothing "
                "else is loaded, because it could run code; give a file that EAP-IG, MIB or edgewise wrote"
            )
        return Global(module, name)

    def persistent_load(self, pid: Any) -> Storage:
        """A storage, whose numbers must all be there."""
        tag, kind, key, _, length = pid
        if tag != "storage" or not isinstance(kind, Global) or type(length) is not int:
            raise ValueError("it refers to something that is no storage")
        if kind.module != "torch" or kind.name not in STORAGES:
            raise InputError(f"{self.path} holds a {kind.name}, but a dense tensor of plain numbers is expected")
        name, item = STORAGES[kind.name]
        member, size = self.members[f"data/{key}"], np.dtype(item).itemsize
        if member.file_size != length * size:
            raise ValueError(f"a storage should have {length} numbers, but has {member.file_size} bytes")
        return Storage(name, np.dtype(item), length, lambda: self._read(member))

    def _read(self, member: zipfile.ZipInfo) -> bytes:
        with wrap_read_errors(self.path), zipfile.ZipFile(self.path) as archive:
            return archive.read(member)

    def load_reduce(self) -> None:
        """Call one of the few functions that are known; others of torch's make something that can't be used."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or type(arguments) is not tuple:
            raise ValueError("it calls what is no function")
        self.append(CALLS[function](*arguments) if function in CALLS else function)

    def load_setitem(self) -> None:
        """One item of a dictionary."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        """Several items of a dictionary."""
        self._set(self.pop_mark())

    def _set(self, items: list[Any]) -> None:
        into = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(into) is not dict or type(key) is not str or key in into:
                raise ValueError("a dictionary's keys must be text, each once")
            into[key] = value

    def load_binget(self) -> None:
        """What was there before."""
        self._get(self.read(1)[0])

    def load_long_binget(self) -> None:
        """What was there before, of many."""
        self._get(int.from_bytes(self.read(4), "little"))

    def _get(self, place: int) -> None:
        """Text and tensors may be there again: not lists of lists, which would grow without end as they are read."""
        found = self.memo[place]
        self.repeats -= len(found) if isinstance(found, str) else 0
        if isinstance(found, list | tuple | dict) or self.repeats < 0:
            raise ValueError("it refers to the same data again and again")
        self.append(found)

    dispatch |= {
        pickle.BINGET[0]: load_binget,
        pickle.LONG_BINGET[0]: load_long_binget,
        pickle.REDUCE[0]: load_reduce,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    """A tensor, all of whose numbers lie in its storage, which is as large as it is at least."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or any(type(one) is not int or one < 0 for one in numbers):
        raise ValueError("a tensor must have a storage, a shape and strides")
    count = math.prod(shape)
    last = sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if count > storage.length or (count and offset + last >= storage.length):
        raise ValueError(f"a tensor of shape {list(shape)} is larger than its storage of {storage.length} numbers")
    return Tensor(storage, offset if count else 0, tuple(shape), tuple(strides))


CALLS: dict[Global, Callable[..., Any]] = {
    Global("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Global("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    Global("collections", "OrderedDict"): lambda: {},
}
