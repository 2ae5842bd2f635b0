"""The names of this package, imported when they are first used."""

from .engine import IN_PROCESS as IN_PROCESS, Engine as Engine, thread_count as thread_count
from .local_engine import Local as Local
from .ray_engine import Ray as Ray, open_engine as open_engine
from .session import DEFAULT_SESSION as DEFAULT_SESSION, Session as Session
from .store import NO_STORE as NO_STORE, Store as Store, Unit as Unit, open_partial_store as open_partial_store
from .unit_keys import VERSIONS as VERSIONS, unit_key as unit_key

ENGINES: tuple[str, ...]
