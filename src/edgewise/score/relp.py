"""RelP: relevance patching."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..models.rules import BackwardRules
from .first_order import RuleScorer

RELP_RULES = BackwardRules(detach_norm_scales=True, linear_activations=True, halve_gates=True, detach_patterns=True)


@dataclass(frozen=True)
class RelP(RuleScorer):
    """Relevance patching (Jafari et al. 2025, arXiv 2508.21258): differences times relevance, not gradients.

    - The scale of every norm counts as a constant (LN rule).
    - An activation f(x) counts as x times the constant f(x) / x (identity rule).
    - Each side of gate * up gets half of its gradient (half rule).
    - Attention weights count as constants (AH rule), so edges into queries and keys score 0.

    With `steps`, gradients are averaged as in EAP-IG.
    """

    name: ClassVar[str] = "relp"
    rules: ClassVar[BackwardRules] = RELP_RULES


@dataclass(frozen=True)
class RelPQk(RuleScorer):
    """RelP with the true gradient of attention weights, so that edges into queries and keys have scores, too."""

    name: ClassVar[str] = "relp-qk"
    rules: ClassVar[BackwardRules] = replace(RELP_RULES, detach_patterns=False)
