"""Pickled weights (.bin) of a stranger: a few of their bytes can stand for a tensor of any size, so look first."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch

from ..errors import InputError
from ..io.reading import wrap_read_errors


def check_pickled(path: Path) -> None:
    """Refuse a .bin file that would take more memory than it has bytes; its numbers aren't read."""
    if zipfile.is_zipfile(path):
        with wrap_read_errors(path), zipfile.ZipFile(path) as file:
            if any(part.compress_type != zipfile.ZIP_STORED for part in file.infolist()):
                raise InputError(f"{path} has compressed parts, which weights never have; save it with torch.save")
    with wrap_read_errors(path):
        found = torch.load(path, map_location="meta", weights_only=True)
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold tensors by name, not {type(found).__name__}")
    size = path.stat().st_size
    for name, tensor in found.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel() * tensor.itemsize > size:
            raise InputError(f"{path} has a tensor {name!r} of more bytes than the whole file; it repeats its numbers")
