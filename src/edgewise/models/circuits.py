"""Run circuits: every destination reads in-circuit sources from this run, and all others from the reference run
(under patching, the corrupted run).

Only the nodes of the circuits run, on top of a reference that all circuits of a batch share:
input of v = the reference's stream at v + sum over in-circuit u->v of (u's output - the reference's output of u).

Products with the model's weights take most of the time. Sums over edges read the changes of one position after the
other, which fit into a processor's cache, and their time grows with the number of edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .circuit_plan import FIRST_FREE, INPUT, STREAM, Bools, CircuitsPlan, Ints, Letters, Reading, Sums
from .forward import Frame, Trace, attend, frame_at, sum_heads
from .memory import NORMED_AT_ONCE
from .transformer import Layer, Norm, Transformer


def run_circuits(
    model: Transformer,
    plan: CircuitsPlan,
    clean: Tensor,
    reference: Trace,
    frame: Frame,
    last: Tensor,
    spans: Tensor | None = None,
) -> Tensor:
    """Return the streams [circuit, example * read, d_model] of the logits at the positions that the metric reads.

    clean  [batch, position, d_model] the output of the node `input` on the clean prompt
    last   [batch, read] these positions
    spans  [batch, position] for circuits of (edge, span) pairs, the span of each position; padding may have any
    """
    batch, length, _ = clean.shape
    examples = torch.arange(batch, device=last.device)[:, None]
    last_frame = frame_at(frame, (examples, last))
    ends, last_ends = zip(*(plan.ends[span[-1]] for span in model.spans), strict=True)
    change = clean - reference.embedding
    last_places = (examples * length + last).flatten()
    full = Table(model, reference, ends, change, plan.input_masks, spans=spans)
    at_last = Table(model, reference, last_ends, change, plan.input_masks, last_places, spans)
    tables = (full, at_last)
    for index, layer in enumerate(model.layers):
        head_groups, mlp_groups = plan.layers[index]
        for group in head_groups:
            table, attention_in = tables[group.at_last], reference.attention_in[index]
            where = ((table, reference.q), (full, reference.k), (full, reference.v))
            reference_qkv = [places.select(values[index]) for places, values in where]
            projected: dict[int, Tensor] = {}
            for letters, reading in group.inputs:
                # No name for the streams, so that they are freed before the next are read.
                projected |= _project(
                    layer, letters, group.heads, tables[reading.at_last].read(reading, attention_in), reference_qkv
                )
            parts = (projected[i] if i in projected else x[:, group.heads] for i, x in enumerate(reference_qkv))
            q, k, v = (x.unflatten(0, (batch, -1)) for x in parts)
            heads = torch.as_tensor(group.heads, device=layer.device)
            mix = attend(model, index, q, k, v, frame, heads, last_frame if group.at_last else None).flatten(0, 1)
            mix = mix - table.select(reference.mix[index])[:, group.heads]
            out = table.view(group.rows)
            # Head by head: gathering the weights of several heads would copy them, which is slower than the products.
            for head, nodes in _equal_ranges(group.heads):
                _multiply(mix[:, nodes], layer.out[:, head], out[:, nodes])
            _apply_masks(out, group.masks)
            if not group.at_last:
                at_last.view(group.last_rows).copy_(at_last.select_places(out))
        for mlps in mlp_groups:
            table = tables[mlps.at_last]
            streams, out = table.read(mlps.reading, reference.mlp_in[index]), table.view(mlps.rows)
            torch.sub(layer.run_mlp(streams), table.select(reference.mlp_out[index])[:, None], out=out)
            _apply_masks(out, mlps.masks)
            if not mlps.at_last:
                at_last.view(mlps.last_rows).copy_(at_last.select_places(out))
    return at_last.read(plan.logits, reference.final).transpose(0, 1)


class Table:
    """The changes of node outputs from the reference: rows [place, row, d_model].

    Only the nodes of the circuits have rows. `rows.Rows` is the table of weighted circuits: differentiable, with a
    fixed row for every node.

    A place is one position of one example. Rows are on the device of their node's layer, `input` on that of the first.

    ends         for every span of layers on one device, the number of rows up to its end
    change       [example, position, d_model] the change of `input`
    input_masks  [row, d_model] which dimensions of it are in the rows after its own
    places       [place] which positions of all examples, counted together, the table is for; None for all
    spans        [example, position] the span of tokens of each position; None if there is only one
    """

    def __init__(
        self,
        model: Transformer,
        reference: Trace,
        ends: Sequence[int],
        change: Tensor,
        input_masks: Bools,
        places: Tensor | None = None,
        spans: Tensor | None = None,
    ) -> None:
        self._model, self._reference, self._places = model, reference, places
        self._parts: list[tuple[int, Tensor]] = []  # (first row, rows)
        self._spans = None if spans is None else self.select(spans)
        change = self.select(change)
        for span, first, end in zip(model.spans, (0, *ends), ends, strict=False):
            shape, device = (len(change), end - first, change.shape[-1]), model.layers[span[0]].device
            self._parts.append((first, change.new_empty(shape, device=device)))
        self._parts[0][1][:, INPUT] = change
        parts_of_input = self.view(slice(FIRST_FREE, FIRST_FREE + len(input_masks)))
        parts_of_input.copy_(change[:, None])
        _apply_masks(parts_of_input, input_masks)

    def select(self, x: Tensor) -> Tensor:
        """Return the table's places of x [example, position, ...] as [place, ...]."""
        return self.select_places(x.flatten(0, 1))

    def select_places(self, x: Tensor) -> Tensor:
        """Return the table's places of x [position of all examples, ...]."""
        return x if self._places is None else x[self._places.to(x.device)]

    def view(self, rows: slice) -> Tensor:
        """Return a view [place, row, d_model] of rows of one layer, to write to."""
        first, part = next(part for part in reversed(self._parts) if part[0] <= rows.start)
        return part[:, rows.start - first : rows.stop - first]

    def read(self, reading: Reading, stream: Tensor) -> Tensor:
        """Return what readers read [place, reader, d_model]: the reference's stream plus changes.

        stream  [example, position, d_model]
        """
        self._parts[0][1][:, STREAM] = self.select(stream)
        total = self._sum(reading.sums, stream.device)
        for index, readers, sums in reading.through_norms:
            layer = self._model.layers[index]
            assert layer.post_norm is not None
            before = sum_heads(layer, self.select(self._reference.mix[index]))[:, None]
            change = self._sum(sums, layer.device).add_(before)
            _norm_in_place(layer.post_norm, change)
            total[:, readers] += change.sub_(layer.post_norm(before)).to(total.device)
        return total

    def _sum(self, sums: Sums, device: torch.device) -> Tensor:
        """Return sums [place, reader, d_model] on a device; rows are summed on their own device."""
        if len(self._parts) == 1:
            return _sum_rows(self._parts[0][1], sums, self._spans)
        total: Tensor | None = None
        for first, part in self._parts:
            in_part = (sums.rows >= first) & (sums.rows < first + part.shape[1])
            if in_part.any():
                starts = np.searchsorted(np.flatnonzero(in_part), sums.starts)
                part_sum = _sum_rows(part, Sums(sums.rows[in_part] - first, starts), self._spans).to(device)
                total = part_sum if total is None else total.add_(part_sum)
        assert total is not None
        return total


def _sum_rows(rows: Tensor, sums: Sums, spans: Tensor | None) -> Tensor:
    """Return sums [place, reader, d_model] of rows [place, row, d_model], place by place.

    Sums of half-precision numbers are computed in float32. `spans` [place] says which of the sums a place has.
    """
    n_places, n_rows, width = rows.shape
    places = torch.arange(n_places, device=rows.device)
    terms, starts = (torch.as_tensor(x, device=rows.device) for x in (sums.rows, sums.starts))
    if spans is None:
        index, offsets = places[:, None] * n_rows + terms, places[:, None] * len(terms) + starts
    else:
        spans = spans.to(rows.device)
        ends = torch.cat([starts[1:, 0], starts.new_tensor([len(terms)])])
        first, n_terms = starts[spans, 0], (ends - starts[:, 0])[spans]
        before = n_terms.cumsum(0) - n_terms  # terms of all earlier places
        # The terms of a place are those of its span, from `first` on.
        place = places.repeat_interleave(n_terms)
        index = torch.arange(len(place), device=rows.device).add_((first - before)[place])
        index = terms[index].add_(place.mul_(n_rows))
        offsets = starts[spans].add_((before - first)[:, None])
    sums_by_place = F.embedding_bag(index.flatten(), rows.view(-1, width), offsets.flatten(), mode="sum")
    return sums_by_place.view(n_places, -1, width)


def _apply_masks(changes: Tensor, masks: Bools | None) -> None:
    """Set changes [place, node, d_model] to 0 in the dimensions that masks [node, d_model] do not have."""
    if masks is not None:
        changes *= torch.as_tensor(masks, device=changes.device)


def _norm_in_place(norm: Norm, streams: Tensor) -> None:
    """Replace streams [place, reader, d_model] by their norm."""
    for block in streams.flatten(0, 1).split(max(1, NORMED_AT_ONCE // streams.shape[-1])):
        block.copy_(norm(block))


def _project(
    layer: Layer, letters: Letters, heads: Ints, streams: Tensor, reference_qkv: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Return, by letter, q, k or v [place, node, d_head] of all nodes from streams [place, reader, d_model].

    reference_qkv  the reference's q, k and v [place, head, d_head], for nodes that read nothing there

    `streams` may be normalised in place.
    """
    norm, first = layer.attention_norm, 0
    projected = {}
    # A layer norm is one kernel. An RMS norm is several, each over all streams. So its scale, one number per stream,
    # multiplies the projected values, except in half precision, where products of unscaled streams might overflow.
    inverse_scale = None
    if norm is not None and not norm.centred and streams.dtype.itemsize >= 4:
        squares = torch.linalg.vector_norm(streams, dim=-1, keepdim=True).square()
        inverse_scale = torch.rsqrt(squares / streams.shape[-1] + norm.eps)  # [place, reader, 1]
    elif norm is not None:
        _norm_in_place(norm, streams)
    for letter, nodes in letters:
        projection = layer.qkv[letter]
        readers, stored = slice(first, first + len(nodes)), heads[nodes] // projection.group
        values = streams.new_empty((len(streams), len(nodes), projection.weight.shape[1]))
        for head, equal in _equal_ranges(stored):
            inputs = streams[:, readers][:, equal]
            if projection.norm is not None:
                values[:, equal] = projection.one_head(inputs, head)
                continue
            weight = projection.weight[head]
            if norm is not None and inverse_scale is not None:
                weight = weight * norm.weight
            _multiply(inputs, weight, values[:, equal])
        if inverse_scale is not None:
            values *= inverse_scale[:, readers]
        if projection.bias is not None and projection.norm is None:
            values += projection.bias[stored]
        if len(nodes) < len(heads):
            read_values, values = values, reference_qkv[letter][:, heads]
            values[:, nodes] = read_values
        projected[letter] = values
        first = readers.stop
    return projected


def _multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write x [place, node, in] times weight [out, in] to `out` [place, node, out], in one product."""
    if x.shape[1] == 1:
        torch.mm(x[:, 0], weight.T, out=out[:, 0])
    else:
        out.copy_((x.flatten(0, 1) @ weight.T).view_as(out))


def _equal_ranges(values: Ints) -> Iterator[tuple[int, slice]]:
    """Yield every value of an ascending sequence with the range of its positions."""
    starts = np.flatnonzero(np.diff(values, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), slice(start, stop)
