"""Read and write NumPy's files: .npy and .npz, checked before any memory is allocated."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def read_array(path: Path, kind: str = "", shape: Shape | None = None) -> NDArray[Any]:
    """Return the array of a .npy file, memory-mapped and read-only.

    kind   what the dtype must start with, such as 'f' or 'u1'
    shape  the expected shape, with None for any length; None for any shape

    Raise InputError if the array is of another kind or shape, or is larger than the file.
    """
    file_size(path)
    with wrap_read_errors(path):
        array = np.lib.format.open_memmap(path, mode="r")
    _check_type(array.dtype, array.shape, kind, shape, path)
    return array


def read_arrays(path: Path, expected: Mapping[str, tuple[str, Shape]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file, read-only.

    `expected` is name -> (kind, shape), as in `read_array`, of all arrays in the file. Raise InputError if it holds
    others, or one that decompresses to more than an array of numbers would.
    """
    size = file_size(path)
    with wrap_read_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in expected):
            names = ", ".join(member.filename for member in members) or "none"
            raise InputError(f"{path} must hold the arrays {', '.join(expected)}, each once, but has {names}")
        arrays = {}
        for name, (kind, expected_shape) in expected.items():
            member = archive.getinfo(f"{name}.npy")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.compress_size > size:
                raise InputError(f"{name} in {path} is compressed in a way that NumPy doesn't write")
            if member.file_size > max(ALWAYS_BYTES, MAX_COMPRESSION * member.compress_size):
                raise InputError(
                    f"{name} in {path} would decompress from {member.compress_size:,} to {member.file_size:,} bytes, "
                    "which is more than arrays of numbers do"
                )
            with archive.open(member) as file:
                data = file.read(member.file_size)  # without a number, a lying member would decompress as a whole
            stream, what = io.BytesIO(data), f"{name} in {path}"
            is_first = np.lib.format.read_magic(stream) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
            _check_type(dtype, shape, kind, expected_shape, what)
            if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
                raise InputError(f"{what} has shape {list(shape)}, which isn't the size of its numbers")
            stream.seek(0)
            arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
            arrays[name].flags.writeable = False
    return arrays


def _check_type(
    dtype: np.dtype[Any], shape: tuple[int, ...], kind: str, expected_shape: Shape | None, what: object
) -> None:
    if dtype.kind not in "biufc" or not dtype.isnative or not f"{dtype.kind}{dtype.itemsize}".startswith(kind):
        raise InputError(f"{what} holds {dtype}, but {DTYPE_WORDS.get(kind, 'plain numbers')} are expected")
    if expected_shape is not None and (
        len(shape) != len(expected_shape)
        or any(expected not in (None, length) for expected, length in zip(expected_shape, shape, strict=True))
    ):
        words = ", ".join("any" if length is None else f"{length}" for length in expected_shape)
        raise InputError(f"{what} has shape {list(shape)}, but [{words}] is expected")


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy file atomically, in parts: the array may be a memory map that is larger than the memory."""
    with atomic_file(path) as draft, draft.open("wb") as file:
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
