"""Scoring: how much does corrupting each edge hurt? Each module has a scorer or a few alike; `run_scorer` runs them."""

from .base import BatchScores, Scorer
from .eap import CleanCorrupted, Eap, EapIg, EapIgActivations, ExpectedGradients, GradDrop
from .exact import Exact
from .information_flow_routes import InformationFlowRoutes
from .mask_ig import MaskIg
from .rule_scorers import AttnLrp, Gim, RelP, RelPQk

SCORERS: dict[str, type[Scorer]] = {
    scorer.name: scorer
    for scorer in (
        EapIg, Eap, CleanCorrupted, EapIgActivations, ExpectedGradients, MaskIg, Gim, RelP, RelPQk, AttnLrp, GradDrop,
        InformationFlowRoutes, Exact,
    )
}  # fmt: skip
