"""How circuits are tested, and what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InputError

PASSES, FAILS, TOO_FEW = "passes", "fails", "too few"
TESTS = (
    "sufficiency", "necessity", "minimality", "equivalence", "independence", "completeness", "robustness",
)  # fmt: skip


@dataclass(frozen=True)
class VerifySettings:
    """How circuits are tested.

    n_circuits       number of random circuits, of added paths, and of knocked-out sets
    quantile         q: the share of random circuits that a circuit must beat
    epsilon          equivalence: how far the chance to beat the model may be from 1/2
    tolerance        equivalence: smaller differences are ties; a share of the model's metric minus the empty circuit's
    max_difference   completeness: how far circuit and model may differ; a share of the same
    alpha            significance level
    permutations     of the test of independence
    seed             of all random draws
    """

    n_circuits: int = 100
    quantile: float = 0.9
    epsilon: float = 0.1
    tolerance: float = 0.0
    max_difference: float = 0.1
    alpha: float = 0.05
    permutations: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_circuits", "permutations"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}")
        for name, low, high in (("quantile", 0, 1), ("epsilon", 0, 0.5), ("alpha", 0, 1)):
            if not low < getattr(self, name) < high:
                raise InputError(f"{name} must lie between {low} and {high}, not at {getattr(self, name)}")
        for name in ("tolerance", "max_difference"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be a share of at least 0 and less than 1, not {getattr(self, name)}")


DEFAULTS = VerifySettings()


@dataclass(frozen=True)
class CircuitTest:
    """The result of one test of a circuit.

    name       such as 'sufficiency'
    null       the null hypothesis in a sentence
    measured   what the statistic is
    statistic  its value
    p          the p-value of the null hypothesis; the smallest corrected one if there are many
    verdict    'passes', 'fails', or 'too few' if no result of so few draws or examples could be significant
    advice     how many draws or examples are needed; empty if there are enough
    details    further numbers, and lists of rows, as plain data
    """

    name: str
    null: str
    measured: str
    statistic: float
    p: float
    verdict: str
    advice: str
    details: Mapping[str, Any]

    @property
    def passes(self) -> bool:
        """Whether the circuit passes the test."""
        return self.verdict == PASSES

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"details": dict(self.details)}


def judge(is_passed: bool, count: int, needed: int, what: str) -> tuple[str, str]:
    """Return the verdict and the advice of a test of `count` draws or examples, if it needs at least `needed`."""
    if count < needed:
        return TOO_FEW, f"needs at least {needed} {what}, not {count}"
    return (PASSES if is_passed else FAILS), ""
