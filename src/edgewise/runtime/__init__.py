"""Where and how work runs: engines, the store of finished work, progress."""

from typing import TYPE_CHECKING

from ..errors import InputError, unknown_name
from ..lazy import lazy_names

if TYPE_CHECKING:
    from .engine import IN_PROCESS, Engine
    from .local_engine import Local
    from .partial_unit import Columns, PartialUnit
    from .ray_engine import Ray
    from .session import DEFAULT_SESSION, Session
    from .store import NO_STORE, Store, Unit, open_partial_store
    from .unit_keys import VERSIONS, custom_digests, unit_key

_HOMES = {
    ".engine": ("IN_PROCESS", "Engine"),
    ".local_engine": ("Local",),
    ".partial_unit": ("Columns", "PartialUnit"),
    ".ray_engine": ("Ray",),
    ".session": ("DEFAULT_SESSION", "Session"),
    ".store": ("NO_STORE", "Store", "Unit", "open_partial_store"),
    ".unit_keys": ("VERSIONS", "custom_digests", "unit_key"),
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})

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
        raise InputError(f"the engine local has no address, but {address!r} was given; did you mean --engine ray?")
    return Local(workers)
