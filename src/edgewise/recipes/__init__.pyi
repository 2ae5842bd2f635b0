"""The names of this package, imported when they are first used."""

from .discovery import Discovery as Discovery, Outcome as Outcome, Tuning as Tuning
from .forecast import Forecast as Forecast
from .recipe import Recipe as Recipe, select_circuits as select_circuits
from .settings import Settings as Settings, as_published as as_published
from .stability import overlap as overlap
