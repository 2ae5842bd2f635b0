"""Evaluation: run circuits, and measure how faithful they are. Curves, intervals and `roc` need NumPy only."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .ablations import ABLATIONS, Ablation, Mean, Patching, PositionalMean, Zero
from .attention import Attention, look, strongest_heads
from .benchmarks import BENCHMARKS, BOTH, CMD, CPR, Benchmark, Cmd, Cpr
from .curve import FAITHFUL, SIZES, USUAL, Curve, area, areas, check_metric, size_to_edges
from .faithfulness import FAITHFULNESS, MIB, Faithfulness, MibFaithfulness, RatioFaithfulness, faithfulness
from .intervals import CONFIDENCE, Comparison, Interval, Resampled, compare, faithfulness_intervals, mean_of, resample
from .roc import auroc

if TYPE_CHECKING:
    from .evaluation import Evaluation, evaluate_circuits

__getattr__ = lazy_names(__name__, dict.fromkeys(("Evaluation", "evaluate_circuits"), ".evaluation"))
