"""The names of this package, imported when they are first used."""

from .curves import (
    evaluate_selections as evaluate_selections,
    learn_rankings as learn_rankings,
    rank_edges as rank_edges,
    score_task as score_task,
    select_recipes as select_recipes,
)
from .discovery import Discovery as Discovery
from .forecast import (
    EvaluateWork as EvaluateWork,
    Forecast as Forecast,
    LearnWork as LearnWork,
    ScoreWork as ScoreWork,
    forecast as forecast,
)
from .outcome import ModelAccuracy as ModelAccuracy, Outcome as Outcome, RankedRecipe as RankedRecipe
from .portfolio import portfolio as portfolio
from .recipe import (
    GREEDY as GREEDY,
    PORTFOLIO as PORTFOLIO,
    TUNED as TUNED,
    Recipe as Recipe,
    Recipes as Recipes,
    learned_recipes as learned_recipes,
    merge_recipes as merge_recipes,
    paper_recipes as paper_recipes,
    select_circuits as select_circuits,
    shrinkage_recipes as shrinkage_recipes,
)
from .run_info import Prompt as Prompt, RunInfo as RunInfo, TaskInfo as TaskInfo
from .settings import (
    DEFAULTS as DEFAULTS,
    PUBLISHED as PUBLISHED,
    Settings as Settings,
    as_published as as_published,
    published_words as published_words,
)
from .stability import (
    jaccard as jaccard,
    mean_overlap as mean_overlap,
    overlap as overlap,
    recipe_overlap as recipe_overlap,
)
from .tuning import tune as tune, tuning_recipes as tuning_recipes, tuning_task as tuning_task
from .tuning_result import Tuning as Tuning
