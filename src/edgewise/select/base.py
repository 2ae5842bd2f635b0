"""What a solver is, and what it hands to the verb: edges, not yet pruned, and a bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..method import Method
from .problem import SelectionProblem
from .selection import NO_EFFORT, Effort, Status


@dataclass(frozen=True, eq=False)
class Solution:
    """mask: [edge] the chosen edges; bound: no circuit of this problem has a larger objective."""

    mask: NDArray[np.bool_]
    status: Status
    bound: float
    effort: Effort = NO_EFFORT

    def __repr__(self) -> str:
        return f"Solution({int(self.mask.sum()):,} of {len(self.mask):,} edges, {self.status.value})"


class Solver(Method, ABC):
    """A way to choose edges. Derive from it for a solver of one's own; pruning is the verb's. `title` is for tables."""

    title: ClassVar[str] = ""

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "title" not in cls.__dict__:
            cls.title = cls.name

    @abstractmethod
    def solve(self, problem: SelectionProblem) -> Solution:
        """At most `budget` edges, what is required among them."""
