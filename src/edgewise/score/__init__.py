"""Scoring: how much does corrupting each edge hurt? One file per scorer; `run_scorer` runs them."""

from .attn_lrp import AttnLrp
from .base import BatchScores, Scorer
from .clean_corrupted import CleanCorrupted
from .eap import Eap
from .eap_ig import EapIg
from .eap_ig_activations import EapIgActivations
from .exact import Exact
from .expected_gradients import ExpectedGradients
from .gim import Gim
from .grad_drop import GradDrop
from .information_flow_routes import InformationFlowRoutes
from .mask_ig import MaskIg
from .relp import RelP, RelPQk

SCORERS: dict[str, type[Scorer]] = {
    scorer.name: scorer
    for scorer in (
        EapIg, Eap, CleanCorrupted, EapIgActivations, ExpectedGradients, MaskIg, Gim, RelP, RelPQk, AttnLrp, GradDrop,
        InformationFlowRoutes, Exact,
    )
}  # fmt: skip
