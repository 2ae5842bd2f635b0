"""What the commands print with: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from ..models import Model
    from ..ranking import Ranking

# With fewer examples than this, a bootstrap over examples says little.
FEW = 10
# A loss that rises by more than this share diverges, rather than wavers.
DIVERGED = 0.5
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str, heading: str = "") -> None:
    """A line for people, behind a bold heading if there is one; the terminal wraps it, a pipe doesn't."""
    if heading:
        out.print(heading, end=": ", style="bold", markup=False)
    out.print(text, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """A line for people that is no result."""
    err.print(text, soft_wrap=True, markup=False)


def warn_of_few(examples: int) -> None:
    """Say so where error bars come from next to no examples."""
    if examples < FEW:
        warn(f"note: intervals from few examples ({examples}) are too narrow; they need about {FEW} or more")


def warn_of_copies(copies: int, rows: int, of: str = "examples") -> None:
    """Say so where error bars come from examples that repeat others."""
    if copies:
        warn(f"note: {copies:,} of the {rows:,} {of} are copies of others; intervals are too narrow")


def warn_of_trend(goal: str, ranking: Ranking) -> None:
    """Say so where a loss rose rather than fell."""
    trend = ranking.origin["trend"]
    if trend > DIVERGED:
        warn(f"warning: the loss for {goal} rose by {trend:.0%} while learning; try a smaller --rate, or more steps")


def print_json(data: Any) -> None:
    """Data for machines, on stdout, alone."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def open_model(name: str, device: str, dtype: str, bos: str = "auto", trust_remote_code: bool = False) -> Model:
    """Load a model, saying so."""
    with err.status(f"loading {escape(name)}"):
        from ..models import load_model

        return load_model(name, device, dtype, bos, trust_remote_code)
