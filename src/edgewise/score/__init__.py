"""Scoring: how much does corrupting each edge hurt? Files are kinds of scorers; `run_scorer` runs them."""

from .base import BatchScores, Scorer
from .exact import Exact
from .gradient_scorers import CleanCorrupted, Eap, EapIg, EapIgActivations, ExpectedGradients, GradDrop, MaskIg
from .information_flow_routes import InformationFlowRoutes
from .rule_scorers import AttnLrp, Gim, RelP, RelPQk

SCORERS: dict[str, type[Scorer]] = {
    scorer.name: scorer
    for scorer in (
        EapIg, Eap, CleanCorrupted, EapIgActivations, ExpectedGradients, MaskIg, Gim, RelP, RelPQk, AttnLrp, GradDrop,
        InformationFlowRoutes, Exact,
    )
}  # fmt: skip
