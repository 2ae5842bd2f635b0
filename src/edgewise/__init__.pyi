"""The public names. `import edgewise` reads this list, and imports a module when one of its names is first used."""

from . import (
    core as core,
    evaluate as evaluate,
    learn as learn,
    models as models,
    recipes as recipes,
    report as report,
    results as results,
    runtime as runtime,
    score as score,
    select as select,
    study as study,
    tasks as tasks,
    verify as verify,
)
from .core.circuit import Circuit as Circuit
from .core.ranking import Ranking as Ranking
from .core.scores import EdgeScores as EdgeScores
from .core.statistics import (
    Bootstrap as Bootstrap,
    NoFilter as NoFilter,
    Shrinkage as Shrinkage,
    summarise as summarise,
)
from .errors import EdgewiseWarning as EdgewiseWarning, InputError as InputError
from .evaluate.ablations import Ablation as Ablation
from .evaluate.intervals import compare as compare
from .evaluate.known import known_circuit as known_circuit
from .evaluate.measures import CMD as CMD, CPR as CPR
from .evaluate.run_circuits import evaluate_circuits as evaluate_circuits
from .graph import Graph as Graph
from .learn.run_learner import learn_ranking as learn_ranking
from .learn.top_k_learner import TopKLearner as TopKLearner
from .models.load import load_model as load_model, wrap_model as wrap_model
from .models.model import Model as Model
from .pipeline import discover as discover
from .recipes.discovery import Discovery as Discovery
from .recipes.recipe import Recipe as Recipe, paper_recipes as paper_recipes
from .recipes.settings import Settings as Settings
from .recipes.stability import jaccard as jaccard
from .recipes.tuning import tune as tune
from .report.write_result import write_result as write_result
from .results.result_folder import read_result as read_result
from .runtime.local_engine import Local as Local
from .runtime.ray_engine import Ray as Ray
from .runtime.session import Session as Session
from .runtime.store import Store as Store
from .score.base import BatchScores as BatchScores, Scorer as Scorer
from .score.eap import Eap as Eap, EapIg as EapIg
from .score.mask_ig import MaskIg as MaskIg
from .score.run_scorer import score_edges as score_edges
from .select.base import (
    SelectionProblem as SelectionProblem,
    Solution as Solution,
    Solver as Solver,
    Status as Status,
)
from .select.heuristics import Greedy as Greedy, TopN as TopN
from .select.ilp import Ilp as Ilp
from .select.run_solver import solve as solve
from .study.folder import read_study as read_study
from .study.plan import Plan as Plan
from .study.run import run_study as run_study
from .tasks.load import load_task as load_task, make_task as make_task, split_task as split_task
from .tasks.metrics import Accuracy as Accuracy, Metric as Metric
from .tasks.task import PromptPair as PromptPair, Task as Task
from .verify.knock_outs import knock_out as knock_out
from .verify.verify_circuit import verify_circuit as verify_circuit

__version__: str
