"""Models: the only folder that knows a transformer library.

Three verbs: outputs of the sources (`run`, `source_differences`), gradients at the destinations
(`destination_gradients`, `contract`), logits of circuits (`run_circuits`, `run_weighted`, `read_out`).
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .batch import Batch, make_batch, plan_batches
    from .facts import check_source, inspect_model, inspect_source
    from .families import FAMILIES, check_config
    from .load import load_model, load_source, wrap_model
    from .model import DTYPES, Model, ModelFacts, ModelSource
    from .model_files import DEMO, SMOLLM2

_HOMES = {
    ".batch": ("Batch", "make_batch", "plan_batches"),
    ".families": ("FAMILIES", "check_config"),
    ".facts": ("check_source", "inspect_model", "inspect_source"),
    ".load": ("load_model", "load_source", "wrap_model"),
    ".model": ("DTYPES", "Model", "ModelFacts", "ModelSource"),
    ".model_files": ("DEMO", "SMOLLM2"),
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
