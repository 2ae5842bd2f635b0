"""The names of this package, imported when they are first used."""

from .discovery import Discovery as Discovery
from .forecast import Forecast as Forecast
from .outcome import Outcome as Outcome
from .recipe import Recipe as Recipe, select_circuits as select_circuits
from .settings import Settings as Settings, as_published as as_published
from .stability import overlap as overlap
from .tuning_result import Tuning as Tuning
