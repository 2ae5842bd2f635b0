"""Scorers that change the rules of the backward pass: GIM, RelP and AttnLRP."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..models.rules import BackwardRules
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer, check_steps
from .eap import score_at_clean, score_on_path

if TYPE_CHECKING:
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class RuleScorer(Scorer, ABC):
    """A scorer that changes the backward pass by `rules`.

    Without `steps` it takes the gradient at the clean run, as EAP does; with `steps` the mean gradient on the way from
    the corrupted to the clean embedding, as EAP-IG does.
    """

    rules: ClassVar[BackwardRules]
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_steps(self.steps)

    @property
    def at_clean(self) -> bool:  # type: ignore[override]
        return self.steps is None

    def need(self, shape: Shape, length: int) -> Need:
        return scoring_need(shape, length, self.steps or 1)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        if self.steps is None:
            return score_at_clean(batch, metric, self.rules)
        return score_on_path(batch, metric, self.steps, self.rules)


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
    rules: ClassVar[BackwardRules] = BackwardRules(
        detach_norm_scales=True, softmax_temperature=2.0, halve_matmuls=True, halve_gates=True
    )


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
    rules: ClassVar[BackwardRules] = BackwardRules(
        detach_norm_scales=True, linear_activations=True, halve_gates=True, detach_patterns=True
    )


@dataclass(frozen=True)
class RelPQk(RuleScorer):
    """RelP with the true gradient of attention weights, so that edges into queries and keys have scores, too."""

    name: ClassVar[str] = "relp-qk"
    rules: ClassVar[BackwardRules] = replace(RelP.rules, detach_patterns=False)


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
    rules: ClassVar[BackwardRules] = BackwardRules(
        detach_norm_scales=True, linear_activations=True, halve_gates=True, halve_matmuls=True
    )
