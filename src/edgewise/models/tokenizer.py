"""Load the tokenizer of a model, and choose the token that prompts begin with."""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as short
from typing import Any

from ..errors import InputError
from ..io.reading import wrap_read_errors
from ..io.records import read_json
from .model import bos_name
from .model_files import MAX_TEXT_BYTES, ModelFiles

# Tokens that can only begin a text. A model that has one was trained with it, even if its tokenizer does not add it.
BEGINNING_TOKENS = ("<s>", "<bos>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>")
NO_MAX_LENGTH = 10**30
MAX_TEXT_GROWTH = 10_000
# The largest number of tokens that a tokenizer may add, such as `extra_ids` of T5.
MAX_ADDED_TOKENS = 1_000_000


def load_tokenizer(files: ModelFiles, trust_remote_code: bool) -> Any:
    """Return the tokenizer of a model, or None if its folder has none."""
    import transformers

    if files.is_local and not files.gguf:
        if not any(Path(files.location).glob("*token*")):
            return None
        _check_text_growth(Path(files.location) / "tokenizer.json")
        _check_numbers(Path(files.location) / "tokenizer_config.json")
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


def _check_numbers(path: Path) -> None:
    """Raise InputError if a tokenizer's config asks for more tokens than any tokenizer has. Lengths don't matter."""
    record = read_json(path, max_bytes=MAX_TEXT_BYTES) if path.is_file() else None
    for name, value in record.items() if isinstance(record, dict) else ():
        if isinstance(value, int) and value > MAX_ADDED_TOKENS and not name.endswith(("length", "len")):
            raise InputError(f"{path}: {name} may be at most {MAX_ADDED_TOKENS:,}, not {short(value)}")
