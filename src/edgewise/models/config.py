"""What a model's config says about the model, without its weights: graph, size, memory.

A config may come from a stranger, so its values are checked before a model is built from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import ERROR, getLogger
from pathlib import Path
from reprlib import repr as short
from typing import Any

import torch

from ..errors import InputError, unknown_name
from ..graph import Graph
from ..io.reading import wrap_read_errors
from ..io.records import read_json
from .families import FAMILIES, check_config
from .memory import Need, Shape, can_keep_streams, circuit_need, scoring_need, weighted_need
from .model import ModelSource, bos_name, choose_devices, choose_dtype, dtype_name
from .model_files import (
    CONFIG_FILE,
    MODEL_CHOICES,
    NUMBERS_PER_BYTE,
    ModelFiles,
    check_gguf_header,
    find_model_files,
    parse_header_once,
)

LAYERS = ("n_layer", "num_hidden_layers")
HEADS = ("n_head", "num_attention_heads")
WIDTH = ("n_embd", "hidden_size")
POSITIONS = (
    "n_positions", "n_ctx", "max_position_embeddings", "original_max_position_embeddings", "sliding_window",
)  # fmt: skip
# The largest value of each count: far above any model, far below what exhausts a machine.
MOST = {
    **dict.fromkeys(LAYERS, 1_000),
    **dict.fromkeys(("num_key_value_heads", *HEADS), 10_000),
    **dict.fromkeys(("head_dim", *WIDTH), 1_000_000),
    **dict.fromkeys(("n_inner", "intermediate_size", "ffn_dim"), 10_000_000),
    "vocab_size": 100_000_000,
    "num_labels": 10_000,
    **dict.fromkeys(POSITIONS, 1_000_000_000),
}
# These may be null, which stands for a default or for none.
MAY_BE_NULL = frozenset({"num_labels", "num_key_value_heads", "head_dim", "n_inner", "sliding_window", "n_ctx"})
LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class ModelFacts:
    """What a model's config says, without its weights.

    dtype         the dtype it computes in; by default, the dtype of its stored weights
    weight_bytes  the size of all weights in that dtype
    """

    family: str
    shape: Shape
    parameters: int
    dtype: str
    longest_prompt: int
    weight_bytes: int

    @property
    def graph(self) -> Graph:
        """The computation graph."""
        return self.shape.graph

    def needs(self, length: int) -> dict[str, Need]:
        """Return the memory that examples of `length` tokens need beyond the weights, for each command.

        'score' is EAP-IG with five steps, 'evaluate' runs circuits, 'learn' runs weighted circuits with gradients.
        """
        return {
            "score": scoring_need(self.shape, length, runs=5),
            "evaluate": circuit_need(self.shape, length),
            "learn": weighted_need(self.shape, length, can_keep_streams(self.shape, length)),
        }


def inspect_model(name: str | Path, trust_remote_code: bool = False, dtype: str | torch.dtype = "auto") -> ModelFacts:
    """Return what a model's config says about it, without loading its weights.

    Parameters
    ----------
    name, trust_remote_code
        As for `load_model`.
    dtype
        The dtype that sizes are computed for; 'auto' is the dtype of the stored weights.

    Returns
    -------
    ModelFacts
        Its family, graph, number of parameters, and the memory that working with it needs.

    Raises
    ------
    InputError
        If there is no such model, or its config describes one that edgewise does not support.
    """
    source = ModelSource(str(name), "cpu", dtype_name(dtype), trust_remote_code=trust_remote_code)
    return inspect_source(source)[0]


def inspect_source(source: ModelSource) -> tuple[ModelFacts, Any]:
    """Return the facts of a model, and its HuggingFace module on the device `meta` (without weights)."""
    import transformers

    files = find_model_files(source.name)
    with silence_transformers(), parse_header_once(files.gguf):
        config = read_config(source, files)
        stored = (None if files.gguf else getattr(config, "dtype", None)) or torch.float32
        dtype = stored if source.dtype == "auto" else choose_dtype(source.dtype, stored, torch.device("cpu"))
        with wrap_read_errors(f"model {source.name!r}", MODEL_CHOICES), torch.device("meta"):
            module = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=source.trust_remote_code)
            transformer = FAMILIES[config.model_type].build(module.to(dtype))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    facts = ModelFacts(
        family=config.model_type,
        shape=transformer.shape,
        parameters=parameters,
        dtype=dtype_name(dtype),
        longest_prompt=transformer.max_length,
        weight_bytes=parameters * dtype.itemsize,
    )
    return facts, module


def check_source(source: ModelSource) -> None:
    """Raise InputError if a model can't be loaded, as far as its config and the devices tell."""
    choose_dtype(source.dtype, None, choose_devices(source.device)[0])
    bos_name(source.bos)
    inspect_source(replace(source, dtype="auto"))


def read_config(source: ModelSource, files: ModelFiles) -> Any:
    """Return the HuggingFace config of a model. Raise InputError if edgewise does not support what it says."""
    import transformers

    what, folder = f"model {source.name!r}", Path(files.location)
    if files.gguf is not None:
        check_gguf_header(folder / files.gguf)
    elif files.is_local:
        if not (folder / CONFIG_FILE).is_file():
            raise InputError(f"{what} can't be read: the folder has no file {CONFIG_FILE}; {MODEL_CHOICES}")
        if not isinstance(read_json(folder / CONFIG_FILE), dict):
            raise InputError(f"{files.config_name} must be a JSON object")
    with wrap_read_errors(what, MODEL_CHOICES):
        # transformers 5 renamed `PretrainedConfig` to `PreTrainedConfig`.
        config_class = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
        written, _ = config_class.get_config_dict(**files.pretrained_arguments())
    try:
        _check_written(written, files.config_name, source.trust_remote_code)
        with wrap_read_errors(what, MODEL_CHOICES):
            config = transformers.AutoConfig.from_pretrained(
                **files.pretrained_arguments(), trust_remote_code=source.trust_remote_code
            )
        check_config(config)
        _check_read(config, files.config_name)
    except InputError as error:
        message = str(error)
        raise InputError(message if files.location in message else f"{files.config_name}: {message}") from None
    return config


def _check_written(values: Mapping[str, Any], where: str, trust_remote_code: bool) -> None:
    """Raise InputError if no model of a supported family can have the config in the file `where`.

    Call it before a library builds anything: a billion layers would exhaust the memory. An unknown family passes only
    if its code is trusted; `_check_read` checks the result.
    """
    kind = values.get("model_type")
    known = isinstance(kind, str) and kind in FAMILIES
    if not known:
        if not values.get("auto_map"):
            raise unknown_name("model family", str(kind), list(FAMILIES))
        if not trust_remote_code:
            raise InputError(
                f"{where}: its model_type {str(kind)!r} needs code that comes with the model and "
                f"isn't run; give trust_remote_code=True if you trust it, or choose one of: {', '.join(FAMILIES)}"
            )
    for names in (LAYERS, HEADS, WIDTH):
        if known and not any(name in values for name in names):
            raise InputError(f"{where} lacks {' (or '.join(names)}), a whole number")
    for name, value in values.items():
        if name in MOST and not (value is None and name in MAY_BE_NULL):
            _check_count(value, name, where)
        if name.endswith("attn_implementation") and "/" in str(value):
            raise InputError(f"{where} needs code from the hub: {name} = {short(value)}; remove it")


def _check_read(config: Any, where: str) -> None:
    """Raise InputError if the numbers of a config that was read contradict each other."""
    for name in MOST:
        if (value := getattr(config, name, None)) is not None:
            _check_count(value, name, where)
    heads = config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    if heads % shared:
        raise InputError(f"{where}: {heads} heads can't share {shared} keys and values")
    if not set(getattr(config, "layer_types", None) or ()) <= set(LAYER_TYPES):
        raise InputError(f"{where}: layer_types may be {', '.join(LAYER_TYPES)}, not {short(config.layer_types)}")
    dtype = getattr(config, "dtype", None)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError(f"{where}: dtype must be a type of floating-point numbers, not {short(dtype)}")


def _check_count(value: Any, name: str, where: str) -> None:
    if type(value) is not int or not 1 <= value <= MOST[name]:
        raise InputError(f"{where}: {name} must be a whole number from 1 to {MOST[name]:,}, not {short(value)}")


def check_weight_files(files: ModelFiles, config: Any) -> int:
    """Return the least number of parameters of a model: its embedding and the large matrices of its layers.

    Raise InputError if they don't fit into its weight files: transformers would fill the missing ones with random
    numbers, however many.
    """
    heads, width = config.num_attention_heads, config.hidden_size
    sizes = (getattr(config, name, None) for name in ("intermediate_size", "n_inner", "ffn_dim"))
    inner = next(filter(None, sizes), 4 * width)
    d_head = getattr(config, "head_dim", None) or width // heads
    positions = getattr(config, "n_positions", 0)
    least = width * (config.vocab_size + positions + config.num_hidden_layers * 2 * (heads * d_head + inner))
    if files.gguf is None:  # a number has at least a byte
        limit = sum(file.stat().st_size for file in files.list_weight_files())
    else:
        limit = NUMBERS_PER_BYTE * (Path(files.location) / files.gguf).stat().st_size
    if 0 < limit < least:  # 0: the files are not known
        raise InputError(
            f"{files.config_name} describes a model of at least {least:,} parameters, but its weight files have no "
            f"room for more than {limit:,}; check that they were downloaded completely"
        )
    return int(least)


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Hide the progress bars and hints of transformers and the hub, and restore their settings afterwards."""
    from tqdm import tqdm
    from transformers.utils import logging

    tqdm_init = tqdm.__init__

    def hide_bar(bar: Any, *arguments: Any, **options: Any) -> None:
        tqdm_init(bar, *arguments, **{**options, "disable": True})

    verbosity, hub_logger = logging.get_verbosity(), getLogger("huggingface_hub")
    hub_level = hub_logger.level
    tqdm.__init__ = hide_bar  # of all libraries, whatever their settings say
    logging.set_verbosity_error()
    hub_logger.setLevel(ERROR)
    try:
        yield
    finally:
        tqdm.__init__ = tqdm_init
        logging.set_verbosity(verbosity)
        hub_logger.setLevel(hub_level)
