"""A ranking: what selection reads, one value per edge."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .graph import Graph


@dataclass(frozen=True, eq=False)
class Ranking:
    """What every edge is worth, and whether it helps.

    value    [edge] the signed score, or without signs a value of at least 0
    signed   whether the signs of values mean something: a positive one that the edge helps the task
    kept     [edge] whether an edge passed its filter; None if there was none to pass
    origin   where it came from, as plain data

    Statistics of scores make one; a vector per edge from anywhere else is one too.
    """

    graph: Graph
    value: NDArray[np.floating]
    signed: bool = True
    kept: NDArray[np.bool_] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        value = np.array(self.value, np.float64)
        if value.shape != (self.graph.n_edges,):
            raise InputError(f"a ranking has shape {value.shape}, but the graph has {self.graph.n_edges} edges")
        if not np.isfinite(value).all():
            raise InputError("some values of a ranking are NaN or infinite; they must be finite")
        if not self.signed and (value < 0).any():
            raise InputError("a ranking without signs has values of at least 0; shift it above 0")
        if self.kept is not None and self.kept.shape != value.shape:
            raise InputError(f"kept has shape {self.kept.shape}, but the graph has {self.graph.n_edges} edges")
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "origin", MappingProxyType(dict(self.origin)))

    @cached_property
    def digest(self) -> str:
        """A hash of all that a selection can depend on."""
        found = hashlib.sha256(repr((self.graph, self.signed)).encode())
        found.update(self.value.tobytes())
        found.update(b"" if self.kept is None else np.packbits(self.kept).tobytes())
        return found.hexdigest()

    def __repr__(self) -> str:
        return f"Ranking({self.graph.n_edges:,} edges, {'signed' if self.signed else 'without signs'})"
