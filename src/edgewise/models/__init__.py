"""Models: the only folder that knows a transformer library.

Three verbs: outputs of the sources (`run`, `source_differences`), gradients at the destinations
(`destination_gradients`, `contract`), logits of circuits (`run_circuits`, `run_weighted`, `read_out`).
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .batch import Batch, make_batch, plan_batches
    from .families import FAMILIES, check_config
    from .load import DEMO, DTYPES, SMOLLM2, Model, ModelFacts, ModelSource, inspect_model, load_model, wrap_model

_HOMES = {
    ".batch": ("Batch", "make_batch", "plan_batches"),
    ".families": ("FAMILIES", "check_config"),
    ".load": (
        "DEMO", "DTYPES", "SMOLLM2", "Model", "ModelFacts", "ModelSource", "inspect_model", "load_model", "wrap_model",
    ),
}  # fmt: skip
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
