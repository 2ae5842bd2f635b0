"""Everything that compares methods: recipes, curves, tuning, stability, and the paper's experiments as a study.

recipes + rankings -> curves (the one way there) -> tune, or plan -> run -> outcome -> tables
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .costs import Forecast, evaluating, forecast, learning, scoring, study_forecasts
    from .curves import enter, learners, measure, trace
    from .folder import is_study, open_study, read_study
    from .measured import Competence, Contender, Measured, Outcome
    from .outcome import Cell, Repeats, Study
    from .plan import Grid, Plan
    from .portfolios import portfolio
    from .recipes import (
        GREEDY,
        PORTFOLIO,
        TUNED,
        Recipe,
        Recipes,
        learned_recipes,
        merged,
        paper_recipes,
        select_circuits,
        shrinkage_recipes,
        told_apart,
    )
    from .run import go_on, run_study
    from .settings import DEFAULTS, PUBLISHED, Settings, as_published, published_words
    from .stability import jaccard, mean_overlap, overlap, recipe_overlap
    from .tables import Entry, StudyTable, TableRow, study_tables
    from .tuning import Tuning, tune, tuning_recipes, tuning_task

_HOMES = {
    ".curves": ("enter", "learners", "measure", "trace"),
    ".measured": ("Competence", "Contender", "Measured", "Outcome"),
    ".costs": ("Forecast", "evaluating", "forecast", "learning", "scoring", "study_forecasts"),
    ".folder": ("is_study", "open_study", "read_study"),
    ".outcome": ("Cell", "Repeats", "Study"),
    ".plan": ("Grid", "Plan"),
    ".portfolios": ("portfolio",),
    ".recipes": (
        "GREEDY", "PORTFOLIO", "TUNED", "Recipe", "Recipes", "learned_recipes", "merged", "paper_recipes",
        "select_circuits", "shrinkage_recipes", "told_apart",
    ),
    ".run": ("go_on", "run_study"),
    ".settings": ("DEFAULTS", "PUBLISHED", "Settings", "as_published", "published_words"),
    ".stability": ("jaccard", "mean_overlap", "overlap", "recipe_overlap"),
    ".tables": ("Entry", "StudyTable", "TableRow", "study_tables"),
    ".tuning": ("Tuning", "tune", "tuning_recipes", "tuning_task"),
}  # fmt: skip
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
