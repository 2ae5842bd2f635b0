"""How much memory a batch needs, and how many examples fit into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..circuit import Circuit
from ..errors import InputError
from ..graph import Graph

BUDGET = 1_000_000_000
MOST = 64
# Circuits run at once while the streams of a layer's heads, the largest of what comes and goes, are no larger: beyond
# this, common allocators give memory back to the system at once, and finding it again takes longer than the sums.
STREAMS = 2**25


def scoring_bytes(graph: Graph, length: int, runs: int = 1) -> int:
    """What scoring one example needs: differences of all sources, gradients of a layer, a trace, and gradients at the
    destinations of all layers for each of the `runs` that they are averaged over."""
    streams = graph.n_sources + 8 * graph.n_heads + 25 * graph.n_layers + runs * (5 * graph.n_layers + 4)
    return 4 * streams * length * graph.d_model


def circuit_bytes(graph: Graph, length: int) -> int:
    """What running circuits on one example needs: changes of all sources, inputs of a layer, two traces."""
    streams = graph.n_sources + 6 * graph.n_heads + 16 * graph.n_layers
    return 4 * streams * length * graph.d_model


def group_circuits(circuits: Sequence[Circuit], examples: int, length: int, budget: int) -> Iterator[tuple[int, int]]:
    """Circuits that run at once on so many examples of a length, from .. to: as many as fit into a budget of bytes, and
    as make it faster."""
    start = streams = 0
    for place, circuit in enumerate(circuits):
        graph = circuit.graph
        stream = 4 * examples * length * graph.d_model
        own = int(circuit.nodes.sum()) + 6 * graph.n_heads
        fits = streams + own <= budget // stream - 16 * graph.n_layers
        helps = (place - start + 1) * 3 * graph.n_heads * stream <= STREAMS
        if place > start and not (fits and helps):
            yield start, place
            start, streams = place, 0
        streams += own
    if start < len(circuits):
        yield start, len(circuits)


def weighted_bytes(graph: Graph, length: int, keep_streams: bool = True) -> int:
    """What a weighted run of one example and its backward pass need.

    Changes of all sources and their gradients, streams of a layer and their gradients, traces and what autograd keeps
    of all layers, and all layers' streams if they are kept.
    """
    streams = 2 * graph.n_sources + 6 * graph.n_heads + 40 * graph.n_layers
    streams += 3 * graph.n_heads * graph.n_layers if keep_streams else 0
    return 4 * streams * length * graph.d_model


def batch_size_for(bytes_per_example: int, budget: int = BUDGET) -> int:
    """Examples per batch that fit into a budget of bytes, at least one."""
    return max(1, min(MOST, budget // bytes_per_example))


def as_bytes(memory: int | str) -> int:
    """An amount of memory in bytes, from bytes or text such as '2GB'."""
    return parse_bytes(memory) if isinstance(memory, str) else memory


def parse_bytes(text: str) -> int:
    """A number of bytes from '800MB', '2GB' or a plain count."""
    units = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    found = re.fullmatch(r"([0-9]{1,20}\.?[0-9]{0,20}(?:E\+?[0-9]{1,2})?) *([KMG]?I?B|)", text.strip().upper())
    amount = float(found[1]) * units.get(found[2], 0) if found else 0.0
    if not 1 <= amount < 2**63:
        raise InputError(f"{text[:40]!r} is no amount of memory; give one such as 800MB or 2GB")
    return int(amount)
