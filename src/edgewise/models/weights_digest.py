"""The digest of the weights of a module in memory."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def weights_digest(module: Any) -> str:
    """Return the SHA-256 of a module's config and of every byte of its parameters and buffers.

    It takes 0.7 s for 135 million parameters of four bytes. Checksums of torch's own sums are hardly faster, and miss
    edits.
    """
    digest = hashlib.sha256(module.config.to_json_string().encode())
    # Not of its `state_dict`, which lacks buffers such as the frequencies of rotary embeddings.
    for name, tensor in sorted((*module.named_parameters(), *module.named_buffers()), key=lambda item: item[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
