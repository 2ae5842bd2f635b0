"""Read and check a model's config, and say what follows from it alone: graph, size, memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..io.reading import wrap_read_errors
from ..io.records import read_json
from .cache import find_config
from .config import check_read, check_written
from .families import FAMILIES, check_config
from .gguf_header import check_header
from .model import ModelFacts, ModelSource, bos_name, choose_dtype, dtype_name
from .model_files import CONFIG_FILE, MODEL_CHOICES, ModelFiles, find_model_files
from .placement import choose_devices
from .transformers_compat import read_config_dict, silence_transformers


def inspect_model(
    name: str | Path, trust_remote_code: bool = False, dtype: str | torch.dtype = "auto", cache: bool = True
) -> ModelFacts:
    """Return what a model's config says about it, without loading its weights.

    Parameters
    ----------
    name, trust_remote_code, cache
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
    source = ModelSource(str(name), "cpu", dtype_name(dtype), trust_remote_code=trust_remote_code, cache=cache)
    return inspect_source(source)[0]


def inspect_source(source: ModelSource) -> tuple[ModelFacts, Any]:
    """Return the facts of a model, and its HuggingFace module on the device `meta` (without weights)."""
    import transformers

    files = find_model_files(source.name)
    is_gguf = files.gguf is not None
    with silence_transformers():
        if files.gguf is not None and source.cache:
            copy = find_config(Path(files.location) / files.gguf, source.content)
            files = files if copy is None else ModelFiles(str(copy))
        config = read_config(source, files)
        stored = (None if is_gguf else getattr(config, "dtype", None)) or torch.float32
        dtype = stored if source.dtype == "auto" else choose_dtype(source.dtype, stored, torch.device("cpu"))
        with wrap_read_errors(f"model {source.name!r}", MODEL_CHOICES), torch.device("meta"):
            module = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=source.trust_remote_code)
            shape = FAMILIES[config.model_type].build(module.to(dtype)).shape
    parameters = sum(parameter.numel() for parameter in module.parameters())
    facts = ModelFacts(
        family=config.model_type,
        shape=shape,
        parameters=parameters,
        dtype=dtype_name(dtype),
        longest_prompt=config.max_position_embeddings,
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
        check_header(folder / files.gguf)
    elif files.is_local:
        if not (folder / CONFIG_FILE).is_file():
            raise InputError(f"{what} can't be read: the folder has no file {CONFIG_FILE}; {MODEL_CHOICES}")
        if not isinstance(read_json(folder / CONFIG_FILE), dict):
            raise InputError(f"{files.config_name} must be a JSON object")
    with wrap_read_errors(what, MODEL_CHOICES):
        written = read_config_dict(**files.pretrained_arguments())
    try:
        check_written(written, files.config_name, source.trust_remote_code)
        with wrap_read_errors(what, MODEL_CHOICES):
            config = transformers.AutoConfig.from_pretrained(
                **files.pretrained_arguments(), trust_remote_code=source.trust_remote_code
            )
        check_config(config)
        check_read(config, files.config_name)
    except InputError as error:
        message = str(error)
        raise InputError(message if files.location in message else f"{files.config_name}: {message}") from None
    return config
