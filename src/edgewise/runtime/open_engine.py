"""From a name to an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError, unknown_name

if TYPE_CHECKING:
    from .engine import Engine

ENGINES = ("local", "ray")


def open_engine(name: str = "local", address: str | None = None, workers: int | None = None) -> Engine:
    """The engine called `name`: `Local`, or `Ray` at an address; to be used in a `with`, which lets its workers go."""
    from .local_engine import Local
    from .ray_engine import Ray

    if name.lower() == Ray.name:
        return Ray(address, workers)
    if name.lower() != Local.name:
        raise unknown_name("engine", name, ENGINES)
    if address is not None:
        raise InputError(f"the engine local has no address, but {address!r} was given; did you mean --engine ray?")
    return Local(workers)
