"""Studies: the paper's experiments over models, tasks, recipes, hyper-parameters and seeds, in one go.

plan -> run (unit by unit, each kept on disk) -> outcome (curves per recipe and seed) -> tables
"""

from .outcome import Cell, Repeats, Study
from .plan import Grid, Plan
from .run import read_study, run_study
from .tables import Entry, StudyTable, TableRow, study_tables

__all__ = [
    "Cell",
    "Entry",
    "Grid",
    "Plan",
    "Repeats",
    "Study",
    "StudyTable",
    "TableRow",
    "read_study",
    "run_study",
    "study_tables",
]
