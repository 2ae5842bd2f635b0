"""Tasks: prompt pairs with a correct and an incorrect answer, and metrics per example."""

from .checks import check_examples
from .data_sets import DATA_SETS
from .files import count_copies, has_splits
from .load import (
    DESCRIPTIONS,
    GENERATORS,
    SPLITS,
    check_task,
    group_by_prompt,
    has_rows,
    is_task_file,
    load_task,
    load_unsplit,
    make_task,
    split_task,
)
from .metrics import (
    DEFAULT_METRIC,
    METRICS,
    Accuracy,
    Kl,
    LogitDifference,
    LogProbability,
    LogProbabilityDifference,
    Metric,
    ProbabilityDifference,
    Readout,
    TaskMetric,
)
from .task import Example, PromptPair, Task, TokenReader
from .tokens import tokenize
