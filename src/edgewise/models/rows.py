"""The changes of all sources in one buffer, what reads and writes it, and the gradients of both.

A change is a source's output in this run minus that of the reference. Readers mix changes into streams: a large product
per layer. Autograd would norm its result (3H streams) into a copy, and give every read a gradient of the size of the
whole buffer. So reads and writes are functions of their own, which share one buffer of gradients: a read adds to those
of the rows that it read, a write takes those of the rows that it wrote.

What a write returns, its rows at the last position, must be given to the next read as `after`. So autograd knows that
the gradients of written rows are complete once all later reads have been passed backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .forward import sum_heads
from .transformer import Layer, Projection, Transformer, at_least_float32


class Rows:
    """Changes [place, row, d_model]; a place is one position of one example.

    Rows are `input`, then per layer its heads and its MLP, without those of the last layer. Heads that join the stream
    through a norm have one more row (`head_rows`). With layer norms, rows are without their mean, which no reader sees.
    All layers of a model are of one kind in both.

    Rows lie where their layers do, in parts.

    keeps  whether streams are kept for the backward pass, or mixed again
    """

    def __init__(self, model: Transformer, batch: int, length: int, last: Tensor, keeps: bool) -> None:
        graph, first = model.graph, model.layers[0]
        per_layer = graph.n_heads + (1 if first.post_norm is None else 2)
        self.places, self.count, self.keeps = batch * length, 0, keeps
        self._width, self._most_readers = graph.d_model, 3 * graph.n_heads + 1
        self._centred = first.attention_norm.centred
        self._last = torch.arange(batch, device=last.device) * length + last
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}
        self._parts: list[Part] = []
        start = 0
        for span in model.spans:
            writers = len(span) - (span.stop == graph.n_layers)
            stop = start + per_layer * writers + (not self._parts)
            like = model.layers[span.start].out
            self._parts.append(Part(slice(start, stop), like.new_empty((self.places, stop - start, self._width))))
            start = stop
        self.n_rows = start

    def parts(self, count: int) -> list[Part]:
        """The first rows."""
        found = []
        for part in self._parts:
            if part.rows.start < count:
                rows = slice(part.rows.start, min(count, part.rows.stop))
                size = rows.stop - rows.start
                gradients = None if part.gradients is None else part.gradients[:, :size]
                found.append(Part(rows, part.changes[:, :size], gradients))
        return found

    def part(self, which: slice) -> Part:
        """Rows of one layer."""
        found = next(part for part in self._parts if which.start < part.rows.stop)
        here = slice(which.start - found.rows.start, which.stop - found.rows.start)
        return Part(which, found.changes[:, here], None if found.gradients is None else found.gradients[:, here])

    def last_on(self, device: torch.device) -> Tensor:
        """[example] the place that the logits read."""
        return self._last.to(device)

    def buffer(self, name: str, readers: int, like: Tensor) -> Tensor:
        """[place, reader, d_model] room for the streams of a layer's readers, the same for all layers of a device."""
        key = (name, like.device)
        if key not in self._buffers:
            self._buffers[key] = like.new_empty(self.places * self._most_readers * self._width)
        return self._buffers[key][: self.places * readers * self._width].view(self.places, readers, self._width)

    def spread(self, mixing: Tensor, like: Tensor) -> Tensor:
        """[place, ...] from [example, ...], or from [place, ...] itself, in the dtype of rows and where they are."""
        return mixing.to(like).repeat_interleave(self.places // len(mixing), 0)

    def reserve(self, count: int) -> tuple[slice, Tensor]:
        """The next rows, to be written: which they are, and a view of them [place, row, d_model]."""
        which = slice(self.count, self.count + count)
        self.count = which.stop
        return which, self.part(which).changes

    def centre(self, x: Tensor) -> Tensor:
        """x [..., d_model], in place, without the mean that no reader sees."""
        return x.sub_(x.mean(-1, keepdim=True)) if self._centred else x

    def add_gradients(self, mixing: Tensor, streams: Tensor) -> Tensor:
        """Give rows their part of the gradient of `streams` [place, reader, d_model], which `mixing` made of them; the
        gradient of `mixing` itself.

        The first to be passed backwards are the last layer's readers, which read all rows; the last are the first
        layer's, which read the row of `input` alone, whose gradient nobody needs.
        """
        count, by_mixing = mixing.shape[2], []
        for whole, part in zip(self._parts, self.parts(count), strict=False):
            there = streams.to(part.changes.device)
            if count > 1:
                weights = self.spread(mixing[..., part.rows], there).transpose(1, 2)
                if count == self.n_rows:
                    whole.gradients = torch.bmm(weights, there)
                else:
                    assert part.gradients is not None
                    part.gradients.baddbmm_(weights, there)
            found = torch.bmm(there, part.changes.transpose(1, 2)).unflatten(0, (len(mixing), -1))
            by_mixing.append(found.sum(1, dtype=mixing.dtype).to(mixing.device))
        if count == 1:
            for part in self._parts:
                part.gradients = None
        return by_mixing[0] if len(by_mixing) == 1 else torch.cat(by_mixing, 2)

    def take_gradients(self, which: slice, at_last: Tensor) -> Tensor:
        """[place, row, d_model] the gradient of written rows; `at_last` is that of what the write returned."""
        found = self.part(which).gradients
        assert found is not None
        gradients = self.centre(found)  # in place, for nobody takes them again
        gradients[self.last_on(gradients.device)] += at_last
        return gradients


@dataclass
class Part:
    """Rows whose layers are on one device: which they are, their changes [place, row, d_model] and gradients."""

    rows: slice
    changes: Tensor
    gradients: Tensor | None = None


class Read(torch.autograd.Function):
    """Mix streams from the first rows, on top of the reference's stream [place, d_model], and project them.

    mixing  [place, reader, row], or [example, reader, row] where all positions agree
    parts   projections, each for as many readers as it has heads; one more reader has its mix returned as it is

    Gives projections [reader, place, d_head] of the streams before the norm scales them, without biases; the streams'
    squared lengths [place, reader], which tell the scale; and the last reader's mix [place, d_model] or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mixing: Tensor,
        rows: Rows,
        layer: Layer,
        parts: Sequence[Projection],
        reference: Tensor,
        *after: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        weights = [_folded(layer, part) for part in parts]
        n_heads, n_projected = len(weights[0]), sum(len(weight) for weight in weights)
        reference = rows.centre(reference.clone())
        streams = _mix(rows, mixing, reference, n_projected)
        own = streams[:, :n_projected]
        pairs = zip(own.split(n_heads, 1), weights, strict=True)
        projected = torch.cat([torch.bmm(x.transpose(0, 1), weight.transpose(1, 2)) for x, weight in pairs])
        squares = torch.linalg.vector_norm(own, dim=-1, dtype=at_least_float32(own[:1, :1]).dtype).square()
        ctx.save_for_backward(mixing, reference, *[streams] * rows.keeps)
        ctx.given = rows, layer, parts
        return projected, squares, streams[:, -1].clone() if n_projected < streams.shape[1] else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mixing, reference, *kept), (rows, layer, parts) = ctx.saved_tensors, ctx.given
        projected, squares, rest = gradients
        n_projected = len(projected)
        streams = kept[0] if kept else _mix(rows, mixing, reference, n_projected)
        found = rows.buffer("gradients", mixing.shape[1], streams)
        for index, part in enumerate(parts):
            weight = _folded(layer, part)
            here = slice(index * len(weight), (index + 1) * len(weight))
            torch.bmm(projected[here], weight, out=found[:, here].transpose(0, 1))
        scale = squares.to(streams.dtype)[..., None]
        found[:, :n_projected].addcmul_(streams[:, :n_projected], scale, value=2)
        if rest is not None:
            found[:, -1] = rest
        return rows.add_gradients(mixing, found), *[None] * (len(ctx.needs_input_grad) - 1)


class MixOne(torch.autograd.Function):
    """[place, d_model] the rows from `first` on, mixed for one reader; `mixing` as for `Read`."""

    @staticmethod
    def forward(ctx: Any, mixing: Tensor, rows: Rows, first: int, after: Tensor) -> Tensor:
        which = slice(first, first + mixing.shape[2])
        ctx.save_for_backward(mixing)
        ctx.given = rows, which
        changes = rows.part(which).changes
        return torch.bmm(rows.spread(mixing, changes), changes).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mixing,), (rows, which) = ctx.saved_tensors, ctx.given
        stream, part = gradients[0][:, None], rows.part(which)
        part.gradients.addcmul_(rows.spread(mixing, stream).transpose(1, 2), stream)
        by_mixing = torch.bmm(stream, part.changes.transpose(1, 2)).unflatten(0, (len(mixing), -1))
        return by_mixing.sum(1, dtype=mixing.dtype).to(mixing.device), None, None, None


class WriteOutput(torch.autograd.Function):
    """Write the change [place, d_model] of one source; gives that at the last position, [example, 1, d_model]."""

    @staticmethod
    def forward(ctx: Any, change: Tensor, rows: Rows) -> Tensor:
        which, view = rows.reserve(1)
        view.copy_(change[:, None])
        at_last = view[rows.last_on(view.device)]
        rows.centre(view)
        ctx.given = rows, which
        return at_last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, which = ctx.given
        return rows.take_gradients(which, gradients[0]).squeeze(1), None


class WriteHeads(torch.autograd.Function):
    """Write `head_rows` of the heads whose mixes change by `mix` [place, head, d_head].

    Gives these rows at the last position, [example, row, d_model], and the products that a norm after attention needs.
    """

    @staticmethod
    def forward(ctx: Any, mix: Tensor, rows: Rows, layer: Layer, reference_mix: Tensor) -> tuple[Tensor, Tensor | None]:
        if layer.post_norm is None:  # the same as `head_rows`, straight to where it belongs
            which, view = rows.reserve(mix.shape[1])
            torch.bmm(mix.transpose(0, 1), layer.out.permute(1, 2, 0), out=view.transpose(0, 1))
            products = None
        else:
            written, products = head_rows(layer, mix, reference_mix)
            which, view = rows.reserve(written.shape[1])
            view.copy_(written)
        at_last = view[rows.last_on(view.device)]
        rows.centre(view)
        ctx.save_for_backward(mix, reference_mix)
        ctx.given = rows, which, layer
        return at_last, products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (mix, reference_mix), (rows, which, layer) = ctx.saved_tensors, ctx.given
        found = rows.take_gradients(which, gradients[0])
        if layer.post_norm is None:
            return torch.einsum("phd,dhe->phe", found, layer.out), None, None, None
        with torch.enable_grad():
            mix = mix.detach().requires_grad_()
            again, products = head_rows(layer, mix, reference_mix)
        assert products is not None
        return *torch.autograd.grad((again, products), mix, (found, gradients[1])), None, None, None


def head_rows(layer: Layer, mix: Tensor, reference_mix: Tensor) -> tuple[Tensor, Tensor | None]:
    """What readers mix a layer's heads from: [place, row, d_model], for a change of mixes [place, head, d_head].

    Mostly, these are the changes of the heads. A norm after attention makes norm(before + sum of w * change) -
    norm(before) of them, `before` being the reference's sum of heads. With r = 1 / the scale of what is normed, that is
    a mix, too: w * r of each change and r - r(before) of `before`, all times the norm's weight. So `before` is one more
    row, after those of the heads. r follows from the products [place, 1 + head, 1 + head] of `before` and the changes:
    means over d_model, the norm's eps added to that of `before` with itself. They are None where no norm follows.
    """
    changes, norm = torch.einsum("phe,dhe->phd", mix, layer.out), layer.post_norm
    if norm is None:
        return changes, None
    both = torch.cat([sum_heads(layer, reference_mix)[:, None], changes], 1)
    if norm.centred:
        both = both - both.mean(-1, keepdim=True)
    wide = at_least_float32(both)
    products = wide @ wide.transpose(1, 2) / both.shape[-1]
    products[:, 0, 0] += norm.eps
    return (both.roll(-1, 1) * norm.weight).to(both.dtype), products


def _folded(layer: Layer, part: Projection) -> Tensor:
    """[head, d_head, d_model] a projection of the normalised stream, to which the norm's weight isn't applied yet."""
    return (part.head_weight * layer.attention_norm.weight).to(part.weight.dtype)


def _mix(rows: Rows, mixing: Tensor, reference: Tensor, n_projected: int) -> Tensor:
    """[place, reader, d_model] mixes of rows, the first `n_projected` on top of the reference's stream."""
    here = None if rows.keeps else rows.buffer("streams", mixing.shape[1], reference)
    streams: Tensor | None = None
    for part in rows.parts(mixing.shape[2]):
        weights = rows.spread(mixing[..., part.rows], part.changes)
        if part.changes.device != reference.device:
            own = torch.bmm(weights, part.changes).to(reference.device)
            streams = own if streams is None else streams.add_(own)
        elif streams is None:
            streams = torch.bmm(weights, part.changes, out=here)
        else:
            streams.baddbmm_(weights, part.changes)
    assert streams is not None
    streams[:, :n_projected] += reference[:, None]
    return streams
