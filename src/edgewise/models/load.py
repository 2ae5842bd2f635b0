"""Load models: the demo, a package's, a local folder, a .gguf file, a hub name, or a HuggingFace model in memory."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any
from unittest.mock import patch

import torch

from ..errors import InputError, warn
from ..io.arrays import check_pickled_weights
from ..io.reading import wrap_read_errors
from ..io.records import read_json
from .config import check_weight_files, inspect_source, read_config, silence_transformers
from .families import build_transformer
from .model import (
    RESERVED_TOKENS,
    Model,
    ModelSource,
    bos_name,
    choose_devices,
    choose_dtype,
    dtype_name,
    free_bytes,
    place_layers,
    weights_digest,
)
from .model_files import (
    DEMO,
    MAX_TEXT_BYTES,
    MODEL_CHOICES,
    PICKLED_SUFFIX,
    ModelFiles,
    files_state,
    find_model_files,
    parse_header_once,
)
from .torch_modes import default_torch_modes
from .transformer_lens import convert_lens_model, is_lens_model

# A prompt shorter than those of every task. A model that can't run it is too large for its device.
SHORT_PROMPT = 8
# Older files have these buffers as weights; now they are computed.
COMPUTED_BUFFERS = ("inv_freq", "attn.bias", "attention.bias", "masked_bias")
# Where the classes of a model's parts come from. The last one holds code that came with a model and was trusted.
KNOWN_PACKAGES = (
    "torch.nn.modules.",
    "transformers.models.",
    "transformers.activations",
    "transformers.pytorch_utils",
    "transformers_modules.",
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Tokens that can only begin a text. A model that has one was trained with it, even if its tokenizer does not add it.
BEGINNING_TOKENS = ("<s>", "<bos>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>")
NO_MAX_LENGTH = 10**30
MAX_TEXT_GROWTH = 10_000
# The largest number of tokens that a tokenizer may add, such as `extra_ids` of T5.
MAX_ADDED_TOKENS = 1_000_000


def load_model(
    name: str | Path = DEMO,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    bos: str | bool = "auto",
    trust_remote_code: bool = False,
) -> Model:
    """Load a model.

    Parameters
    ----------
    name
        'demo', 'smollm2', 'known/NAME' (models whose circuits are known), a folder in HuggingFace's layout, a .gguf
        file, or a name on the hub. 'untrained/' before it draws random weights for the same architecture.
    device
        Any device that torch offers. 'auto' is the accelerator if there is one, else the CPU. A list such as
        'cuda:0,cuda:1' spreads the layers over several devices. 'all' spreads them over all accelerators, and puts
        the layers that do not fit there on the CPU.
    dtype
        'float32', 'bfloat16', 'float16', 'float64', or torch's dtype. 'auto' keeps the dtype of the stored weights, but
        uses float32 for half-precision weights on a CPU.
    bos
        Whether prompts begin with the model's BOS token: 'yes' or True, 'no' or False. 'auto' adds it for models that
        were trained with it.
    trust_remote_code
        Whether code that comes with the model may run.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        If the model can't be found, read or placed on the device, or is not supported.
    """
    source = ModelSource(str(name), str(device), dtype_name(dtype), bos_name(bos), trust_remote_code)
    model = load_source(source)
    return replace(model, loaded_weights=weights_digest(model.module))


def load_source(source: ModelSource) -> Model:
    """Load the model that `source` describes; see `load_model`. For callers that never edit its weights."""
    source = replace(source)  # the old one may remember the content of files that have changed since
    files = find_model_files(source.name)
    with silence_transformers(), default_torch_modes(), parse_header_once(files.gguf):
        before = files_state(source.name, source.trust_remote_code)
        module, tokenizer = _load_files(files, source)
        _check_module(module, source.name)
        _ = source.content  # now, so that the weights and the digest are those of the same files
        if files_state(source.name, source.trust_remote_code) != before:
            raise InputError(
                f"the files of model {source.name!r} changed while they were read; load it again when they are complete"
            )
        model = _wrap_module(module, tokenizer, source.name, source.bos)
        return replace(model, source=source)


def wrap_model(module: Any, tokenizer: Any = None, name: str = "model", bos: str | bool = "auto") -> Model:
    """Return a model from a HuggingFace or TransformerLens causal language model in memory.

    The weights are shared, not copied: results follow edits in place. After weights were replaced, as by `module.to`,
    wrap the module again. `module` stays as it is: its training mode, and which of its weights require gradients.

    Parameters
    ----------
    module
        For example the result of `AutoModelForCausalLM.from_pretrained`. Or a `HookedTransformer` or
        `TransformerBridge` of TransformerLens with the structure of GPT-2, Llama or GPT-NeoX: then the weights are
        copied, and its tokenizer is used if none is given.
    tokenizer
        HuggingFace's tokenizer; None if tasks are given as tokens.
    name
        For reports.
    bos
        As in `load_model`.

    Returns
    -------
    Model

    Examples
    --------
    >>> edgewise.wrap_model(module, tokenizer, "my model")

    Raises
    ------
    InputError
        If `module` is not a supported causal language model, has hooks or adapters, or has weights that are NaN,
        infinite, on the device meta, or made under `torch.inference_mode`.
    """
    if not isinstance(module, torch.nn.Module):
        advice = f"; load_model({module!r}) loads one by its name" if isinstance(module, str) else ""
        raise InputError(f"expected a HuggingFace causal language model, not {type(module).__name__}{advice}")
    if is_lens_model(module):
        tokenizer = getattr(module, "tokenizer", None) if tokenizer is None else tokenizer
        with silence_transformers(), default_torch_modes():
            converted = convert_lens_model(module)
            _check_weights(converted, name)
            return _wrap_module(converted, tokenizer, name, bos)
    _check_module(module, name)
    with default_torch_modes():
        # Copy the tree of modules, but not the tensors: each is replaced by a view of itself without gradients.
        views = {id(x): torch.nn.Parameter(x.detach(), requires_grad=False) for x in module.parameters()}
        buffers: dict[int, Any] = {id(x): x.detach() for x in module.buffers()}
        return _wrap_module(deepcopy(module, views | buffers), tokenizer, name, bos)


def _wrap_module(module: Any, tokenizer: Any, name: str, bos: str | bool) -> Model:
    """Return a model from a HuggingFace module that belongs to it alone."""
    module.eval().requires_grad_(False)
    for part in module.modules():
        for attribute in HOOKS:
            getattr(part, attribute).clear()
    model = Model(name, build_transformer(module), tokenizer, choose_bos(tokenizer, bos), module=module)
    if model.bos is not None and not 0 <= model.bos < model.vocabulary:
        raise InputError(
            f"the tokenizer of {name} begins prompts with token {model.bos}, but the model's vocabulary has "
            f"{model.vocabulary} tokens; check that they belong together, or use bos='no'"
        )
    return model


def _load_files(files: ModelFiles, source: ModelSource) -> tuple[Any, Any]:
    """Return the HuggingFace model and its tokenizer from files, on the devices of the source."""
    import transformers

    devices = choose_devices(source.device)
    files.check_folder()
    config = read_config(source, files)
    least_parameters = check_weight_files(files, config)
    for path in files.list_weight_files():
        if path.suffix == PICKLED_SUFFIX:
            check_pickled_weights(path)
    dtype = choose_dtype(source.dtype, None if files.gguf else getattr(config, "dtype", None), devices[0])
    if len(devices) == 1:
        _check_fits(source, least_parameters * dtype.itemsize, dtype, devices[0])
        device_map = {"": devices[0]}
    else:
        facts, empty_module = inspect_source(replace(source, dtype=dtype_name(dtype)))
        free = {device: free_bytes(device) or 0 for device in devices}
        needs = facts.needs(min(RESERVED_TOKENS, facts.longest_prompt)).values()
        device_map = place_layers(empty_module, dtype, max(needs, key=lambda need: need.total(1)), free)
    if files.untrained:  # the random weights that training would begin with, always the same
        with wrap_read_errors(f"model {source.name!r}", MODEL_CHOICES), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=source.trust_remote_code)
            module = module.to(dtype)
    else:
        module = _read_weights(source, files, dtype)
    # The runner uses the weights directly and runs a layer where its weights are, so no hooks are needed.
    for part, device in device_map.items():
        module.get_submodule(part).to(device)
    # Weights may be mapped from their files: a file that is overwritten later would change them, or end the process.
    for tensor in (*module.parameters(), *module.buffers()) if files.gguf is None else ():
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    return module, load_tokenizer(files, source.trust_remote_code)


def _read_weights(source: ModelSource, files: ModelFiles, dtype: torch.dtype) -> Any:
    """Return the HuggingFace model with its own weights."""
    import transformers

    # edgewise doesn't generate text. transformers 4.57 runs `custom_generate/generate.py` of a local folder even with
    # trust_remote_code=False.
    no_custom_code = patch.object(transformers.GenerationMixin, "load_custom_generate", side_effect=OSError)
    with wrap_read_errors(f"model {source.name!r}", MODEL_CHOICES), no_custom_code:
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            **files.pretrained_arguments(),
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=source.trust_remote_code,
        )
    module, info = loaded
    missing = sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"])))
    if missing:
        raise InputError(
            f"model {source.name!r} lacks weights or has some of the wrong shape: {', '.join(missing[:5])}"
        )
    unused = sorted(str(key) for key in info["unexpected_keys"] if not str(key).endswith(COMPUTED_BUFFERS))
    if unused and files.gguf is None:
        warn(
            f"{len(unused):,} of the weights in the files of model {source.name!r} are not used, as its config has no "
            f"such parts: {', '.join(unused[:5])}; check the config"
        )
    return module


def _check_fits(source: ModelSource, min_bytes: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise InputError if a device has no room for a model and one short prompt, before the weights are read.

    min_bytes  lower bound of the bytes of the weights. If twice as much is free, nothing is checked.
    """
    free = free_bytes(device)
    if free is None or 2 * min_bytes < free:
        return
    facts, _ = inspect_source(replace(source, dtype=dtype_name(dtype)))
    prompt_bytes = max(need.total(1) for need in facts.needs(SHORT_PROMPT).values())
    if facts.weight_bytes + prompt_bytes <= free:
        return
    half_bytes = facts.weight_bytes * torch.bfloat16.itemsize // dtype.itemsize + prompt_bytes
    options = ["dtype='bfloat16'"] if dtype.itemsize > torch.bfloat16.itemsize and half_bytes <= free else []
    options += ["device='all', which spreads layers over devices and the CPU"] if device.type != "cpu" else []
    raise InputError(
        f"model {source.name!r} doesn't fit: {facts.weight_bytes / 1e9:.1f} GB of weights in {facts.dtype}, and "
        f"{prompt_bytes / 1e9:.2f} GB for one short prompt, but {device} has {free / 1e9:.1f} GB left; what would fit: "
        f"{', '.join([*options, 'a smaller model'])} (`edgewise models NAME` shows what fits where)"
    )


def load_tokenizer(files: ModelFiles, trust_remote_code: bool) -> Any:
    """Return the tokenizer of a model, or None if its folder has none."""
    import transformers

    if files.is_local and not files.gguf:
        if not any(Path(files.location).glob("*token*")):
            return None
        _check_text_growth(Path(files.location) / "tokenizer.json")
        path = Path(files.location) / "tokenizer_config.json"
        record = read_json(path, max_bytes=MAX_TEXT_BYTES) if path.is_file() else None
        for name, value in record.items() if isinstance(record, dict) else ():  # lengths don't matter
            if isinstance(value, int) and value > MAX_ADDED_TOKENS and not name.endswith(("length", "len")):
                raise InputError(f"{path}: {name} may be at most {MAX_ADDED_TOKENS:,}, not {short(value)}")
    with wrap_read_errors(f"the tokenizer of {files.location}"):
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            **files.pretrained_arguments(), trust_remote_code=trust_remote_code
        )
        # edgewise checks lengths against the model. The tokenizer would only warn, or fail if its limit is no number.
        tokenizer.model_max_length = NO_MAX_LENGTH
        # A damaged tokenizer may load, and fail at its first text or at a special token that it lacks.
        _ = tokenizer("a"), tokenizer.bos_token_id, tokenizer.unk_token_id
    # transformers makes an empty tokenizer if the folder lacks the vocabulary. A task needs two answers at least.
    if len(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)) < 2:
        raise InputError(
            f"the tokenizer of {files.location} has no vocabulary; add its files, such as tokenizer.json, or remove "
            "all its files if tasks are given as tokens"
        )
    return tokenizer


def choose_bos(tokenizer: Any, bos: str | bool) -> int | None:
    """Return the token to put in front of every prompt, or None.

    'auto' adds the BOS token for models that were trained with one: their tokenizer adds it, or has a token that can
    only begin a text (Llama's `<s>` and `<|begin_of_text|>`, Gemma's `<bos>`).
    """
    choice = bos_name(bos)
    token = None if tokenizer is None else tokenizer.bos_token_id
    if choice == "yes" and token is None:
        raise InputError("bos='yes' needs a BOS token, but the model's tokenizer has none; use bos='no'")
    if choice == "no" or token is None:
        return None
    adds_token = tokenizer("a")["input_ids"][:1] == [token]
    return token if choice == "yes" or adds_token or tokenizer.bos_token in BEGINNING_TOKENS else None


def _check_text_growth(path: Path) -> None:
    """Raise InputError if a tokenizer's replacements and templates, one after the other, make a text too long."""
    record = read_json(path, max_bytes=MAX_TEXT_BYTES) if path.is_file() else None
    steps, growth = [record] if isinstance(record, dict) else [], 1
    while steps:
        step = steps.pop()
        parts = [step.get(name) for name in ("normalizer", "decoder", "post_processor")]
        for name in ("normalizers", "decoders", "processors"):
            parts += step[name] if isinstance(step.get(name), list) else []
        steps += [part for part in parts if isinstance(part, dict)]
        # A template makes of one token at most as many tokens as it has pieces, times the longest special token.
        specials = step.get("special_tokens")
        tokens = specials.values() if isinstance(specials, dict) else []
        ids = [len(token["ids"]) for token in tokens if isinstance(token, dict) and isinstance(token.get("ids"), list)]
        pieces = max(len(step[name]) if isinstance(step.get(name), list) else 0 for name in ("single", "pair"))
        growth *= max(1, len(str(step.get("content", "")))) * max(1, pieces) * max([1, *ids])
    if growth > MAX_TEXT_GROWTH:
        raise InputError(f"{path} makes texts up to {growth:,} times as long; this is not a usable tokenizer")


def _check_module(module: Any, name: str) -> None:
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
        # accelerate and torch.compile replace `forward` by one that computes the same. transformers 4.57 replaces it
        # while it collects hidden states, and then sets it to the method of the class.
        own_forward = kind.forward.__get__(part)
        is_replaced = vars(part).get("forward", own_forward) != own_forward
        is_replaced &= not any(hasattr(part, mark) for mark in ("_hf_hook", "_orig_mod"))
        if is_replaced or not f"{inspect.unwrap(kind.forward).__module__}.".startswith(KNOWN_PACKAGES):
            raise InputError(
                f"model {name!r} has a forward function of its own on {part_name or 'the model itself'}, which "
                "edgewise would not run; give the plain HuggingFace model"
            )
        hooks = [hook for attribute in HOOKS for hook in getattr(part, attribute).values()]
        # transformers registers hooks to collect outputs, which change nothing.
        if any(not str(getattr(hook, "__module__", "")).startswith("transformers.") for hook in hooks):
            raise InputError(
                f"model {name!r} has a hook on {part_name or 'the model itself'}, which edgewise would not run; "
                "remove it first"
            )
    _check_weights(module, name)


def _check_weights(module: Any, name: str) -> None:
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
