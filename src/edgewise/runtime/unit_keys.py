"""The key of a unit of work: a digest of all that its value depends on."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import version
from numbers import Number
from pathlib import PurePath
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import InputError
from ..method import Method, check_frozen

PACKAGE = __package__.partition(".")[0]
# Other versions may compute something else under the same names.
VERSIONS = tuple(f"{name} {version(name)}" for name in (PACKAGE, "numpy", "torch", "transformers", "highspy"))
KNOWN = {PACKAGE, *sys.stdlib_module_names}
# Values that say all there is to them when they are shown.
SHOWN = (Number, str, bytes, PurePath, Enum, range, slice, np.dtype, type(None))
# Classes typed at a prompt: only this process knows them, so no other may find their work.
_UNWRITTEN: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def unit_key(stage: str, **depends: Any) -> str:
    """The key for a stage and what it depends on: plain values, methods, arrays, and digests of anything large."""
    described = {name: _described(value) for name, value in sorted(depends.items())}
    return f"{stage}-{_digest(repr((VERSIONS, described)).encode())[:32]}"


def custom_digests(methods: Iterable[Method]) -> dict[str, str]:
    """By name, a digest of each method that isn't the package's own: of its parameters and of its class's text."""
    return {one.name: _digest(_described(one).encode()) for one in methods if _texts(type(one))}


def _described(value: Any) -> str:
    """A text that two values share only if they are the same."""
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, SHOWN):
        return repr(value)
    if isinstance(value, tuple | list):
        return repr([_described(one) for one in value])
    if isinstance(value, Mapping | set | frozenset):
        pairs = value.items() if isinstance(value, Mapping) else zip(value, value, strict=True)
        return repr(sorted((_described(name), _described(one)) for name, one in pairs))
    if isinstance(value, Method):
        check_frozen(value)
    if is_dataclass(value) or isinstance(value, Method):
        names = [field.name for field in fields(value)] if is_dataclass(value) else []  # type: ignore[arg-type]
        held = [(name, _described(getattr(value, name))) for name in names]
        return repr((getattr(value, "name", type(value).__qualname__), held, _texts(type(value))))
    return _array(value)


def _array(value: Any) -> str:
    """The digest of an array or tensor; anything else is refused, as nobody knows what it holds."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        held = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {_digest(held)}"
    if torch is not None and isinstance(value, torch.dtype | torch.device):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {_digest(value.tobytes())}"
    raise InputError(
        f"a parameter is a {type(value).__name__}, which doesn't say what it holds; "
        "give a method numbers, text, arrays, other methods, or tuples and mappings of them"
    )


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def _texts(kind: type) -> list[str]:
    """The texts of a class and its bases, as far as they are one's own: names and parameters don't say what they do."""
    return [_text(one) for one in kind.__mro__ if one.__module__.partition(".")[0] not in KNOWN]


def _text(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return _UNWRITTEN.setdefault(kind, uuid4().hex)
