"""The names of this package, imported when they are first used."""

from .folder import (
    Cell as Cell,
    Repeats as Repeats,
    Study as Study,
    is_study as is_study,
    open_study as open_study,
    read_study as read_study,
)
from .methods import (
    MethodCell as MethodCell,
    MethodComparison as MethodComparison,
    MethodRow as MethodRow,
    choose_methods as choose_methods,
    compare_methods as compare_methods,
    list_cells as list_cells,
    mean_ranks as mean_ranks,
    method_forecasts as method_forecasts,
)
from .plan import Grid as Grid, Plan as Plan
from .run import resume_study as resume_study, run_study as run_study, study_forecasts as study_forecasts
from .tables import Entry as Entry, StudyTable as StudyTable, TableRow as TableRow, study_tables as study_tables
