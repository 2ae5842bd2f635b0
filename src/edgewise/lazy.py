"""Public names that load their module on first use, so that `import edgewise` doesn't wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) for `homes`: public name -> the module, relative to `package`, that has it.

    Modules of the package are found, too. Its `__dir__` knows the names as well, for those who complete them.
    """
    names = vars(sys.modules[package])
    names["__dir__"] = lambda: sorted({*names, *homes})

    def load(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name], package), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
