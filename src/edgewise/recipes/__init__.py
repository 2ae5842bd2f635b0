"""From rankings to curves: recipes, settings, outcomes, tuning, portfolios, stability, forecasts of cost."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .curves import evaluate_selections, learn_rankings, rank_edges, score_task, select_recipes
    from .forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, forecast
    from .outcome import ModelAccuracy, Outcome, RankedRecipe
    from .portfolio import portfolio
    from .recipe import (
        GREEDY,
        PORTFOLIO,
        TUNED,
        Recipe,
        Recipes,
        learned_recipes,
        merge_recipes,
        paper_recipes,
        select_circuits,
        shrinkage_recipes,
    )
    from .run_info import Prompt, RunInfo, TaskInfo
    from .settings import DEFAULTS, PUBLISHED, Settings, as_published, published_words
    from .stability import jaccard, mean_overlap, overlap, recipe_overlap
    from .tuning import Tuning, tune, tuning_recipes, tuning_task

_HOMES = {
    ".curves": ("evaluate_selections", "learn_rankings", "rank_edges", "score_task", "select_recipes"),
    ".outcome": ("ModelAccuracy", "Outcome", "RankedRecipe"),
    ".forecast": ("EvaluateWork", "Forecast", "LearnWork", "ScoreWork", "forecast"),
    ".portfolio": ("portfolio",),
    ".recipe": (
        "GREEDY", "PORTFOLIO", "TUNED", "Recipe", "Recipes", "learned_recipes", "merge_recipes", "paper_recipes",
        "select_circuits", "shrinkage_recipes",
    ),
    ".run_info": ("Prompt", "RunInfo", "TaskInfo"),
    ".settings": ("DEFAULTS", "PUBLISHED", "Settings", "as_published", "published_words"),
    ".stability": ("jaccard", "mean_overlap", "overlap", "recipe_overlap"),
    ".tuning": ("Tuning", "tune", "tuning_recipes", "tuning_task"),
}  # fmt: skip
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
