"""Change what transformers does while it loads a model: no custom code, no progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from logging import ERROR, getLogger
from typing import Any


@contextmanager
def block_custom_generate() -> Iterator[None]:
    """Never load a model's own `generate` function.

    edgewise does not generate text. transformers 4.57 runs `custom_generate/generate.py` of a local folder even with
    trust_remote_code=False.
    """
    from transformers import GenerationMixin

    def raise_missing(*_: Any, **__: Any) -> None:
        raise OSError("custom generate functions are not loaded")

    mixin: Any = GenerationMixin
    load_custom_generate = mixin.load_custom_generate
    mixin.load_custom_generate = raise_missing
    try:
        yield
    finally:
        mixin.load_custom_generate = load_custom_generate


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Hide the progress bars and hints of transformers and the hub, and restore their settings afterwards."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from tqdm import tqdm
    from transformers.utils import logging

    tqdm_init = tqdm.__init__
    tqdm.__init__ = partialmethod(tqdm_init, disable=True)  # some readers show a bar whatever the settings say
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    restore_hub_bars = disable_progress_bars if are_progress_bars_disabled() else enable_progress_bars
    hub_logger = getLogger("huggingface_hub")
    hub_level = hub_logger.level
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub_logger.setLevel(ERROR)
    try:
        yield
    finally:
        tqdm.__init__ = tqdm_init
        logging.set_verbosity(verbosity)
        hub_logger.setLevel(hub_level)
        if has_bars:
            logging.enable_progress_bar()
        restore_hub_bars()  # transformers switches the hub's bars together with its own
