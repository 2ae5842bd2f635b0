"""Scoring: how much does corrupting each edge hurt? One file per scorer; `run_scorer` runs them."""

from .base import BatchScores, Scorer
from .eap import Eap
from .eap_ig import EapIg
from .mask_ig import MaskIg

SCORERS: dict[str, type[Scorer]] = {scorer.name: scorer for scorer in (EapIg, Eap, MaskIg)}
