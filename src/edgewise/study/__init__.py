"""The paper's experiments: a plan, its cells over seeds, the tables, the folder."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .cells import Cell, Repeats, Study
    from .folder import is_study, open_study, read_study
    from .forecast import study_forecasts
    from .plan import Grid, Plan
    from .run import resume_study, run_study
    from .tables import Entry, StudyTable, TableRow, study_tables

_HOMES = {
    ".cells": ("Cell", "Repeats", "Study"),
    ".folder": ("is_study", "open_study", "read_study"),
    ".forecast": ("study_forecasts",),
    ".plan": ("Grid", "Plan"),
    ".run": ("resume_study", "run_study"),
    ".tables": ("Entry", "StudyTable", "TableRow", "study_tables"),
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
