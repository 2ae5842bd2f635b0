"""The state of torch that all computations of edgewise share, whatever the calling code has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def default_torch_modes() -> Iterator[None]:
    """Use torch's defaults inside the `with`, so that results don't depend on the caller's settings.

    Gradients are possible, inference mode and autocast are off, and new tensors are float32 on the CPU. It also works
    as a decorator.
    """
    import torch

    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        accelerator = torch.accelerator.current_accelerator()
        for device in {"cpu"} | ({accelerator.type} if accelerator is not None else set()):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if dtype != torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        yield
