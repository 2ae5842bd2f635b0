"""How much memory a batch needs, and how many examples fit into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.circuit import Circuit
from ..errors import InputError
from ..graph import Graph

BUDGET = 1_000_000_000
MOST = 64
# Circuits run at once while the streams of a layer's heads, the largest of what comes and goes, are no larger: beyond
# this, common allocators give memory back to the system at once, and finding it again takes longer than the sums.
STREAMS = 2**25
# Norms of circuits' streams read so many numbers at once: what they take besides is small, and fits into a cache.
NORMED_AT_ONCE = 2**18
# What streams of one example may take: half of the usual budget.
LARGEST_STREAMS = BUDGET // 2
# What a driver keeps of a device for itself.
RESERVED = 500_000_000


@dataclass(frozen=True)
class Shape:
    """What of a model decides how much memory a batch needs.

    d_head      of a head
    mlp_kept    how many numbers the MLP keeps of every position for a backward pass
    itemsize    bytes of a number as the model computes
    post_norm   whether a norm follows attention
    """

    graph: Graph
    d_head: int
    mlp_kept: int
    itemsize: int = 4
    post_norm: bool = False

    @property
    def wide(self) -> int:
        """Bytes of a number where sums are taken: at least those of float32."""
        return max(4, self.itemsize)

    @property
    def heads(self) -> float:
        """The width of all of a layer's heads together, in streams."""
        return self.graph.n_heads * self.d_head / self.graph.d_model

    @property
    def trace(self) -> float:
        """Bytes of a run that is kept (`forward.Trace`), per number of a stream."""
        return self.itemsize * self.graph.n_layers * (3 + 4 * self.heads)

    def passing(self, length: int) -> float:
        """The same for a run that waits for its backward pass: queries and keys as turned, MLPs and patterns too."""
        patterns = self.graph.n_heads * length * (self.wide + self.itemsize) / self.graph.d_model
        kept = 3 * self.heads + 1 + self.mlp_kept / self.graph.d_model
        norms = 4 * self.wide if self.itemsize < self.wide else 0  # two, which widen what they read, and keep it
        return self.trace + self.graph.n_layers * (self.itemsize * kept + patterns + norms)

    @property
    def projection(self) -> int:
        """Numbers in the weights of a layer's queries, one for every head."""
        return self.graph.n_heads * self.d_head * self.graph.d_model


@dataclass(frozen=True)
class Need:
    """Bytes of memory beyond the model.

    fixed  for any batch
    each   for every example in it
    layer  of `each`, what the layer at work takes: over several devices, all but this is spread
    """

    fixed: int
    each: int
    layer: int

    def of(self, examples: int) -> int:
        """What a batch needs."""
        return self.fixed + self.each * examples

    def on_each_of(self, devices: int, weights: int, n_layers: int) -> int:
        """What each of some devices holds of one example and of a model of `weights` bytes, placed by layers."""
        if devices == 1:
            return weights + self.of(1)
        # Layers aren't divided, so that a device may have one more than its share.
        held = -(-weights // devices) + weights // n_layers
        return held + self.fixed + self.layer + (self.each - self.layer) // devices


def scoring_need(shape: Shape, length: int, runs: int = 1) -> Need:
    """What scoring examples of `length` tokens needs.

    Differences of all sources, and gradients at all destinations, summed over `runs` but for a stream per layer and
    run; and the largest of: a run with its own gradients, two runs whose differences are taken, or the gradients of a
    layer's heads. All but the runs is float32, whatever the model computes in.
    """
    graph, wide = shape.graph, shape.wide
    own = graph.n_layers * (3 * shape.heads + 2) + 1
    # A backward pass lets go of what it is done with, while the gradients come.
    running = max(shape.passing(length), shape.trace + own * (wide + shape.itemsize))
    parting = 2 * shape.trace + (own + graph.n_heads) * wide
    contracting = (own + 4 * graph.n_heads) * wide
    if shape.post_norm:  # each run is contracted by itself, with differences as they are in that run
        contracting += (graph.n_sources + graph.n_layers) * wide
    else:
        summed = own + graph.n_layers * (runs - 1)
        contracting += (summed - own + runs) * wide
        running += summed * wide
    if runs == 1:  # scorers of one run keep both
        contracting += 2 * shape.trace
    most = graph.n_sources * wide + max(running if runs > 1 else 0, parting, contracting)
    return _need(shape, length, shape.projection * (2 * wide + shape.itemsize), most, 4 * graph.n_heads * wide)


def circuit_need(shape: Shape, length: int) -> Need:
    """What running circuits needs: the clean and the reference run, and the largest of circuits."""
    readers, index = _reading(shape, shape.graph.n_sources)
    most = 2 * shape.trace + _circuit(shape, length, shape.graph.n_sources)
    # What others sum comes to the layer at work in parts.
    return _need(shape, length, 3 * shape.wide * NORMED_AT_ONCE, most, 2 * readers + index)


def _circuit(shape: Shape, length: int, nodes: int) -> float:
    """Bytes per number of a stream that a circuit of so many nodes needs: changes of all of them, everywhere and at the
    last position, and what a layer's heads read."""
    return nodes * shape.itemsize * (1 + 1 / length) + sum(_reading(shape, nodes))


def _reading(shape: Shape, nodes: int) -> tuple[float, float]:
    """The same for the inputs of a layer's heads, those that come through a norm apart, and for numbers of the rows
    that are summed for them."""
    readers = 3 * shape.graph.n_heads
    return readers * shape.itemsize * (1 + 2 * shape.post_norm), 8 * readers * nodes / shape.graph.d_model


def group_circuits(
    shape: Shape, circuits: Sequence[Circuit], examples: int, length: int, budget: int
) -> Iterator[tuple[int, int]]:
    """Circuits that run at once on so many examples of a length, from .. to: as many as fit into a budget of bytes with
    the runs that they share, and as make it faster."""
    start, taken = 0, 0.0
    numbers = examples * length * shape.graph.d_model
    left = (budget - circuit_need(shape, length).fixed) / numbers - 2 * shape.trace
    most = STREAMS // (3 * shape.graph.n_heads * shape.itemsize * numbers)
    for place, circuit in enumerate(circuits):
        own = _circuit(shape, length, int(circuit.nodes.sum()))
        if place > start and (taken + own > left or place - start >= most):
            yield start, place
            start, taken = place, 0.0
        taken += own
    if start < len(circuits):
        yield start, len(circuits)


def weighted_need(shape: Shape, length: int, keep_streams: bool = True) -> Need:
    """What a weighted run and its backward pass need.

    Changes of all sources and their gradients, streams of a layer and their gradients, how streams are mixed, the
    reference, what autograd keeps of all layers, and all layers' streams if they are kept.
    """
    graph = shape.graph
    sources, readers = graph.n_sources - graph.n_heads - 1, 3 * graph.n_heads + 1  # the last layer writes no rows
    mixing = 2 * readers * sources / graph.d_model
    streams = readers * (graph.n_layers if keep_streams else 1)
    most = shape.itemsize * (2 * sources + readers + streams + mixing) + shape.trace + shape.passing(length)
    return _need(shape, length, 3 * shape.projection * shape.itemsize, most, 2 * readers * shape.itemsize)


def _need(shape: Shape, length: int, fixed: int, each: float, layer: float) -> Need:
    """From bytes per number of a stream [position, d_model]."""
    numbers = length * shape.graph.d_model
    return Need(fixed, int(each * numbers), int(layer * numbers))


def keeps_streams(shape: Shape, length: int) -> bool:
    """Whether the streams of all layers are kept for a backward pass, or mixed again: where one example's are large."""
    readers = 3 * shape.graph.n_heads + 1
    return readers * shape.graph.n_layers * shape.itemsize * length * shape.graph.d_model <= LARGEST_STREAMS


def batch_size_for(need: Need, budget: int = BUDGET) -> int:
    """Examples per batch that fit into a budget of bytes, at least one."""
    return max(1, min(MOST, (budget - need.fixed) // need.each))


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
