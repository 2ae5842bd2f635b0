"""Which devices a model runs on, how much room they have, and which of its layers lie where."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from .memory import BUDGET, RESERVED, Need

AUTO, ALL = "auto", "all"
# Prompts of so many tokens have room beside the weights when those are placed, one at a time.
RESERVED_TOKENS = 64


def choose_device(name: str) -> torch.device:
    """The torch device called `name`; for 'auto' the accelerator if there is one, else the CPU."""
    if name == AUTO:
        found = torch.accelerator.current_accelerator(check_available=True)
        return found if found is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # a device that holds no numbers, such as meta, fails here
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} can't be used here ({reason}); try --device auto or cpu") from None
    return device


def choose_devices(name: str) -> tuple[torch.device, ...]:
    """The devices of a list such as 'cuda:0,cuda:1' or 'cuda:0,cpu'; for 'all' every accelerator, then the CPU.

    The CPU comes last, wherever it stands: it takes what the others have no room for.
    """
    if name == ALL:
        kind = torch.accelerator.current_accelerator(check_available=True)
        count = 0 if kind is None else torch.accelerator.device_count()
        names = [f"{kind}:{index}" for index in range(count)] + ["cpu"]
    else:
        names = [part.strip() for part in name.split(",")]
    found = dict.fromkeys(choose_device(part) for part in names)
    return tuple(sorted(found, key=lambda device: device.type == "cpu"))


def free_bytes(device: torch.device) -> int | None:
    """How much memory a device has left, for a CPU within what the system lets this process have; None if it doesn't
    say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    told = [_available(Path("/proc/meminfo")), _left_in_group(Path("/sys/fs/cgroup"))]
    return min((one for one in told if one is not None), default=None)


def _available(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _left_in_group(folder: Path) -> int | None:
    try:
        most, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if most == "max" else max(0, int(most) - int(used))
    except (OSError, ValueError):
        return None


def place_layers(
    module: Any, dtype: torch.dtype, need: Need, room: Mapping[torch.device, int]
) -> dict[str, torch.device]:
    """Which of a model's modules lie on which device: layers are whole, and follow each other.

    module  as transformers builds it, without numbers (on torch's device `meta`)
    need    what one example needs beyond the weights; a part of it, and of the usual batch, stays free on each device
    room    the bytes that each device has left; a CPU takes what the others don't hold
    """
    if find_spec("accelerate") is None:
        raise InputError("several devices need accelerate: pip install 'edgewise[devices]'")
    from accelerate import infer_auto_device_map

    weights = sum(one.numel() for one in module.parameters()) * dtype.itemsize
    whole = set(getattr(module, "_no_split_modules", None) or ())
    blocks = [part for part in module.modules() if type(part).__name__ in whole]
    largest = max(sum(one.numel() for one in part.parameters()) for part in blocks) * dtype.itemsize
    fast = [device for device in room if device.type != "cpu"]
    beside = need.fixed + need.layer + max(BUDGET, need.each - need.layer) // len(room) + RESERVED
    left = {device: max(0, amount - beside) for device, amount in room.items()}
    share = largest + weights // max(1, len(fast))
    full: dict[int | str, int] = {place: left[device] for place, device in enumerate(fast)}
    # Evenly at first, so that what runs through the layers is spread, too; the CPU as the last resort.
    even = {place: amount if place == len(fast) - 1 else min(amount, share) for place, amount in full.items()}
    for limits in (even, full, full | {"cpu": left.get(torch.device("cpu"), 0)}):
        found = infer_auto_device_map(module, max_memory=limits, no_split_module_classes=list(whole), dtype=dtype)
        if "disk" not in found.values():
            break
    else:
        held = ", ".join(f"{device} {amount / 1e9:.1f} GB" for device, amount in room.items())
        raise InputError(
            f"weights of {weights / 1e9:.1f} GB and the work with them don't fit into what is free ({held}); "
            "give more devices, --dtype bfloat16, or a smaller model (`edgewise models NAME` says what fits where)"
        )
    by_key = dict(enumerate(fast)) | {"cpu": torch.device("cpu")}
    return {name: by_key[key] for name, key in found.items()}
