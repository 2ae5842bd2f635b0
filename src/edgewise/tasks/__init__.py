"""Tasks: prompt pairs with a right and a wrong answer, and per-example metrics over them."""

from .files import has_splits
from .load import DESCRIPTIONS, GENERATORS, SPLITS, check_lengths, check_task, is_task_file, load_task, load_third
from .metrics import METRICS, Metric, Readout, get_metric
from .mib import DATA_SETS
from .task import Example, PromptPair, Task, tokenize

__all__ = [
    "DATA_SETS",
    "DESCRIPTIONS",
    "GENERATORS",
    "METRICS",
    "SPLITS",
    "Example",
    "Metric",
    "PromptPair",
    "Readout",
    "Task",
    "check_lengths",
    "check_task",
    "get_metric",
    "has_splits",
    "is_task_file",
    "load_task",
    "load_third",
    "tokenize",
]
