"""The values of a model: how it is loaded (ModelSource), what it is (Model), and the devices of its layers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, unknown_name
from ..graph import Graph
from .memory import BUDGET, RESERVED, Need
from .model_files import DEMO, content_digest
from .transformer import Transformer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
BOS_CHOICES = ("auto", "yes", "no")
AUTO, ALL = "auto", "all"
# When layers are placed, room stays free for one prompt of this many tokens.
RESERVED_TOKENS = 64
CONTROL_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class ModelSource:
    """How a model is loaded, so that another process can load the same model: the arguments of `load_model`."""

    name: str = DEMO
    device: str = "auto"
    dtype: str = "auto"
    bos: str = "auto"
    trust_remote_code: bool = False

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
    """Return the SHA-256 of a module's config, of its parts, and of every byte of its parameters and buffers.

    The parts are described by their classes and settings, such as a norm's epsilon, which may be edited in memory. It
    takes 0.7 s for 135 million parameters of four bytes. Checksums of torch's own sums are hardly faster, and miss
    edits.
    """
    digest = hashlib.sha256(f"{module.config.to_json_string()}{module!r}".encode())
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


def choose_devices(name: str) -> tuple[torch.device, ...]:
    """Return the devices of a list such as 'cuda:0,cuda:1' or 'cuda:0,cpu'; for 'all', all accelerators and the CPU.

    'auto' is the accelerator if there is one, else the CPU. The CPU comes last in any case: it takes the layers that do
    not fit on the other devices.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == ALL:
        count = 0 if accelerator is None else torch.accelerator.device_count()
        names = [f"{accelerator}:{index}" for index in range(count)] + ["cpu"]
    else:
        names = [str(accelerator or "cpu") if part.strip() == AUTO else part.strip() for part in name.split(",")]
    devices = {}
    for part in names:
        try:
            devices[torch.device(part)] = torch.ones(1, device=part).item()  # fails on devices such as meta
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"device {part!r} can't be used here ({reason}); try device='auto' or 'cpu'") from None
    return tuple(sorted(devices, key=lambda device: device.type == "cpu"))


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes, or None if the device does not report it.

    For a CPU, this is the smaller of the machine's free memory and what the process's control group has left.
    """
    if device.type != "cpu":
        accelerator: Any = getattr(torch, device.type, None)  # such as torch.cuda; there is none for `meta`
        return accelerator.mem_get_info(device)[0] if hasattr(accelerator, "mem_get_info") else None
    amounts = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        amounts.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # a limit of "max" is no number
        limit, used = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        # The system drops cached files when a process needs memory.
        statistics = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        cached = sum(int(statistics.get(name, 0)) for name in ("active_file", "inactive_file"))
        amounts.append(max(0, limit - used + cached))
    return min(amounts, default=None)


def place_layers(
    module: Any, dtype: torch.dtype, need: Need, free: Mapping[torch.device, int]
) -> dict[str, torch.device]:
    """Return the device of each part of a model. Layers are not divided, and follow each other.

    module  the HuggingFace model on the device `meta` (without weights)
    need    the memory of one example beyond the weights; its share, or that of a usual batch, stays free on each device
    free    the free bytes of each device; the CPU takes what the others can't hold

    Raise InputError if the model does not fit.
    """
    if find_spec("accelerate") is None:
        raise InputError("several devices need accelerate: pip install 'edgewise[devices]'")
    from accelerate import infer_auto_device_map

    undivided = set(getattr(module, "_no_split_modules", None) or ())
    layers = [part for part in module.modules() if type(part).__name__ in undivided]
    weight_bytes = sum(x.numel() for x in module.parameters()) * dtype.itemsize
    layer_bytes = max(sum(x.numel() for x in layer.parameters()) for layer in layers) * dtype.itemsize
    accelerators = [device for device in free if device.type != "cpu"]
    work_bytes = need.fixed + need.layer + max(BUDGET, need.each - need.layer) // len(free) + RESERVED
    usable = {device: max(0, amount - work_bytes) for device, amount in free.items()}
    share = layer_bytes + weight_bytes // max(1, len(accelerators))
    full: dict[int | str, int] = {index: usable[device] for index, device in enumerate(accelerators)}
    # Try even shares first, which also spreads the activations. The CPU is the last resort.
    last = len(accelerators) - 1
    even = {index: amount if index == last else min(amount, share) for index, amount in full.items()}
    for limits in (even, full, full | {"cpu": usable.get(torch.device("cpu"), 0)}):
        placed = infer_auto_device_map(module, max_memory=limits, no_split_module_classes=list(undivided), dtype=dtype)
        if "disk" not in placed.values():
            break
    else:
        amounts = ", ".join(f"{device} {amount / 1e9:.1f} GB" for device, amount in free.items())
        raise InputError(
            f"weights of {weight_bytes / 1e9:.1f} GB and the work with them do not fit into free memory ({amounts}); "
            "use more devices, dtype='bfloat16', or a smaller model (`edgewise models NAME` shows what fits where)"
        )
    by_key = dict(enumerate(accelerators)) | {"cpu": torch.device("cpu")}
    return {name: by_key[key] for name, key in placed.items()}
