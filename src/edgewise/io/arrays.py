"""Read and write files of arrays: NumPy's .npy and .npz, and files that `torch.save` wrote.

Files are checked before any memory is allocated. A file of torch is a zip of uncompressed members: `data.pkl` is a
pickle of plain values and descriptions of tensors, and one member per storage holds the numbers. torch loads it with
`weights_only=True`; the checks here come first, because its list of safe functions includes some that allocate any
amount of memory.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
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
# The names that pickles of tensors and plain values refer to, as `module name`.
SAFE_NAMES = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch (\w+Storage|b?float\d+|u?int\d+|bool)"
)
# Opcodes that call something whose name isn't written beside them. torch doesn't write them.
UNSAFE_OPCODES = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
# A pickle may repeat a text by reference. Per byte of the file, it may hold one value or this many characters.
MAX_CHARACTERS = 64


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
                data = file.read(member.file_size)  # no more than the checked size
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


def load_torch_file(path: Path) -> Any:
    """Return the plain values and CPU tensors of a file, memory-mapped where possible.

    Raise InputError if the file isn't a zip of tensors and plain values, or a tensor is larger than the file.
    """
    import torch

    size = file_size(path)
    pickle_size = _check_torch_zip(path)
    with wrap_read_errors(path, "it isn't a torch file, or it is damaged"):
        content = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
        _check_content(content, size, MAX_CHARACTERS * pickle_size)
    return content


def _check_torch_zip(path: Path) -> int:
    """Return the size of a file's pickle. Raise InputError if torch doesn't write such files for tensors."""
    size = file_size(path)
    with wrap_read_errors(path), path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise InputError(
                f"{path} isn't a torch file: it was saved by a torch older than 1.6, or not by torch; save it again"
            )
    with wrap_read_errors(path, "it isn't a torch file, or it is damaged"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise InputError(f"{path} has compressed or encrypted members, which torch doesn't write; save it again")
        names = [member.filename for member in members if member.filename.endswith("/data.pkl")]
        is_repeated = len({member.filename for member in members}) < len(members)
        if (
            len(names) != 1
            or is_repeated
            or sum(max(member.file_size, member.compress_size) for member in members) > size
        ):
            raise InputError(
                f"{path} isn't a torch file: it needs one data.pkl, and members within its size, each once"
            )
        data = archive.read(names[0])
        for opcode, argument, _ in pickletools.genops(data):
            name = argument if opcode.name == "GLOBAL" else opcode.name
            if opcode.name in UNSAFE_OPCODES or (opcode.name == "GLOBAL" and not SAFE_NAMES.fullmatch(str(name))):
                raise InputError(
                    f"{path} isn't a torch file of tensors and plain values: it needs {name}, which could run code; "
                    "give a file that EAP-IG, MIB, torch or edgewise wrote"
                )
        return len(data)


def check_pickled_weights(path: Path) -> None:
    """Raise InputError if a .bin file of weights would run code or take more memory than it has bytes."""
    import torch

    size = file_size(path)
    if zipfile.is_zipfile(path):
        _check_torch_zip(path)
    with wrap_read_errors(path):
        weights = torch.load(path, map_location="meta", weights_only=True)
        if not isinstance(weights, dict):
            raise InputError(f"{path} must hold tensors by name, not {type(weights).__name__}")
        _check_content(weights, size, MAX_CHARACTERS * size)


def _check_content(content: Any, size: int, max_characters: int) -> None:
    """Raise if a tensor is larger than the file, or if the values written out would be much larger than it."""
    import torch

    waiting, n_characters = [content], 0
    while waiting:
        value = waiting.pop()
        n_characters += len(value) if isinstance(value, str | bytes) else MAX_CHARACTERS
        if n_characters > max_characters:
            raise ValueError("it refers to the same data again and again")
        if isinstance(value, torch.Tensor) and value.numel() * value.itemsize > size:
            raise ValueError(f"a tensor of shape {list(value.shape)} is larger than the file")
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set):
            waiting += value
