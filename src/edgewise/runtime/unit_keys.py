"""Keys of the store: a digest of everything that a unit of work depends on."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.metadata import version
from numbers import Number
from pathlib import Path, PurePath
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import InputError
from ..method import Method, check_frozen

PACKAGE = __package__.partition(".")[0]
# Other versions may compute other values from the same arguments.
VERSIONS = tuple(f"{name} {version(name)}" for name in (PACKAGE, "numpy", "torch", "transformers", "highspy"))
# Packages of edgewise that compute nothing that is stored.
WITHOUT_RESULTS = ("cli", "report")
# Methods of other packages than these are custom: their source is part of the key.
STANDARD_PACKAGES = {PACKAGE, *sys.stdlib_module_names}
# Types whose repr says all about a value.
PLAIN_TYPES = (Number, str, bytes, PurePath, Enum, range, slice, np.dtype, type(None))
# Class without source, such as one typed at a prompt, or inside a function -> a random text: other processes must not
# use its units.
_CLASSES_WITHOUT_SOURCE: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def unit_key(stage: str, **arguments: Any) -> str:
    """Return the key of a stage and its arguments: plain values, methods, arrays, and digests of anything large."""
    described = {name: _describe(value) for name, value in sorted(arguments.items())}
    return f"{stage}-{_digest(repr((VERSIONS, code_digest(), described)).encode())[:32]}"


@cache
def code_digest() -> str:
    """Return a digest of edgewise's own code. In a git checkout, it changes without a new version."""
    root = Path(__file__).parent.parent
    paths = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    files = [(str(path), _digest((root / path).read_bytes())) for path in paths if path.parts[0] not in WITHOUT_RESULTS]
    return _digest(repr(files).encode())[:16]


def _describe(value: Any) -> str:
    """Return a text that two values share only if they are equal."""
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, PLAIN_TYPES):
        return repr(value)
    if isinstance(value, tuple | list):
        return repr([_describe(item) for item in value])
    if isinstance(value, Mapping | set | frozenset):
        pairs = value.items() if isinstance(value, Mapping) else zip(value, value, strict=True)
        return repr(sorted((_describe(name), _describe(item)) for name, item in pairs))
    if isinstance(value, Method):
        check_frozen(value)
    if is_dataclass(value) or isinstance(value, Method):
        names = [field.name for field in fields(value)] if is_dataclass(value) else []  # type: ignore[arg-type]
        items = [(name, _describe(getattr(value, name))) for name in names]
        return repr((getattr(value, "name", type(value).__qualname__), items, _custom_sources(type(value))))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {_digest(data)}"
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


def _custom_sources(kind: type) -> list[str]:
    """Return the sources of a class and its bases that aren't edgewise's: their names don't say what they do.

    A source is the whole file, because a class may use functions of its module; in a notebook, the class.
    """
    sources = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in STANDARD_PACKAGES:
            # A class inside a function may read variables of the function, which its source doesn't tell.
            for part in () if "<locals>" in base.__qualname__ else (sys.modules.get(base.__module__), base):
                with suppress(OSError, TypeError):
                    sources.append(inspect.getsource(part))  # type: ignore[arg-type]
                    break
            else:
                sources.append(_CLASSES_WITHOUT_SOURCE.setdefault(base, uuid4().hex))
    return sources
