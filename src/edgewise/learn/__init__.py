"""Learning: rankings of edges that are learned through weighted circuits."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .top_k_learner import TopKLearner, size_chances

if TYPE_CHECKING:
    from .run_learner import learn_ranking

__getattr__ = lazy_names(__name__, {"learn_ranking": ".run_learner"})
