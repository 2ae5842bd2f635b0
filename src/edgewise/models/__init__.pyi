"""The names of this package, imported when they are first used."""

from .config import (
    ModelFacts as ModelFacts,
    check_source as check_source,
    inspect_model as inspect_model,
    inspect_source as inspect_source,
)
from .families import FAMILIES as FAMILIES, check_config as check_config
from .load import load_model as load_model, load_source as load_source, wrap_model as wrap_model
from .model import DTYPES as DTYPES, Model as Model, ModelSource as ModelSource
from .model_files import DEMO as DEMO, INSTALL_SMOLLM2 as INSTALL_SMOLLM2, SMOLLM2 as SMOLLM2
from .prepare import Batch as Batch, make_batch as make_batch, plan_batches as plan_batches
