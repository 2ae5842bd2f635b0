"""Evaluation: run circuits, and measure how faithful they are. Curves, intervals and `roc` need NumPy only."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .ablations import ABLATIONS, Ablation, Mean, Patching, PositionalMean, Zero
from .attention import Attention, record_attention, strongest_heads
from .curve import DEFAULT_SHARE, FAITHFUL_ENOUGH, SIZES, Curve, area, areas, check_metric, size_to_edges
from .faithfulness import FAITHFULNESS, MIB, Faithfulness, MibFaithfulness, RatioFaithfulness, faithfulness
from .intervals import (
    CONFIDENCE,
    Comparison,
    Interval,
    Resampled,
    compare,
    faithfulness_intervals,
    mean_resampled,
    resample,
)
from .measures import BOTH_MEASURES, CMD, CPR, MEASURES, CircuitModelDistance, CircuitPerformanceRatio, Measure
from .roc import auroc

if TYPE_CHECKING:
    from .run_circuits import Evaluation, evaluate_circuits

__getattr__ = lazy_names(__name__, dict.fromkeys(("Evaluation", "evaluate_circuits"), ".run_circuits"))
