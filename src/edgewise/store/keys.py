"""The key of a unit of work: a digest of all that its value depends on."""

from __future__ import annotations

import hashlib
import inspect
from importlib.metadata import version
from typing import Any

from ..methods import Method, plain

PACKAGE = __package__.partition(".")[0]
# Other versions may compute something else under the same names.
VERSIONS = tuple(f"{name} {version(name)}" for name in (PACKAGE, "numpy", "torch", "transformers", "highspy"))


def unit_key(stage: str, **depends: Any) -> str:
    """The key for a stage and what it depends on: plain values, methods, and digests of anything large."""
    described = {name: _described(value) for name, value in sorted(depends.items())}
    return f"{stage}-{hashlib.sha256(repr((VERSIONS, described)).encode()).hexdigest()[:32]}"


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return repr([_described(one) for one in value])
    return repr((plain(value), _source(type(value)))) if isinstance(value, Method) else repr(plain(value))


def _source(kind: type) -> str:
    """The text of a class that isn't the package's own: its name and parameters don't say what it does."""
    if kind.__module__.partition(".")[0] == PACKAGE:
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt: only this process knows it, so no other may find its work
        return f"{kind.__qualname__} {id(kind)}"
