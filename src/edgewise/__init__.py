"""edgewise: find circuits in language models. `discover` is the whole flow; every stage is a function of its own.

Methods are values: scorers (`EapIg`), filters (`Bootstrap`), solvers (`Ilp`), metrics, ablations and benchmarks are
small frozen objects that verbs take, and so are your own.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .circuit import Circuit
    from .engines import Engine, Local, Ray
    from .errors import InputError
    from .evaluate import (
        CMD,
        CPR,
        SIZES,
        Ablation,
        Benchmark,
        Cmd,
        Cpr,
        Curve,
        Faithfulness,
        Mean,
        MibFaithfulness,
        Patching,
        PositionalMean,
        RatioFaithfulness,
        Zero,
        auroc,
        compare,
    )
    from .evaluate.evaluation import Evaluation, evaluate_circuits
    from .graph import Graph
    from .learn import Learned
    from .learn.learning import learn_ranking
    from .models.load import Model, ModelSource, inspect_model, load_model, wrap_model
    from .pipeline import Discovery, discover
    from .ranking import Ranking
    from .report.study import write_study
    from .report.write_result import write_result
    from .results import RunRecord, check_submission, convert, read_circuits, read_result
    from .score import Eap, EapIg, MaskIg, Scorer
    from .score.scorer import BatchScores
    from .score.scoring import score_edges
    from .scores import EdgeScores
    from .select import Greedy, Ilp, Selection, SelectionProblem, Solution, Solver, Status, TopN, solve, solve_path
    from .statistics import Bootstrap, EdgeStatistics, Filter, NoFilter, Shrinkage, summarise
    from .store import Store
    from .study import (
        Grid,
        Outcome,
        Plan,
        Recipe,
        Settings,
        Study,
        Tuning,
        as_published,
        jaccard,
        overlap,
        paper_recipes,
        read_study,
        run_study,
        select_circuits,
        tune,
    )
    from .tasks.load import load_task, make_task
    from .tasks.metrics import Accuracy, Kl, LogitDifference, Metric, ProbabilityDifference, Readout
    from .tasks.task import Example, PromptPair, Task

# Where names live: they are loaded on first use, so that neither `import edgewise` nor the command's start waits.
_HOMES = {
    ".circuit": ("Circuit",),
    ".engines": ("Engine", "Local", "Ray"),
    ".errors": ("InputError",),
    ".evaluate": (
        "CMD", "CPR", "SIZES", "Ablation", "Benchmark", "Cmd", "Cpr", "Curve", "Faithfulness", "Mean",
        "MibFaithfulness", "Patching", "PositionalMean", "RatioFaithfulness", "Zero", "auroc", "compare",
    ),
    ".evaluate.evaluation": ("Evaluation", "evaluate_circuits"),
    ".graph": ("Graph",),
    ".learn": ("Learned",),
    ".learn.learning": ("learn_ranking",),
    ".models.load": ("Model", "ModelSource", "inspect_model", "load_model", "wrap_model"),
    ".pipeline": ("Discovery", "discover"),
    ".ranking": ("Ranking",),
    ".report.study": ("write_study",),
    ".report.write_result": ("write_result",),
    ".results": ("RunRecord", "check_submission", "convert", "read_circuits", "read_result"),
    ".score": ("Eap", "EapIg", "MaskIg", "Scorer"),
    ".score.scoring": ("score_edges",),
    ".score.scorer": ("BatchScores",),
    ".scores": ("EdgeScores",),
    ".select": (
        "Greedy", "Ilp", "Selection", "SelectionProblem", "Solution", "Solver", "Status", "TopN", "solve", "solve_path",
    ),
    ".statistics": ("Bootstrap", "EdgeStatistics", "Filter", "NoFilter", "Shrinkage", "summarise"),
    ".store": ("Store",),
    ".study": (
        "Grid", "Outcome", "Plan", "Recipe", "Settings", "Study", "Tuning", "as_published", "jaccard", "overlap",
        "paper_recipes", "read_study", "run_study", "select_circuits", "tune",
    ),
    ".tasks.load": ("load_task", "make_task"),
    ".tasks.metrics": ("Accuracy", "Kl", "LogitDifference", "Metric", "ProbabilityDifference", "Readout"),
    ".tasks.task": ("Example", "PromptPair", "Task"),
    ".version": ("__version__",),
}  # fmt: skip
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})

__all__ = """
    CMD CPR SIZES Ablation Accuracy BatchScores Benchmark Bootstrap Circuit Cmd Cpr Curve Discovery Eap EapIg
    EdgeScores EdgeStatistics Engine Evaluation Example Faithfulness Filter Graph Greedy Grid Ilp InputError Kl
    Learned Local LogitDifference MaskIg Mean Metric MibFaithfulness Model ModelSource NoFilter Outcome Patching Plan
    PositionalMean ProbabilityDifference PromptPair Ranking RatioFaithfulness Ray Readout Recipe RunRecord Scorer
    Selection SelectionProblem Settings Shrinkage Solution Solver Status Store Study Task TopN Tuning Zero
    as_published auroc check_submission compare convert discover evaluate_circuits inspect_model jaccard learn_ranking
    load_model load_task make_task overlap paper_recipes read_circuits read_result read_study run_study score_edges
    select_circuits solve solve_path summarise tune wrap_model write_result write_study
""".split()
