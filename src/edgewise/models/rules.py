"""Changes of the backward pass: a frozen record, without torch, that `Prepared.run` takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BackwardRules:
    """How the gradient of a run differs from the true one. Rules change no output of the run.

    detach_norm_scales    the scale of every norm (final norm, norms of q and k, and norms after attention or the MLP
                          included) counts as a constant; layer norms still centre
    linear_activations    an activation f(x) counts as x times the constant f(x) / x
    halve_gates           each side of gate * up gets half of its gradient
    detach_patterns       attention weights count as constants, so that queries and keys get no gradient
    halve_matmuls         each factor of q @ k and of pattern @ v gets half of its gradient, so the gradient of q and k
                          is a quarter, and that of v a half
    softmax_temperature   the softmax of attention is differentiated as diag(s) - s s^T with s = softmax(scores /
                          temperature)

    Soft caps keep their true gradient.
    """

    detach_norm_scales: bool = False
    linear_activations: bool = False
    halve_gates: bool = False
    detach_patterns: bool = False
    halve_matmuls: bool = False
    softmax_temperature: float = 1.0


NO_RULES = BackwardRules()
