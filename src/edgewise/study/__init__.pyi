"""The names of this package, imported when they are first used."""

from .cells import Cell as Cell
from .cells import Repeats as Repeats
from .cells import Study as Study
from .folder import is_study as is_study
from .folder import open_study as open_study
from .folder import read_study as read_study
from .plan import Grid as Grid
from .plan import Plan as Plan
from .run import resume_study as resume_study
from .run import run_study as run_study
from .run import study_forecasts as study_forecasts
from .tables import Entry as Entry
from .tables import StudyTable as StudyTable
from .tables import TableRow as TableRow
from .tables import study_tables as study_tables
