"""AttnLRP: layer-wise relevance propagation through attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..models.rules import BackwardRules
from .first_order import RuleScorer

ATTN_LRP_RULES = BackwardRules(detach_norm_scales=True, linear_activations=True, halve_gates=True, halve_matmuls=True)


@dataclass(frozen=True)
class AttnLrp(RuleScorer):
    """Source differences times the relevance coefficients of AttnLRP (Achtibat et al. 2024, arXiv 2402.05602).

    - The scale of every norm counts as a constant, an activation f(x) as x times the constant f(x) / x (identity rule).
    - Each factor of a product (gate * up, q @ k, pattern @ v) gets half of its gradient (uniform rule).
    - The softmax's rule gives the input x the relevance x (R - s sum(R)), with R = s g for the gradient g at the
      output s. Divided by x, this is the softmax's true gradient.
    - Linear maps keep their gradient (epsilon rule with epsilon 0).

    With `steps`, gradients are averaged as in EAP-IG.
    """

    name: ClassVar[str] = "attn-lrp"
    rules: ClassVar[BackwardRules] = ATTN_LRP_RULES
