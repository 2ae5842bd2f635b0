"""Scoring: how much does corrupting each edge hurt? One file per attribution method, one verb."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .base import Scorer
from .eap import Eap
from .eap_ig import EapIg
from .mask_ig import MaskIg

if TYPE_CHECKING:
    from .run_scorer import check_contrast, check_scoring, has_partial_scores, score_edges

SCORERS: dict[str, type[Scorer]] = {one.name: one for one in (EapIg, Eap, MaskIg)}
VERBS = ("check_contrast", "check_scoring", "has_partial_scores", "score_edges")
__getattr__ = lazy_names(__name__, dict.fromkeys(VERBS, ".run_scorer"))
