"""Check a HuggingFace module before its weights are used: edgewise runs the weights, not the module's own code."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import InputError

# Where the classes of a model's parts come from. The last one holds code that came with a model and was trusted.
KNOWN_PACKAGES = (
    "torch.nn.modules.",
    "transformers.models.",
    "transformers.activations",
    "transformers.pytorch_utils",
    "transformers_modules.",
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def check_module(module: Any, name: str) -> None:
    """Raise InputError if a causal language model computes something else than its weights say, or has no weights."""
    if not hasattr(module, "config") or not any(hasattr(module, head) for head in ("lm_head", "embed_out")):
        raise InputError(f"expected a HuggingFace causal language model with its head, not {type(module).__name__}")
    for part_name, part in module.named_modules():
        kind = type(part)
        if part is not module and not f"{kind.__module__}.".startswith(KNOWN_PACKAGES):
            raise InputError(
                f"model {name!r} has a part that edgewise doesn't know: {part_name} is a {kind.__module__}."
                f"{kind.__name__}; give the plain HuggingFace model (for adapters: the result of merge_and_unload())"
            )
        # accelerate and torch.compile replace `forward` by one that computes the same.
        is_replaced = "forward" in vars(part) and not any(hasattr(part, mark) for mark in ("_hf_hook", "_orig_mod"))
        if is_replaced or not f"{inspect.unwrap(kind.forward).__module__}.".startswith(KNOWN_PACKAGES):
            raise InputError(
                f"model {name!r} has a forward function of its own on {part_name or 'the model itself'}, which edgewise "
                "would not run; give the plain HuggingFace model"
            )
        hooks = [hook for attribute in HOOKS for hook in getattr(part, attribute).values()]
        # transformers registers hooks to collect outputs, which change nothing.
        if any(not str(getattr(hook, "__module__", "")).startswith("transformers.") for hook in hooks):
            raise InputError(
                f"model {name!r} has a hook on {part_name or 'the model itself'}, which edgewise would not run; "
                "remove it first"
            )
    check_weights(module, name)


def remove_hooks(module: Any) -> None:
    """Remove all hooks of a module that belongs to edgewise alone."""
    for part in module.modules():
        for attribute in HOOKS:
            getattr(part, attribute).clear()


def check_weights(module: Any, name: str) -> None:
    """Raise InputError if weights are missing, can't be used for gradients, or are NaN or infinite."""
    for tensor_name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type == "meta":
            raise InputError(f"model {name!r} has no weights: {tensor_name} is on the device meta; load them first")
        if tensor.is_inference():
            raise InputError(
                f"the weights of model {name!r} were made under torch.inference_mode(), so that they can't be used for "
                "gradients; load the model outside of it (torch.no_grad() is fine)"
            )
        # The sum needs one pass and no copy. It may overflow, so a sum that is not finite needs a closer look.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise InputError(f"model {name!r} has weights that are NaN or infinite, in {tensor_name}; fix its file")
