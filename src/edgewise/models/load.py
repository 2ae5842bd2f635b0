"""From a name to a model: the embedded one, a local folder, or the hub."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, unknown_name
from ..graph import Graph
from .families import build_transformer, check_config
from .transformer import Transformer

DEMO = "demo"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model: its parts, and its tokenizer if it has one.

    bos  the token put in front of every prompt, or None
    """

    name: str
    transformer: Transformer
    tokenizer: Any = None
    bos: int | None = None

    @property
    def graph(self) -> Graph:
        """The computation graph."""
        return self.transformer.graph

    @property
    def vocabulary(self) -> int:
        """The number of tokens that it knows."""
        return self.transformer.unembed.shape[0]


def load_model(name: str = DEMO, device: str = "auto", dtype: str = "auto") -> Model:
    """Load `demo`, a local folder in HuggingFace's layout, or a name on the hub.

    device  any that torch offers; 'auto' takes the best there is
    dtype   'auto' keeps the type the weights are stored in (float32 on a CPU for half-precision weights)
    """
    import transformers

    place = choose_device(device)
    where = str(files("edgewise") / "demo") if name == DEMO else name
    local = name == DEMO or Path(name).is_dir()
    try:
        config = transformers.AutoConfig.from_pretrained(where, local_files_only=local)
    except (OSError, ValueError) as error:
        raise InputError(_not_found(name, error)) from None
    check_config(config)
    kind = choose_dtype(dtype, getattr(config, "dtype", None), place)
    try:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=kind, local_files_only=local)
    except (OSError, ValueError) as error:
        raise InputError(_not_found(name, error)) from None
    tokenizer = _load_tokenizer(where, local)
    loaded.to(place)  # type: ignore[arg-type]  # transformers wraps torch's method and loses its type
    return wrap_model(loaded, tokenizer, name)


def wrap_model(loaded: Any, tokenizer: Any = None, name: str = "model") -> Model:
    """A model from an already loaded HuggingFace causal language model, whose weights are shared, not copied."""
    loaded.eval().requires_grad_(False)
    return Model(name, build_transformer(loaded), tokenizer, _bos(tokenizer))


def choose_device(name: str) -> torch.device:
    """The torch device called `name`; for 'auto' the accelerator if there is one, else the CPU."""
    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return found if found is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} can't be used here ({reason}); try --device auto or cpu") from None
    return device


def choose_dtype(name: str, stored: torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype called `name`; for 'auto' the stored one, but float32 where half precision is slow (a CPU)."""
    if name == "auto":
        narrow = stored in (torch.float16, torch.bfloat16)
        return stored if stored is not None and not (narrow and device.type == "cpu") else torch.float32
    if name not in DTYPES:
        raise unknown_name("dtype", name, ["auto", *DTYPES])
    return DTYPES[name]


def _load_tokenizer(where: str, local: bool) -> Any:
    import transformers

    if local and not any(Path(where).glob("*token*")):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(where, local_files_only=local)
    except (OSError, ValueError) as error:
        raise InputError(f"the tokenizer of {where} can't be loaded: {_first_line(error)}") from None


def _bos(tokenizer: Any) -> int | None:
    """The token that the tokenizer itself puts in front of a text, if any."""
    if tokenizer is None or tokenizer.bos_token_id is None:
        return None
    return tokenizer.bos_token_id if tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id] else None


def _not_found(name: str, error: Exception) -> str:
    return (
        f"model {name!r} can't be loaded: {_first_line(error)} "
        f"Give {DEMO!r}, a folder in HuggingFace's layout, or a name on the hub such as gpt2."
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
