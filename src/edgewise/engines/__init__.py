"""Engines: where jobs run. This process, several processes of this machine, or a Ray cluster."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ..models.running import HERE, Engine
    from .choose import ENGINES, open_engine
    from .cluster import Ray
    from .local import Local

_HOMES = {
    "..models.running": ("HERE", "Engine"),
    ".choose": ("ENGINES", "open_engine"),
    ".cluster": ("Ray",),
    ".local": ("Local",),
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
