"""What a model's config alone says about the model: graph, size, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..graph import Graph
from ..io.reading import wrap_read_errors
from .config import read_config
from .families import FAMILIES
from .gguf_cache import find_config
from .memory import Need, Shape, can_keep_streams, circuit_need, scoring_need, weighted_need
from .model import ModelSource, bos_name, choose_dtype, dtype_name
from .model_files import MODEL_CHOICES, ModelFiles, find_model_files
from .placement import choose_devices
from .transformers_settings import silence_transformers


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
