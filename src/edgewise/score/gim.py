"""GIM: gradient interaction modifications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..models.rules import BackwardRules
from .first_order import RuleScorer

GIM_RULES = BackwardRules(detach_norm_scales=True, softmax_temperature=2.0, halve_matmuls=True, halve_gates=True)


@dataclass(frozen=True)
class Gim(RuleScorer):
    """Source differences times gradients with gradient interaction modifications (Edin et al. 2025, arXiv 2505.17630).

    - The softmax of attention is differentiated as if its temperature were 2. A change of one of several keys with
      large scores then gets credit even if the others would make up for it.
    - The scale of every norm counts as a constant.
    - Where two values are multiplied, each gets half of the gradient: gate and up 1/2, v 1/2, q and k 1/4.

    Activations keep their true gradient. The softmax's backward pass has no factor 1 / temperature, as in the public
    implementation. With `steps`, gradients are averaged as in EAP-IG.
    """

    name: ClassVar[str] = "gim"
    rules: ClassVar[BackwardRules] = GIM_RULES
