"""The names of this package, imported when they are first used."""

from .curves import (
    evaluate_selections as evaluate_selections,
)
from .curves import (
    learn_rankings as learn_rankings,
)
from .curves import (
    rank_edges as rank_edges,
)
from .curves import (
    score_task as score_task,
)
from .curves import (
    select_recipes as select_recipes,
)
from .discovery import Discovery as Discovery
from .forecast import (
    EvaluateWork as EvaluateWork,
)
from .forecast import (
    Forecast as Forecast,
)
from .forecast import (
    LearnWork as LearnWork,
)
from .forecast import (
    ScoreWork as ScoreWork,
)
from .forecast import (
    forecast as forecast,
)
from .outcome import ModelAccuracy as ModelAccuracy
from .outcome import Outcome as Outcome
from .outcome import RankedRecipe as RankedRecipe
from .portfolio import portfolio as portfolio
from .recipe import (
    GREEDY as GREEDY,
)
from .recipe import (
    PORTFOLIO as PORTFOLIO,
)
from .recipe import (
    TUNED as TUNED,
)
from .recipe import (
    Recipe as Recipe,
)
from .recipe import (
    Recipes as Recipes,
)
from .recipe import (
    learned_recipes as learned_recipes,
)
from .recipe import (
    merge_recipes as merge_recipes,
)
from .recipe import (
    paper_recipes as paper_recipes,
)
from .recipe import (
    select_circuits as select_circuits,
)
from .recipe import (
    shrinkage_recipes as shrinkage_recipes,
)
from .run_info import Prompt as Prompt
from .run_info import RunInfo as RunInfo
from .run_info import TaskInfo as TaskInfo
from .settings import (
    DEFAULTS as DEFAULTS,
)
from .settings import (
    PUBLISHED as PUBLISHED,
)
from .settings import (
    Settings as Settings,
)
from .settings import (
    as_published as as_published,
)
from .settings import (
    published_words as published_words,
)
from .stability import (
    jaccard as jaccard,
)
from .stability import (
    mean_overlap as mean_overlap,
)
from .stability import (
    overlap as overlap,
)
from .stability import (
    recipe_overlap as recipe_overlap,
)
from .tuning import tune as tune
from .tuning import tuning_recipes as tuning_recipes
from .tuning import tuning_task as tuning_task
from .tuning_result import Tuning as Tuning
