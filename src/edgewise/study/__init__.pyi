"""The names of this package, imported when they are first used."""

from .folder import (
    Cell as Cell,
    Cost as Cost,
    Repeats as Repeats,
    Study as Study,
    is_study as is_study,
    read_study as read_study,
)
from .plan import Grid as Grid, Plan as Plan
from .run import (
    ALL as ALL,
    choose_scorers as choose_scorers,
    run_study as run_study,
    study_forecasts as study_forecasts,
)
from .tables import (
    Entry as Entry,
    StudyTable as StudyTable,
    TableRow as TableRow,
    mean_ranks as mean_ranks,
    study_tables as study_tables,
)
