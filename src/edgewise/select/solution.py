"""What a single solver hands to the verb: edges, not yet pruned, and a bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .selection import NO_EFFORT, Effort, Status


@dataclass(frozen=True, eq=False)
class Solution:
    """mask: [edge] the chosen edges; bound: no circuit of this problem has a larger objective."""

    mask: NDArray[np.bool_]
    status: Status
    bound: float
    effort: Effort = NO_EFFORT
