"""Runs of circuits: every destination reads its in-circuit sources as they are in this run, all others as in the
reference run (under patching, the corrupted one).

Only the circuit's own nodes run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

Logits are read at one position. A node whose outputs reach them through no key or value of another head matters at that
position alone, and runs there alone; the others run everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..circuit import Circuit
from .forward import Frame, Trace, add_positions, attend, frame_at, join_heads, sum_heads
from .transformer import Layer, Projection, Transformer

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Where = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Heads:
    """Heads of a layer that run at the same positions.

    heads    which ones
    readers  for q, k and v: which of them have in-edges, and from which of the running sources [source, reader]
    """

    heads: Ints
    readers: tuple[tuple[Ints, Bools], ...]


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What of a layer runs: heads everywhere, heads at the last position, and the MLP.

    mlp  the sources that it reads, [source, 1]; None if it isn't in the circuit
    """

    everywhere: Heads
    at_last: Heads
    mlp: Bools | None
    mlp_everywhere: bool


@dataclass(frozen=True, eq=False)
class CircuitPlan:
    """A circuit as steps.

    n_everywhere, n_sources  how many nodes run everywhere, and at the last position: those and the others
    logits                   the sources that the logits read, [source, 1]
    """

    n_everywhere: int
    n_sources: int
    layers: tuple[LayerPlan, ...]
    logits: Bools


def plan_circuit(circuit: Circuit) -> CircuitPlan:
    """What has to run for a pruned circuit, and where."""
    graph = circuit.graph
    inside = np.zeros((graph.n_sources, graph.n_destinations), bool)
    inside[graph.edge_source, graph.edge_destination] = circuit.mask
    running = circuit.nodes[:-1]
    running[0] = True
    everywhere = _runs_everywhere(circuit, inside)
    # Rows in the order in which nodes are done: of a layer's heads, those that run everywhere come first.
    layer_of = np.repeat(np.arange(2 * graph.n_layers + 1), [1, *([graph.n_heads, 1] * graph.n_layers)])
    order = np.lexsort((~everywhere, layer_of))
    rows_full, rows_last = order[everywhere[order]], order[running[order]]
    full, last = inside[rows_full], inside[rows_last]
    layers = []
    for index in range(graph.n_layers):
        before = graph.attention_sources(index)
        heads = before + np.arange(graph.n_heads)
        n_full, n_last = (int((rows < before).sum()) for rows in (rows_full, rows_last))
        start = graph.attention_destinations(index).start + np.arange(3)[:, None] * graph.n_heads
        wide, narrow = heads[everywhere[heads]] - before, heads[running[heads] & ~everywhere[heads]] - before
        groups = [
            Heads(
                chosen, (_reads(asked, start[0] + chosen), *(_reads(full[:n_full], start[i] + chosen) for i in (1, 2)))
            )
            for chosen, asked in ((wide, full[:n_full]), (narrow, last[:n_last]))
        ]
        mlp, mlp_everywhere = graph.mlp_source(index), bool(everywhere[graph.mlp_source(index)])
        source_rows, rows = (full, rows_full) if mlp_everywhere else (last, rows_last)
        seen = int((rows < graph.mlp_sources(index)).sum())
        reads = source_rows[:seen, graph.mlp_destination(index), None] if running[mlp] else None
        layers.append(LayerPlan(groups[0], groups[1], reads, mlp_everywhere))
    return CircuitPlan(len(rows_full), len(rows_last), tuple(layers), last[:, -1:])


def _runs_everywhere(circuit: Circuit, inside: Bools) -> Bools:
    """[source] whether a node's output matters beyond the last position: a key or value reads it, or a q or an MLP that
    itself matters beyond the last position."""
    graph = circuit.graph
    everywhere = np.zeros(graph.n_sources, bool)
    wide = np.zeros(graph.n_destinations, bool)  # destinations that are read at every position
    for layer in range(graph.n_layers):
        queries = graph.attention_destinations(layer).start
        wide[queries + graph.n_heads : queries + 3 * graph.n_heads] = True
    for layer in reversed(range(graph.n_layers)):
        mlp = graph.mlp_source(layer)
        everywhere[mlp] = (inside[mlp] & wide).any()
        wide[graph.mlp_destination(layer)] = everywhere[mlp]
        heads = graph.attention_sources(layer) + np.arange(graph.n_heads)
        everywhere[heads] = (inside[heads] & wide).any(1)
        wide[graph.attention_destinations(layer).start + np.arange(graph.n_heads)] = everywhere[heads]
    everywhere[0] = True
    return everywhere


def _reads(rows: Bools, destinations: Ints) -> tuple[Ints, Bools]:
    edges = rows[:, destinations]
    reading = np.flatnonzero(edges.any(0))
    return reading, edges[:, reading]


def reference_from_sources(model: Transformer, sources: Trace, frame: Frame) -> Trace:
    """A reference in which every source gives what `sources` (embedding, mix, mlp_out) says, whatever it reads."""
    mix, mlp_out = (
        tuple(part.to(layer.device) for part, layer in zip(parts, model.layers, strict=True))
        for parts in (sources.mix, sources.mlp_out)
    )
    x = add_positions(model, sources.embedding, frame)
    attention_in: list[Tensor] = []
    mlp_in: list[Tensor] = []
    qkv: tuple[list[Tensor], ...] = ([], [], [])
    for index, layer in enumerate(model.layers):
        x = x.to(layer.device)
        attention_in.append(x)
        for kept, part in zip(qkv, layer.project(layer.attention_norm(x)), strict=True):
            kept.append(part)
        mid = x + join_heads(layer, mix[index])
        mlp_in.append(x if model.graph.parallel else mid)
        x = mid + mlp_out[index]
    q, k, v = (tuple(part) for part in qkv)
    return Trace(sources.embedding, tuple(attention_in), q, k, v, mix, tuple(mlp_in), mlp_out, x.to(model.device))


def run_circuit(
    model: Transformer, plan: CircuitPlan, clean: Tensor, reference: Trace, frame: Frame, last: Tensor
) -> Tensor:
    """The stream [example, d_model] that the logits read at each example's last position.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    """
    home = where = (torch.arange(len(last), device=last.device), last)
    last_frame = frame_at(frame, where)
    rooms = _rooms(model, plan)
    full, at_last = Changes([room[0] for room in rooms], clean), Changes([room[1] for room in rooms], clean[where])
    change = (clean - reference.embedding)[None]
    full.append(change)
    at_last.append(_at(change, where))
    for index, (layer, step) in enumerate(zip(model.layers, plan.layers, strict=True)):
        done = []
        where = (home[0].to(layer.device), home[1].to(layer.device))
        if len(step.everywhere.heads):
            mix = _mix(model, index, step.everywhere, (full, full), reference, frame, None)
            change = _written(layer, mix, step.everywhere.heads)
            full.append(change, Joined.of(layer, reference.mix[index]))
            done.append(_at(change, where))
        if len(step.at_last.heads):
            mix = _mix(model, index, step.at_last, (at_last, full), reference, frame, (last_frame, where))
            done.append(_written(layer, mix, step.at_last.heads).squeeze(2))
        if done:
            at_last.append(torch.cat(done), Joined.of(layer, reference.mix[index][where]))
        if step.mlp is None:
            continue
        if step.mlp_everywhere:
            stream = reference.mlp_in[index] + full.read(step.mlp, layer.device)[0]
            change = (layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index])[None]
            full.append(change)
            at_last.append(_at(change, where))
        else:
            stream = reference.mlp_in[index][where] + at_last.read(step.mlp, layer.device)[0]
            at_last.append((layer.mlp(layer.mlp_norm(stream)) - reference.mlp_out[index][where])[None])
    return reference.final[home] + at_last.read(plan.logits, model.device)[0]


def _rooms(model: Transformer, plan: CircuitPlan) -> list[tuple[int, int]]:
    """For every span of layers, how many nodes run everywhere, and at the last position; `input` is in the first."""
    rooms: list[tuple[int, int]] = []
    for span in model.spans:
        steps = [plan.layers[index] for index in span]
        wide = sum(len(step.everywhere.heads) + (step.mlp is not None and step.mlp_everywhere) for step in steps)
        narrow = sum(len(step.at_last.heads) + (step.mlp is not None and not step.mlp_everywhere) for step in steps)
        first = int(not rooms)
        rooms.append((first + wide, first + wide + narrow))
    return rooms


@dataclass(frozen=True, eq=False)
class Joined:
    """Heads that join the stream through a norm: a reader sees the norm of the mix of outputs that it reads."""

    layer: Layer
    reference_mix: Tensor

    @classmethod
    def of(cls, layer: Layer, reference_mix: Tensor) -> Joined | None:
        """How a layer's heads join, or None if they just add up."""
        return None if layer.post_norm is None else cls(layer, reference_mix)

    def change(self, heads: Tensor) -> Tensor:
        """How what joins the stream changes if the sum of the heads' outputs changes by `heads`."""
        norm = self.layer.post_norm
        assert norm is not None
        before = sum_heads(self.layer, self.reference_mix)
        return norm(before + heads) - norm(before)


class Changes:
    """How the outputs of the sources that ran differ from the reference: [source, batch, (position,) d_model].

    They lie where their layers do: `rooms` says how many sources there are in each span of layers.
    """

    def __init__(self, rooms: Sequence[int], like: Tensor) -> None:
        self._rooms, self._like = tuple(rooms), like
        self._parts: list[tuple[int, Tensor]] = []  # the first source of each
        self._joined: list[tuple[slice, Joined]] = []
        self._count = 0

    def append(self, changes: Tensor, joined: Joined | None = None) -> None:
        """Add the changes of the next sources; `joined` if they are heads that join through a norm."""
        rows = slice(self._count, self._count + len(changes))
        while rows.start == sum(self._rooms[: len(self._parts)]):
            room = self._rooms[len(self._parts)]
            self._parts.append((rows.start, changes.new_empty((room, *self._like.shape))))
        first, part = self._parts[-1]
        part[rows.start - first : rows.stop - first] = changes
        self._count = rows.stop
        if joined is not None:
            self._joined.append((rows, joined))

    def read(self, edges: Bools, device: torch.device) -> Tensor:
        """[reader, ...] on a device, the sum of the changes that each reader's edges [source, reader] bring."""
        plain = edges.copy()
        for rows, _ in self._joined:
            plain[rows] = False
        first, *rest = (_weighted(changes, plain[rows]).to(device) for rows, changes in self._until(len(edges)))
        total = first if not rest else sum(rest, first)
        for rows, joined in self._joined:
            readers = np.flatnonzero(edges[rows].any(0)) if rows.start < len(edges) else ()
            if len(readers):
                start, part = next(one for one in reversed(self._parts) if one[0] <= rows.start)
                heads = _weighted(part[rows.start - start : rows.stop - start], edges[rows][:, readers])
                total[torch.as_tensor(readers, device=device)] += joined.change(heads).to(device)
        return total

    def _until(self, count: int) -> Iterator[tuple[slice, Tensor]]:
        """The parts of the first sources: which they are, and their changes."""
        for first, part in self._parts:
            if first < count or not first:
                rows = slice(first, min(count, first + len(part)))
                yield rows, part[: rows.stop - first]


def _at(changes: Tensor, where: Where) -> Tensor:
    """[source, batch, d_model] changes [source, batch, position, d_model] at one position of every example."""
    return changes[:, where[0], where[1]]


def _weighted(changes: Tensor, edges: Bools) -> Tensor:
    """[reader, ...] the sum of the changes [source, ...] over each reader's edges [source, reader].

    Rows that nobody reads are left out: in a small circuit most are.
    """
    read = np.flatnonzero(edges.any(1))
    if len(read) < len(edges) // 2:
        changes, edges = changes[torch.as_tensor(read, device=changes.device)], edges[read]
    weights = torch.as_tensor(edges.T, dtype=changes.dtype, device=changes.device)
    return (weights @ changes.flatten(1)).unflatten(1, changes.shape[1:])


def _mix(
    model: Transformer,
    index: int,
    group: Heads,
    changes: tuple[Changes, Changes],
    reference: Trace,
    frame: Frame,
    at: tuple[Frame, Where] | None,
) -> Tensor:
    """[batch, position, head, d_head] how the mixes of a group of heads change; at the last position only, with `at`.

    changes  what q reads, and what k and v read
    """
    layer = model.layers[index]
    heads = torch.as_tensor(group.heads, device=layer.device)
    there = reference.q[index], reference.k[index], reference.v[index]
    parts = []
    for letter, ((reading, edges), projection, unread) in enumerate(zip(group.readers, layer.qkv, there, strict=True)):
        only_last = letter == 0 and at is not None
        stream, source = reference.attention_in[index], changes[min(letter, 1)]
        if only_last:
            assert at is not None
            unread, stream = unread[at[1]].unsqueeze(1), stream[at[1]]
        rows = [unread[:, :, head] for head in group.heads.tolist()]
        if len(reading):
            streams = stream + source.read(edges, layer.device)
            streams = streams.unsqueeze(2) if only_last else streams
            projected = _project_heads(layer, projection, streams, group.heads[reading])
            for row, part in zip(reading.tolist(), projected, strict=True):
                rows[row] = part
        parts.append(torch.stack(rows, 2))
    q, k, v = parts
    before = reference.mix[index][:, :, heads] if at is None else reference.mix[index][at[1]].unsqueeze(1)[:, :, heads]
    return attend(model, index, q, k, v, frame, heads, None if at is None else at[0]) - before


def _written(layer: Layer, mix: Tensor, heads: Ints) -> Tensor:
    """[head, batch, position, d_model] what heads write to the stream, from their mixes [.., head, d_head].

    Head by head: gathering the weights of some heads would copy them, which takes longer than the products.
    """
    written = [mix[:, :, i] @ layer.out[:, head].T for i, head in enumerate(heads.tolist())]
    return torch.stack(written)


def _project_heads(layer: Layer, projection: Projection, streams: Tensor, heads: Ints) -> list[Tensor]:
    """Per head, [batch, position, d_head] from the stream [head, batch, position, d_model] that it reads."""
    normed = layer.attention_norm(streams)
    weight, bias, stored = projection.weight, projection.bias, (heads // projection.group).tolist()
    return [F.linear(normed[i], weight[head], None if bias is None else bias[head]) for i, head in enumerate(stored)]
