"""The values of a model: how it is loaded (ModelSource), and what it is (Model)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from ..errors import unknown_name
from ..graph import Graph
from .model_files import DEMO, content_digest
from .placement import choose_devices
from .transformer import Transformer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
BOS_CHOICES = ("auto", "yes", "no")


@dataclass(frozen=True)
class ModelSource:
    """How a model is loaded, so that another process can load the same model: the arguments of `load_model`.

    cache  is not compared: it changes how fast the model loads, not the model
    """

    name: str = DEMO
    device: str = "auto"
    dtype: str = "auto"
    bos: str = "auto"
    trust_remote_code: bool = False
    cache: bool = field(default=True, compare=False)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that the model's outputs depend on: its content and how it is loaded.

        It is computed without loading the weights.
        """
        device_types = ",".join(dict.fromkeys(device.type for device in choose_devices(self.device)))
        parts = (self.content, device_types, self.dtype, self.bos, self.trust_remote_code)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @cached_property
    def content(self) -> str:
        """A hash of the model's files (with its code if that is trusted), or its commit on the hub."""
        return content_digest(self.name, self.trust_remote_code)


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model, with its tokenizer if it has one.

    bos             the token put in front of every prompt, or None
    source          how it was loaded; None if it was made in memory
    module          the HuggingFace model whose weights `transformer` shares
    loaded_weights  digest of the weights as they were loaded from `source`; '' if nobody edits them
    is_pinned       whether its digest is computed only once
    """

    name: str
    transformer: Transformer
    tokenizer: Any = None
    bos: int | None = None
    source: ModelSource | None = None
    module: Any = None
    loaded_weights: str = ""
    is_pinned: bool = False

    def pin(self) -> Model:
        """Return the same model, with a digest that is computed once. For calls during which no weight changes."""
        return self if self.is_pinned else replace(self, is_pinned=True)

    @property
    def digest(self) -> str:
        """A hash of everything that its outputs depend on, with its weights as they are now."""
        return self.pin()._digests[0]

    @property
    def content(self) -> str:
        """A hash of its files, or of its config and weights if these were made or changed in memory."""
        return self.pin()._digests[1]

    @cached_property
    def _digests(self) -> tuple[str, str]:
        """The digest and the content; only a pinned model remembers them."""
        content = weights_digest(self.module) if self.source is None or self.loaded_weights else ""
        if self.source is not None and content == self.loaded_weights:
            return self.source.digest, self.source.content
        parts = (content, self.bos, self.transformer.device.type)
        return hashlib.sha256(repr(parts).encode()).hexdigest(), content

    @property
    def max_length(self) -> int:
        """The longest prompt that it accepts, in tokens."""
        return self.transformer.max_length

    @property
    def graph(self) -> Graph:
        """The computation graph."""
        return self.transformer.graph

    @property
    def vocabulary(self) -> int:
        """The number of tokens in its vocabulary."""
        return self.transformer.unembed.shape[0]

    def __repr__(self) -> str:
        device, dtype = self.transformer.device_names, dtype_name(self.transformer.dtype)
        return f"Model({self.name!r}, {self.graph}, {dtype} on {device})"


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


def dtype_name(dtype: str | torch.dtype) -> str:
    """Return the name of a dtype, without torch's prefix."""
    return str(dtype).removeprefix("torch.")


def bos_name(bos: str | bool) -> str:
    """Return 'yes', 'no' or 'auto'. Raise InputError for anything else."""
    name = {True: "yes", False: "no"}[bos] if isinstance(bos, bool) else bos
    if name not in BOS_CHOICES:
        raise unknown_name("choice for bos", str(name), BOS_CHOICES)
    return name


def choose_dtype(name: str, stored: torch.dtype | None, device: torch.device) -> torch.dtype:
    """Return the dtype called `name`. For 'auto', return the stored dtype, but float32 for half precision on a CPU."""
    if name == "auto":
        is_half = stored in (torch.float16, torch.bfloat16)
        return stored if stored is not None and not (is_half and device.type == "cpu") else torch.float32
    if name not in DTYPES:
        raise unknown_name("dtype", name, ["auto", *DTYPES])
    return DTYPES[name]
