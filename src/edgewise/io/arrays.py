"""Read and write NumPy's files: .npy and .npz, checked before any memory is allocated."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .atomic import CHUNK_BYTES, atomic_file, write_bytes
from .reading import file_size, wrap_read_errors

# The shape of an array; None stands for any length.
Shape = tuple[int | None, ...]
DTYPE_WORDS = {"f": "floating-point numbers", "u1": "bytes", "b": "true and false"}
# A compressed array may have this many bytes, or this many times its compressed bytes. Packed masks compress to a
# tenth of their size; an array of zeros to a thousandth.
ALWAYS_BYTES, MAX_COMPRESSION = 16 * 2**20, 50
MAX_HEADER_BYTES = 10_000
MAX_ARRAYS = 1000


class ArrayHeader(NamedTuple):
    """The header of an array in a file, and the position of the first number."""

    dtype: np.dtype[Any]
    order: str
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_array(path: Path, kind: str = "", shape: Shape | None = None) -> NDArray[Any]:
    """Return the array of a .npy file, memory-mapped and read-only.

    Parameters
    ----------
    kind
        What the dtype must start with, such as 'f' or 'u1'.
    shape
        The expected shape, with None for any length; None for any shape.

    Raises
    ------
    InputError
        If the array is of another kind or shape, or the file's size does not match its header.
    """
    size = file_size(path)
    with wrap_read_errors(path):
        with path.open("rb") as file:
            header = _read_header(file, path)
        _check_header(header, kind, shape, path)
        if header.start + header.n_bytes != size:
            raise InputError(
                f"{path} is damaged: its header asks for {header.n_bytes:,} bytes of numbers, "
                f"but it has {size - header.start:,}"
            )
        if not header.n_bytes:
            return np.empty(header.shape, header.dtype, header.order)  # type: ignore[call-overload,no-any-return]
        return np.memmap(path, header.dtype, "r", header.start, header.shape, header.order)  # type: ignore[call-overload,no-any-return]


def read_arrays(
    path: Path, expected: Mapping[str, tuple[str, Shape]], only: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file.

    Parameters
    ----------
    expected
        Name -> (kind, shape), as in `read_array`, of all arrays in the file.
    only
        The names of the arrays to read; all are checked. None for all.

    Raises
    ------
    InputError
        If the file holds other arrays, or one that decompresses to more than an array of numbers would.
    """
    size = file_size(path)
    arrays = {}
    with wrap_read_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in expected):
            names = ", ".join(member.filename for member in members) or "none"
            raise InputError(f"{path} must hold the arrays {', '.join(expected)}, each once, but has {names}")
        for name, (kind, shape) in expected.items():
            member, what = archive.getinfo(f"{name}.npy"), f"{name} in {path}"
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.compress_size > size:
                raise InputError(f"{what} is compressed in a way that NumPy doesn't write")
            if member.file_size > max(ALWAYS_BYTES, MAX_COMPRESSION * member.compress_size):
                raise InputError(
                    f"{what} would decompress from {member.compress_size:,} to {member.file_size:,} bytes, which is "
                    "more than arrays of numbers do"
                )
            with archive.open(member) as file:
                header = _read_header(file, what)
                _check_header(header, kind, shape, what)
                if header.start + header.n_bytes != member.file_size:
                    raise InputError(f"{what} is damaged: its size doesn't match its header")
                if only is None or name in only:
                    content = file.read(header.n_bytes)
                    if len(content) != header.n_bytes or file.read(1):  # the last read checks the checksum
                        raise InputError(f"{what} is damaged: it ends too early")
                    arrays[name] = np.frombuffer(content, header.dtype).reshape(header.shape, order=header.order)  # type: ignore[call-overload]
    return arrays


def read_headers(path: Path) -> dict[str, ArrayHeader]:
    """Return the headers of the arrays in a .npz by name, or of a .npy under the name ''. No array is read."""
    file_size(path)
    with wrap_read_errors(path):
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return {"": _read_header(file, path)}
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_ARRAYS:
                raise InputError(f"{path} holds {len(members):,} arrays, but at most {MAX_ARRAYS} are expected")
            headers = {}
            for member in members:
                with archive.open(member) as file:
                    headers[member.filename.removesuffix(".npy")] = _read_header(file, f"{member.filename} in {path}")
            return headers


def _read_header(file: IO[bytes], what: object) -> ArrayHeader:
    with wrap_read_errors(what):
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{what} can't be read: its header has version {version}, but 1 or 2 is expected")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER_BYTES)  # type: ignore[call-arg]
        if any(length < 0 for length in shape):
            raise InputError(f"{what} has shape {list(shape)}, but lengths can't be negative")
        return ArrayHeader(dtype, "F" if is_fortran else "C", tuple(map(int, shape)), file.tell())


def _check_header(header: ArrayHeader, kind: str, shape: Shape | None, what: object) -> None:
    dtype = header.dtype
    is_plain = dtype.kind in "biufc" and dtype.isnative and dtype.subdtype is None
    if not is_plain or not f"{dtype.kind}{dtype.itemsize}".startswith(kind):
        raise InputError(f"{what} holds {dtype}, but {DTYPE_WORDS.get(kind, 'plain numbers')} are expected")
    if shape is not None and (
        len(shape) != len(header.shape)
        or any(expected not in (None, length) for expected, length in zip(shape, header.shape, strict=True))
    ):
        words = ", ".join("any" if length is None else f"{length}" for length in shape)
        raise InputError(f"{what} has shape {list(header.shape)}, but [{words}] is expected")


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy file atomically. A read-only memory map of a whole .npy on the same disk is linked, not copied."""
    source = Path(getattr(array, "filename", None) or "")
    is_whole_map = array.flags.c_contiguous and not array.flags.writeable and is_array(source, array.shape, array.dtype)
    with atomic_file(path) as draft:
        if is_whole_map:
            with suppress(OSError):  # another disk, or a file system without links
                linked = draft.with_name(f"{draft.name}.link")
                os.link(source, linked)
                os.replace(linked, draft)
                return
        with draft.open("wb") as file:
            file.write(array_header(array.shape, array.dtype))
            rows = array.reshape(1) if array.ndim == 0 else array
            step = max(1, CHUNK_BYTES * len(rows) // max(1, rows.nbytes))
            for start in range(0, len(rows), step):
                file.write(np.ascontiguousarray(rows[start : start + step]).tobytes())


def array_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Return the first bytes of a .npy file, which the rows follow."""
    buffer = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def is_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Return whether a file is a .npy of this shape and dtype, as `write_array` writes it."""
    header = array_header(shape, dtype)
    if not path.is_file() or path.stat().st_size != len(header) + math.prod(shape) * dtype.itemsize:
        return False
    with path.open("rb") as file:
        return file.read(len(header)) == header


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a compressed .npz file atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())
