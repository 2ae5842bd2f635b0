"""One memory: finished units of work, kept by the digest of all that they depend on.

A stage is a function of values, so a unit that was finished once is found again by whoever asks for the same: this is
how run, tune and study go on after they were stopped. What changes a result changes the key, so nothing stale is found.
"""

from .filling import Columns, Filling
from .keys import VERSIONS, own_digests, unit_key
from .store import FILES as STORE_FILES
from .store import NOTHING, Store, Unit, working_on
