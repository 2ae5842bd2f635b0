"""Where and how work runs: engines, the store of finished work, progress."""

from typing import TYPE_CHECKING

import lazy_loader

from ..errors import InputError, unknown_name

if TYPE_CHECKING:
    from .engine import Engine

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
ENGINES = ("local", "ray")


def open_engine(name: str = "local", address: str | None = None, workers: int | None = None) -> "Engine":
    """Return the engine called `name`: `Local`, or `Ray` at an address. Use it in a `with`, which ends its workers."""
    if name.lower() not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if name.lower() == "ray":
        from .ray_engine import Ray

        return Ray(address, workers)
    from .local_engine import Local

    if address is not None:
        raise InputError(f"the engine local has no address, but {address!r} was given; did you mean engine='ray'?")
    return Local(workers)
