"""Where and how work runs: engines, the store of finished work, progress."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .engine import HERE, Engine
    from .local_engine import Local
    from .open_engine import ENGINES, open_engine
    from .partial_unit import Columns, Filling
    from .ray_engine import Ray
    from .session import DEFAULT_SESSION, Session
    from .store import NO_STORE, Store, Unit, working_on
    from .unit_keys import VERSIONS, own_digests, unit_key

_HOMES = {
    ".engine": ("HERE", "Engine"),
    ".local_engine": ("Local",),
    ".open_engine": ("ENGINES", "open_engine"),
    ".partial_unit": ("Columns", "Filling"),
    ".ray_engine": ("Ray",),
    ".session": ("DEFAULT_SESSION", "Session"),
    ".store": ("NO_STORE", "Store", "Unit", "working_on"),
    ".unit_keys": ("VERSIONS", "own_digests", "unit_key"),
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
