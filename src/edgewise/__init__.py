"""edgewise: find circuits in language models. `discover` is the whole flow; every stage is a function of its own."""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from .circuit import Circuit
from .errors import InputError
from .evaluate.curve import SIZES, Curve
from .evaluate.intervals import compare
from .evaluate.roc import auroc
from .graph import Graph
from .lazy import lazy_names
from .scores import EdgeScores
from .select import Selection, SelectionProblem, solve, solve_path
from .statistics import Bootstrap, EdgeStatistics, Shrinkage, summarise

if TYPE_CHECKING:
    from .evaluate.verb import Evaluation, evaluate_circuits
    from .models.load import Model, load_model, wrap_model
    from .pipeline import Discovery, Settings, discover
    from .score.verb import score_edges
    from .tasks.load import load_task
    from .tasks.task import Example, Task

__version__ = _version("edgewise")
__getattr__ = lazy_names(
    __name__,
    {
        "Evaluation": ".evaluate.verb",
        "evaluate_circuits": ".evaluate.verb",
        "Model": ".models.load",
        "load_model": ".models.load",
        "wrap_model": ".models.load",
        "Discovery": ".pipeline",
        "Settings": ".pipeline",
        "discover": ".pipeline",
        "score_edges": ".score.verb",
        "load_task": ".tasks.load",
        "Example": ".tasks.task",
        "Task": ".tasks.task",
    },
)

__all__ = [
    "SIZES",
    "Bootstrap",
    "Circuit",
    "Curve",
    "Discovery",
    "EdgeScores",
    "EdgeStatistics",
    "Evaluation",
    "Example",
    "Graph",
    "InputError",
    "Model",
    "Selection",
    "SelectionProblem",
    "Settings",
    "Shrinkage",
    "Task",
    "auroc",
    "compare",
    "discover",
    "evaluate_circuits",
    "load_model",
    "load_task",
    "score_edges",
    "solve",
    "solve_path",
    "summarise",
    "wrap_model",
]
