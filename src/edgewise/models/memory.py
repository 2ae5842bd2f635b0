"""Estimate how much memory a batch needs, and how many examples fit into a budget.

Sizes are in bytes per stream value: multiply by length * d_model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, check_number
from ..graph import Graph

BUDGET = 1_000_000_000
MAX_BATCH_SIZE = 64
# The nodes of a layer run together as long as the inputs of its heads (one stream per q, k and v), the largest
# temporary tensors, take at most this many bytes. Common allocators return larger blocks to the system immediately, and
# getting them again is slow.
MAX_STREAM_BYTES = 2**25
# Memory for several circuits at once is planned for if at least this many circuits of one example may run together.
MIN_AT_ONCE = 4
# The number of values that are normalised at once, so that temporary copies are small and fit into a cache.
NORMED_AT_ONCE = 2**18
# Streams of one example are kept for the backward pass if they take at most this many bytes.
MAX_KEPT_STREAM_BYTES = BUDGET // 2
# What a driver reserves of a device's memory.
RESERVED = 500_000_000


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that decide how much memory a batch needs.

    d_head     width of a head
    mlp_kept   values per position that the MLP keeps for a backward pass
    itemsize   bytes of a value in the model's dtype
    post_norm  whether a norm follows attention
    """

    graph: Graph
    d_head: int
    mlp_kept: int
    itemsize: int = 4
    post_norm: bool = False

    @property
    def sum_itemsize(self) -> int:
        """Bytes of a value in a sum, which is at least float32."""
        return max(4, self.itemsize)

    @property
    def heads_width(self) -> float:
        """The width of all heads of a layer together, in multiples of d_model."""
        return self.graph.n_heads * self.d_head / self.graph.d_model

    @property
    def trace_bytes(self) -> float:
        """Bytes of a stored run (`forward.Trace`) per stream value."""
        return self.itemsize * self.graph.n_layers * (3 + 4 * self.heads_width)

    def backward_bytes(self, length: int) -> float:
        """Return the bytes of a run that is stored for its backward pass, per stream value.

        Beyond the trace, autograd keeps rotated queries and keys, attention patterns, and values inside the MLPs.
        """
        patterns = self.graph.n_heads * length * (self.sum_itemsize + self.itemsize) / self.graph.d_model
        n_values = 3 * self.heads_width + 1 + self.mlp_kept / self.graph.d_model
        # In half precision, the two norms of a layer keep a float32 copy of their input.
        norms = 4 * self.sum_itemsize if self.itemsize < self.sum_itemsize else 0
        return self.trace_bytes + self.graph.n_layers * (self.itemsize * n_values + patterns + norms)

    @property
    def projection_size(self) -> int:
        """The number of weights of a layer's query projection."""
        return self.graph.n_heads * self.d_head * self.graph.d_model


@dataclass(frozen=True)
class Need:
    """Bytes of memory that work needs beyond the model's weights.

    fixed  for any batch
    each   for every example of a batch
    layer  the part of `each` that the running layer takes; with several devices, the rest of `each` is divided among
           them
    """

    fixed: int
    each: int
    layer: int

    def total(self, n_examples: int) -> int:
        """Return the bytes for a batch of this many examples."""
        return self.fixed + self.each * n_examples

    def per_device(self, n_devices: int, weight_bytes: int, n_layers: int) -> int:
        """Return the bytes on each of several devices, for one example and the weights of a model placed by layers."""
        if n_devices == 1:
            return weight_bytes + self.total(1)
        # Layers are not divided, so a device may have one more than its share.
        held = -(-weight_bytes // n_devices) + weight_bytes // n_layers
        return held + self.fixed + self.layer + (self.each - self.layer) // n_devices


def scoring_need(
    shape: Shape, length: int, runs: int = 1, kept_traces: int | None = None, keeps_graph: bool = False
) -> Need:
    """Return the memory for scoring examples of `length` tokens with gradients of `runs` runs.

    kept_traces  how many other runs are kept while runs with gradients follow; None for 0, or if there is only one
                 run, for a scorer that computes the differences after it
    keeps_graph  whether what autograd needs is kept for several backward passes, with the gradients at the streams

    It holds the differences of all sources, and the most that one of three steps needs: a run with its gradients, the
    subtraction of two runs, or the products of differences with gradients. All but the runs is at least float32.
    """
    graph, itemsize = shape.graph, shape.sum_itemsize
    gradients = graph.n_layers * (3 * shape.heads_width + 2) + 1
    # A backward pass frees what it no longer needs while the gradients are created.
    running = max(shape.backward_bytes(length), shape.trace_bytes + gradients * (itemsize + shape.itemsize))
    subtracting = 2 * shape.trace_bytes + (gradients + graph.n_heads) * itemsize
    multiplying = (gradients + 4 * graph.n_heads) * itemsize
    if shape.post_norm:  # the gradients of each run are multiplied alone, with differences of their own
        multiplying += (graph.n_sources + graph.n_layers) * itemsize
    else:  # the gradients are summed over runs, except for one stream per layer and run
        streams = graph.n_layers * (runs - 1)
        multiplying += (streams + runs) * itemsize
        running += (gradients + streams) * itemsize if runs > 1 else 0
    other_runs = (kept_traces or 0) * shape.trace_bytes
    running, multiplying = running + other_runs, multiplying + other_runs
    if runs == 1 and kept_traces is None:  # the differences come later, from the clean and the corrupted trace
        running = 0
        multiplying += 2 * shape.trace_bytes
    if keeps_graph:
        multiplying += shape.backward_bytes(length) - shape.trace_bytes + graph.n_layers * shape.itemsize
    each = graph.n_sources * itemsize + max(running, subtracting, multiplying)
    fixed = shape.projection_size * (2 * itemsize + shape.itemsize)
    return _scale_need(shape, length, fixed, each, 4 * graph.n_heads * itemsize)


def add_spans(need: Need, shape: Shape, n_spans: int) -> Need:
    """Return the need of scoring (edge, span) pairs: that of edges, and the scores of pairs, which are summed once."""
    scores = 2 * shape.graph.n_edges * n_spans * shape.sum_itemsize
    return replace(need, each=need.each + scores)


def circuit_need(shape: Shape, length: int) -> Need:
    """Return the memory for running circuits: the clean run, the reference run, and the full circuit."""
    streams, indices = _head_input_bytes(shape, shape.graph.n_sources)
    each = 2 * shape.trace_bytes + _circuit_bytes(shape, length, shape.graph.n_sources)
    # Sums of other devices' rows arrive at the running layer as separate tensors.
    return _scale_need(shape, length, 3 * shape.sum_itemsize * NORMED_AT_ONCE, each, 2 * streams + indices)


def circuits_need(shape: Shape, length: int) -> Need:
    """Return the memory for running several full circuits at once, about half as many as is fast."""
    need, values = circuit_need(shape, length), length * shape.graph.d_model
    at_once = _max_circuits(shape, values) // 2
    if at_once < MIN_AT_ONCE:
        return need
    return replace(
        need, fixed=need.fixed + int(at_once * values * _circuit_bytes(shape, length, shape.graph.n_sources))
    )


def _circuit_bytes(shape: Shape, length: int, n_nodes: int) -> float:
    """Return the bytes of a circuit of this many nodes, per stream value.

    They are the changes of all nodes, at all positions and again at the last one, and the inputs of a layer's heads.
    """
    return n_nodes * shape.itemsize * (1 + 1 / length) + sum(_head_input_bytes(shape, n_nodes))


def _head_input_bytes(shape: Shape, n_nodes: int) -> tuple[float, float]:
    """Return the bytes, per stream value, of a layer's head inputs and of the row numbers summed for them."""
    readers = 3 * shape.graph.n_heads
    return readers * shape.itemsize * (1 + 2 * shape.post_norm), 8 * readers * n_nodes / shape.graph.d_model


def group_circuits(
    shape: Shape, numbers: NDArray[np.intp], n_examples: int, length: int, budget: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop) of the circuits that run together, and for how many circuits a layer's nodes run at once.

    A group fits into `budget` bytes together with the runs that all circuits share.

    numbers  [circuit, source] of `number_nodes`: circuits share nodes with equal numbers
    """
    values = n_examples * length * shape.graph.d_model
    available = (budget - circuit_need(shape, length).fixed) / values - 2 * shape.trace_bytes
    inputs = sum(_head_input_bytes(shape, shape.graph.n_sources))
    # Half of the memory at most is for a layer's inputs.
    at_once = max(1, min(_max_circuits(shape, values), int(available / 2 / inputs)))
    row = shape.itemsize * (1 + 1 / length)
    mask = shape.graph.n_sources * shape.graph.n_destinations / values  # the planner's
    start, used, is_new = 0, 0.0, np.ones(numbers.max(initial=0) + 1, bool)
    for index, circuit in enumerate(numbers):
        own = circuit[circuit >= 0]
        needed = mask + row * int(is_new[own].sum())
        running = min(at_once, index - start + 1) * inputs
        if index > start and used + needed + running > available:
            yield start, index, at_once
            start, used, needed = index, 0.0, mask + row * len(own)
            is_new[:] = True
        is_new[own] = False
        used += needed
    if start < len(numbers):
        yield start, len(numbers), at_once


def _max_circuits(shape: Shape, values: int) -> int:
    """Return for how many circuits a layer's nodes run at once on examples with this many values of a stream."""
    return MAX_STREAM_BYTES // (3 * shape.graph.n_heads * shape.itemsize * values)


def flow_need(shape: Shape, length: int) -> Need:
    """Return the memory for shares of sources in streams: a run, the outputs of all sources twice, and all streams."""
    graph, itemsize = shape.graph, shape.sum_itemsize
    readers = 2 * graph.n_layers + 1
    shares = 2 * graph.n_sources * readers / graph.d_model
    each = shape.trace_bytes + (2 * graph.n_sources + 2 * readers + shares) * itemsize
    return _scale_need(shape, length, shape.projection_size * itemsize, each, 0)


def weighted_need(shape: Shape, length: int, keep_streams: bool = True, by_span: bool = False) -> Need:
    """Return the memory for a run of a weighted circuit and its backward pass.

    It holds the changes of all sources and their gradients, the streams of one layer (with `keep_streams`, of all), the
    gradients of one layer's streams, the mixing weights, the reference run, and what autograd keeps. Weights
    `by_span` are spread to every position, and mixed from there.
    """
    graph = shape.graph
    # The last layer's outputs aren't in the shared buffer.
    sources, readers = graph.n_sources - graph.n_heads - 1, 3 * graph.n_heads + 1
    mixing = (2 * readers * sources + 3 * graph.n_edges * by_span) / graph.d_model
    streams = readers * (graph.n_layers if keep_streams else 1)
    tables = shape.itemsize * (2 * sources + readers + streams + mixing)
    each = tables + shape.trace_bytes + shape.backward_bytes(length)
    return _scale_need(shape, length, 3 * shape.projection_size * shape.itemsize, each, 2 * readers * shape.itemsize)


def _scale_need(shape: Shape, length: int, fixed: int, each: float, layer: float) -> Need:
    """Return the need of examples of `length` tokens, from bytes per stream value."""
    values = length * shape.graph.d_model
    return Need(fixed, int(each * values), int(layer * values))


def can_keep_streams(shape: Shape, length: int) -> bool:
    """Return whether one example's streams of all layers are small enough to keep for the backward pass."""
    readers = 3 * shape.graph.n_heads + 1
    return readers * shape.graph.n_layers * shape.itemsize * length * shape.graph.d_model <= MAX_KEPT_STREAM_BYTES


def choose_batch_size(batch_size: int | None, need: Need, memory: int | str) -> int:
    """Return `batch_size`, or if it is None, how many examples fit into `memory` (bytes or '2GB'): at least one."""
    if batch_size is not None:
        check_batch_size(batch_size)
        return batch_size
    return max(1, min(MAX_BATCH_SIZE, (parse_bytes(memory) - need.fixed) // need.each))


def check_batch_size(batch_size: int) -> None:
    """Raise InputError if a number of examples isn't a whole number of at least 1."""
    check_number("the batch size", batch_size, whole=True)
    if batch_size < 1:
        raise InputError(f"the batch size must be at least 1, not {batch_size}")


def parse_bytes(amount: float | str) -> int:
    """Return a number of bytes from a number, or a text such as '800MB' or '2GB'. Raise InputError for any other."""
    units = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    text = str(amount).strip().upper()
    match = re.fullmatch(r"([0-9]{1,20}\.?[0-9]{0,20}(?:E\+?[0-9]{1,2})?) *([KMG]?I?B|)", text)
    count = float(match[1]) * units.get(match[2], 0) if match else 0.0
    if not 1 <= count < 2**63:
        raise InputError(f"{str(amount)[:40]!r} is not an amount of memory; give one such as 800MB or 2GB")
    return amount if isinstance(amount, int) else int(count)
