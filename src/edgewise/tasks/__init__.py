"""Tasks: prompt pairs with a right and a wrong answer, and per-example metrics over them."""

from .files import is_task_file
from .load import DESCRIPTIONS, GENERATORS, SPLITS, check_lengths, load_task
from .metrics import METRICS, Metric, Readout, get_metric
from .task import Example, PromptPair, Task, tokenize

__all__ = [
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
    "get_metric",
    "is_task_file",
    "load_task",
    "tokenize",
]
