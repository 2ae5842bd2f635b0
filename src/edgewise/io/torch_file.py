"""Load files that `torch.save` wrote without running code or taking more memory than the file's size.

A file is a zip of uncompressed members: `data.pkl` is a pickle of plain values and descriptions of tensors, and one
member per storage holds the numbers. torch loads it with `weights_only=True`; the checks here come first, because its
list of safe functions includes some that allocate any amount of memory.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

from ..errors import InputError
from .reading import file_size, wrap_read_errors

# The names that pickles of tensors and plain values refer to, as `module name`.
SAFE_NAMES = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch (\w+Storage|b?float\d+|u?int\d+|bool)"
)
# Opcodes that call something whose name isn't written beside them. torch doesn't write them.
UNSAFE_OPCODES = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
# A pickle may repeat a text by reference. Per byte of the file, it may hold one value or this many characters.
MAX_CHARACTERS = 64


def load_torch_file(path: Path) -> Any:
    """Return the plain values and CPU tensors of a file, memory-mapped where possible.

    Raise InputError if the file isn't a zip of tensors and plain values, or a tensor is larger than the file.
    """
    import torch

    size = file_size(path)
    pickle_size = check_torch_zip(path)
    with wrap_read_errors(path, "it isn't a torch file, or it is damaged"):
        content = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
        _check_content(content, size, MAX_CHARACTERS * pickle_size)
    return content


def check_torch_zip(path: Path) -> int:
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
        check_torch_zip(path)
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
