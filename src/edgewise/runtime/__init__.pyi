"""The names of this package, imported when they are first used."""

from .engine import IN_PROCESS as IN_PROCESS
from .engine import Engine as Engine
from .local_engine import Local as Local
from .partial_unit import Columns as Columns
from .partial_unit import PartialUnit as PartialUnit
from .ray_engine import Ray as Ray
from .session import DEFAULT_SESSION as DEFAULT_SESSION
from .session import Session as Session
from .store import NO_STORE as NO_STORE
from .store import Store as Store
from .store import Unit as Unit
from .store import open_partial_store as open_partial_store
from .unit_keys import VERSIONS as VERSIONS
from .unit_keys import custom_digests as custom_digests
from .unit_keys import unit_key as unit_key

ENGINES: tuple[str, ...]

def open_engine(name: str = "local", address: str | None = None, workers: int | None = None) -> Engine: ...
