"""Evaluation: how faithful are circuits? `run_circuits` runs them; all other modules need NumPy only."""

from .ablations import ABLATIONS, DEFAULT_ABLATION, Ablation, Mean, Patching, PositionalMean, Zero
from .attention import Attention, record_attention, strongest_heads
from .curve import DEFAULT_SHARE, SIZES, Curve, areas, check_metric, size_to_edges
from .intervals import (
    CONFIDENCE,
    Comparison,
    Interval,
    Resampled,
    compare,
    faithfulness_intervals,
    mean_resampled,
    resample,
    resample_heights,
)
from .known import auroc, known_circuit, precision_at_true_size
from .measures import (
    BOTH_MEASURES,
    CMD,
    CPR,
    FAITHFULNESS,
    MEASURES,
    MIB,
    CircuitModelDistance,
    CircuitPerformanceRatio,
    Faithfulness,
    Measure,
    MibFaithfulness,
    RatioFaithfulness,
    faithfulness,
)
