"""Models: the only folder that knows a transformer library.

Three verbs: outputs of the sources (`run`, `source_differences`), gradients at the destinations
(`destination_gradients`, `contract`), logits of circuits (`run_circuit`, `read_out`).
"""

from .batch import Batch, make_batch, plan_batches, run_batches
from .families import FAMILIES, check_config
from .load import DEMO, DTYPES, SMOLLM2, Model, ModelFacts, inspect_model, load_model, wrap_model

__all__ = [
    "DEMO",
    "DTYPES",
    "FAMILIES",
    "SMOLLM2",
    "Batch",
    "Model",
    "ModelFacts",
    "check_config",
    "inspect_model",
    "load_model",
    "make_batch",
    "plan_batches",
    "run_batches",
    "wrap_model",
]
