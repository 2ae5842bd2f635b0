"""Choose the devices of a model, measure their free memory, and place the model's layers on them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from .memory import BUDGET, RESERVED, Need

AUTO, ALL = "auto", "all"
# When layers are placed, room stays free for one prompt of this many tokens.
RESERVED_TOKENS = 64
CONTROL_GROUP = Path("/sys/fs/cgroup")


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
