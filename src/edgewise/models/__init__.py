"""Models: the only folder that knows a transformer library.

Three verbs: outputs of the sources (`run`, `source_differences`), gradients at the destinations
(`destination_gradients`, `contract`), logits of circuits (`run_circuit`, `read_out`).
"""

from .batch import Batch, make_batch, plan_batches
from .families import FAMILIES, check_config
from .load import DEMO, DTYPES, Model, load_model, wrap_model

__all__ = [
    "DEMO",
    "DTYPES",
    "FAMILIES",
    "Batch",
    "Model",
    "check_config",
    "load_model",
    "make_batch",
    "plan_batches",
    "wrap_model",
]
