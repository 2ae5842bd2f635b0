"""Runs of circuits: every destination reads its in-circuit sources as they are in this run, all others as in the
reference run (under patching, the corrupted one).

Only the circuit's own nodes run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..circuit import Circuit
from ..graph import Graph
from .forward import Frame, Trace, add_positions, attend, join_heads, sum_heads
from .transformer import Layer, Projection, Transformer


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What of a layer runs.

    heads    the heads in the circuit
    readers  for q, k and v: which of `heads` have in-edges, and from which of the running sources [source, reader]
    mlp      which running sources the MLP reads [source, 1], or None if it isn't in the circuit
    """

    heads: NDArray[np.intp]
    readers: tuple[tuple[NDArray[np.intp], NDArray[np.bool_]], ...]
    mlp: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class CircuitPlan:
    """A circuit as steps: `n_sources` nodes run, in the order of the graph; `logits` is [source, 1]."""

    n_sources: int
    layers: tuple[LayerPlan, ...]
    logits: NDArray[np.bool_]


def plan_circuit(circuit: Circuit) -> CircuitPlan:
    """What has to run for a pruned circuit."""
    graph = circuit.graph
    inside = np.zeros((graph.n_sources, graph.n_destinations), bool)
    inside[graph.edge_source, graph.edge_destination] = circuit.mask
    running = circuit.nodes[:-1]
    running[0] = True
    before = np.concatenate([[0], np.cumsum(running)])
    inside = inside[running]
    layers = tuple(_plan_layer(graph, index, running, before, inside) for index in range(graph.n_layers))
    return CircuitPlan(int(running.sum()), layers, inside[:, -1:])


def _plan_layer(
    graph: Graph, index: int, running: NDArray[np.bool_], before: NDArray[np.intp], inside: NDArray[np.bool_]
) -> LayerPlan:
    first = graph.attention_sources(index)
    heads = np.flatnonzero(running[first : first + graph.n_heads])
    start = graph.attention_destinations(index).start
    readers = []
    for letter in range(3):
        edges = inside[: before[first], start + letter * graph.n_heads + heads]
        reading = np.flatnonzero(edges.any(0))
        readers.append((reading, edges[:, reading]))
    mlp = inside[: before[graph.mlp_sources(index)], graph.mlp_destination(index), None]
    return LayerPlan(heads, tuple(readers), mlp if running[graph.mlp_source(index)] else None)


def reference_from_sources(model: Transformer, sources: Trace, frame: Frame) -> Trace:
    """A reference in which every source gives what `sources` (embedding, mix, mlp_out) says, whatever it reads."""
    x = add_positions(model, sources.embedding, frame)
    attention_in: list[Tensor] = []
    mlp_in: list[Tensor] = []
    qkv: tuple[list[Tensor], ...] = ([], [], [])
    for index, layer in enumerate(model.layers):
        attention_in.append(x)
        for kept, part in zip(qkv, layer.project(layer.attention_norm(x)), strict=True):
            kept.append(part)
        mid = x + join_heads(layer, sources.mix[index])
        mlp_in.append(x if model.graph.parallel else mid)
        x = mid + sources.mlp_out[index]
    q, k, v = (tuple(part) for part in qkv)
    return Trace(sources.embedding, tuple(attention_in), q, k, v, sources.mix, tuple(mlp_in), sources.mlp_out, x)


def run_circuit(
    model: Transformer, plan: CircuitPlan, clean: Tensor, reference: Trace, frame: Frame, last: Tensor
) -> Tensor:
    """The stream [example, d_model] that the logits read at each example's last position.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    """
    changes = Changes(plan.n_sources, clean)
    changes.append((clean - reference.embedding)[None])
    for index, (layer, step) in enumerate(zip(model.layers, plan.layers, strict=True)):
        if len(step.heads):
            heads = _run_heads(model, index, step, changes, reference, frame)
            changes.append(heads, None if layer.post_norm is None else Joined(layer, reference.mix[index]))
        if step.mlp is not None:
            stream = reference.mlp_in[index] + changes.read(step.mlp)[0]
            changes.append((layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index])[None])
    rows = torch.arange(len(last), device=last.device)
    return reference.final[rows, last] + changes.read(plan.logits, (rows, last))[0]


@dataclass(frozen=True, eq=False)
class Joined:
    """Heads that join the stream through a norm: a reader sees the norm of the mix of outputs that it reads."""

    layer: Layer
    reference_mix: Tensor

    def change(self, heads: Tensor, where: tuple[Tensor, Tensor] | None) -> Tensor:
        """How what joins the stream changes if the sum of the heads' outputs changes by `heads`."""
        norm = self.layer.post_norm
        assert norm is not None
        mix = self.reference_mix if where is None else self.reference_mix[where]
        before = sum_heads(self.layer, mix)
        return norm(before + heads) - norm(before)


class Changes:
    """How the outputs of the sources that ran differ from the reference: [source, batch, position, d_model]."""

    def __init__(self, n_sources: int, like: Tensor) -> None:
        self._buffer = like.new_empty((n_sources, *like.shape))
        self._joined: list[tuple[slice, Joined]] = []
        self._count = 0

    def append(self, changes: Tensor, joined: Joined | None = None) -> None:
        """Add the changes of the next sources; `joined` if they are heads that join through a norm."""
        rows = slice(self._count, self._count + len(changes))
        self._buffer[rows] = changes
        self._count = rows.stop
        if joined is not None:
            self._joined.append((rows, joined))

    def read(self, edges: NDArray[np.bool_], where: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """[reader, ...] the sum of the changes that each reader's edges [source, reader] bring, `where` it reads."""
        changes = self._buffer[: len(edges)]
        if where is not None:
            changes = changes[:, where[0], where[1]]
        plain = edges.copy()
        for rows, _ in self._joined:
            plain[rows] = False
        total = _weighted(changes, plain)
        for rows, joined in self._joined:
            readers = np.flatnonzero(edges[rows].any(0)) if rows.start < len(edges) else ()
            if len(readers):
                heads = _weighted(changes[rows], edges[rows][:, readers])
                total[torch.as_tensor(readers, device=total.device)] += joined.change(heads, where)
        return total


def _weighted(changes: Tensor, edges: NDArray[np.bool_]) -> Tensor:
    """[reader, ...] the sum of the changes [source, ...] over each reader's edges [source, reader]."""
    weights = torch.as_tensor(edges.T, dtype=changes.dtype, device=changes.device)
    return (weights @ changes.flatten(1)).unflatten(1, changes.shape[1:])


def _run_heads(
    model: Transformer, index: int, step: LayerPlan, changes: Changes, reference: Trace, frame: Frame
) -> Tensor:
    """[head, batch, position, d_model] how the outputs of the layer's heads in the circuit change."""
    layer = model.layers[index]
    heads = torch.as_tensor(step.heads, device=model.device)
    parts = []
    for (reading, edges), projection, unread in zip(
        step.readers, layer.qkv, (reference.q[index], reference.k[index], reference.v[index]), strict=True
    ):
        part = unread[:, :, heads]
        if len(reading):
            streams = reference.attention_in[index] + changes.read(edges)
            part[:, :, reading] = _project_heads(layer, projection, streams, heads[reading])
        parts.append(part)
    q, k, v = parts
    mix = attend(model, index, q, k, v, frame, heads) - reference.mix[index][:, :, heads]
    return torch.einsum("bphe,dhe->hbpd", mix, layer.out[:, heads])


def _project_heads(layer: Layer, projection: Projection, streams: Tensor, heads: Tensor) -> Tensor:
    """[batch, position, head, d_head] from the stream [head, batch, position, d_model] that each head reads."""
    weight = projection.weight[heads // projection.group]
    result = torch.einsum("hbpd,hed->bphe", layer.attention_norm(streams), weight)
    return result if projection.bias is None else result + projection.bias[heads // projection.group]
