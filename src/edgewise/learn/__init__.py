"""Learning: rankings of edges that are learned through weighted circuits."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .learned import Learned, size_chances

if TYPE_CHECKING:
    from .learning import learn_ranking

__getattr__ = lazy_names(__name__, {"learn_ranking": ".learning"})
