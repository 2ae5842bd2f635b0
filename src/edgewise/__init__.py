"""edgewise: find circuits in language models. `discover` is the whole flow; every stage is a function of its own.

Methods are values: scorers (`EapIg`), filters (`Bootstrap`), solvers (`Ilp`), metrics, ablations and benchmarks are
small frozen objects that verbs take, and so are your own.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .core.circuit import Circuit
    from .core.ranking import Ranking
    from .core.scores import EdgeScores
    from .core.statistics import Bootstrap, EdgeStatistics, Filter, NoFilter, Shrinkage, summarise
    from .errors import InputError
    from .evaluate import (
        CMD,
        CPR,
        SIZES,
        Ablation,
        Curve,
        Faithfulness,
        Mean,
        Measure,
        MibFaithfulness,
        Patching,
        PositionalMean,
        RatioFaithfulness,
        Zero,
        auroc,
        compare,
    )
    from .evaluate.run_circuits import Evaluation, evaluate_circuits
    from .graph import Graph
    from .learn import Learner, TopKLearner
    from .learn.run_learner import learn_ranking
    from .models.facts import inspect_model
    from .models.load import load_model, wrap_model
    from .models.model import Model, ModelSource
    from .pipeline import Discovery, discover
    from .recipes.outcome import Outcome
    from .recipes.recipe import Recipe, paper_recipes, select_circuits
    from .recipes.settings import Settings, as_published
    from .recipes.stability import jaccard, overlap
    from .recipes.tuning import Tuning, tune
    from .report.study_tables import write_study
    from .report.write_result import write_result
    from .results import check_submission, convert, read_result
    from .runtime.engine import Engine
    from .runtime.local_engine import Local
    from .runtime.ray_engine import Ray
    from .runtime.session import Session
    from .runtime.store import Store
    from .score import Eap, EapIg, MaskIg, Scorer
    from .score.base import BatchScores
    from .score.run_scorer import score_edges
    from .select import Greedy, Ilp, Selection, SelectionProblem, Solution, Solver, Status, TopN, solve, solve_path
    from .study import Grid, Plan, Study, read_study, run_study
    from .tasks.load import load_task, make_task
    from .tasks.metrics import Accuracy, Kl, LogitDifference, Metric, ProbabilityDifference, Readout
    from .tasks.task import Example, PromptPair, Task

# Where names live: they are loaded on first use, so that neither `import edgewise` nor the command's start waits.
_HOMES = {
    ".core.circuit": ("Circuit",),
    ".runtime": ("Session", "Engine", "Local", "Ray"),
    ".errors": ("InputError",),
    ".evaluate": (
        "CMD", "CPR", "SIZES", "Ablation", "Measure", "Curve", "Faithfulness", "Mean",
        "MibFaithfulness", "Patching", "PositionalMean", "RatioFaithfulness", "Zero", "auroc", "compare",
    ),
    ".evaluate.run_circuits": ("Evaluation", "evaluate_circuits"),
    ".graph": ("Graph",),
    ".learn": ("Learner", "TopKLearner"),
    ".learn.run_learner": ("learn_ranking",),
    ".models": ("Model", "ModelSource", "inspect_model", "load_model", "wrap_model"),
    ".pipeline": ("Discovery", "discover"),
    ".core.ranking": ("Ranking",),
    ".report.study_tables": ("write_study",),
    ".report.write_result": ("write_result",),
    ".results": ("check_submission", "convert", "read_result"),
    ".score": ("Eap", "EapIg", "MaskIg", "Scorer"),
    ".score.run_scorer": ("score_edges",),
    ".score.base": ("BatchScores",),
    ".core.scores": ("EdgeScores",),
    ".select": (
        "Greedy", "Ilp", "Selection", "SelectionProblem", "Solution", "Solver", "Status", "TopN", "solve", "solve_path",
    ),
    ".core.statistics": ("Bootstrap", "EdgeStatistics", "Filter", "NoFilter", "Shrinkage", "summarise"),
    ".runtime.store": ("Store",),
    ".recipes": (
        "Outcome", "Recipe", "Settings", "Tuning", "as_published", "jaccard", "overlap", "paper_recipes",
        "select_circuits", "tune",
    ),
    ".study": ("Grid", "Plan", "Study", "read_study", "run_study"),
    ".tasks.load": ("load_task", "make_task"),
    ".tasks.metrics": ("Accuracy", "Kl", "LogitDifference", "Metric", "ProbabilityDifference", "Readout"),
    ".tasks.task": ("Example", "PromptPair", "Task"),
    ".version": ("__version__",),
}  # fmt: skip
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})

__all__ = """
    CMD CPR SIZES Ablation Accuracy BatchScores Measure Bootstrap Circuit Curve Discovery Eap EapIg
    EdgeScores EdgeStatistics Engine Evaluation Example Faithfulness Filter Graph Greedy Grid Ilp InputError Kl
    TopKLearner Local LogitDifference MaskIg Mean Metric MibFaithfulness Model ModelSource NoFilter Outcome Patching
    Plan PositionalMean ProbabilityDifference PromptPair Ranking RatioFaithfulness Ray Readout Recipe Scorer
    Selection SelectionProblem Session Settings Shrinkage Solution Solver Status Store Study Task TopN Tuning Zero
    as_published auroc check_submission compare convert discover evaluate_circuits inspect_model jaccard learn_ranking
    load_model load_task make_task overlap paper_recipes read_result read_study run_study score_edges
    select_circuits solve solve_path summarise tune wrap_model write_result write_study
""".split()
