"""The names of this package, imported when they are first used."""

from .batch import Batch as Batch
from .batch import make_batch as make_batch
from .batch import plan_batches as plan_batches
from .facts import check_source as check_source
from .facts import inspect_model as inspect_model
from .facts import inspect_source as inspect_source
from .families import FAMILIES as FAMILIES
from .families import check_config as check_config
from .load import load_model as load_model
from .load import load_source as load_source
from .load import wrap_model as wrap_model
from .model import DTYPES as DTYPES
from .model import Model as Model
from .model import ModelFacts as ModelFacts
from .model import ModelSource as ModelSource
from .model_files import DEMO as DEMO
from .model_files import SMOLLM2 as SMOLLM2
