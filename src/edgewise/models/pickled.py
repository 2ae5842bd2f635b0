"""Check pickled weights (.bin) before they are loaded: a few bytes can describe a tensor of any size."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch

from ..errors import InputError
from ..io.reading import wrap_read_errors
from ..io.torch_file import check_torch_zip


def check_pickled(path: Path) -> None:
    """Raise InputError if a .bin file would run code or take more memory than it has bytes. Reads no numbers."""
    if zipfile.is_zipfile(path):
        check_torch_zip(path)
    with wrap_read_errors(path):
        weights = torch.load(path, map_location="meta", weights_only=True)
    if not isinstance(weights, dict):
        raise InputError(f"{path} must hold tensors by name, not {type(weights).__name__}")
    size = path.stat().st_size
    for name, tensor in weights.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel() * tensor.itemsize > size:
            raise InputError(f"{path} has a tensor {name!r} of more bytes than the whole file; it repeats its numbers")
