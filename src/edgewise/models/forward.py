"""One forward pass in plain torch, which keeps what circuits are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..tasks.metrics import Readout
from .transformer import Layer, Transformer, at_least_float32

KeysAndValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Frame:
    """Where a batch's positions sit: what a run needs besides the stream itself.

    positions  [batch, position] the number of each token in its prompt, from 0
    turn       cos and sin of the rotary embedding, [batch, position, turned], or None
    allowed    [batch, 1, position, key] for every window in use: which keys a position may see
    past       per layer, the keys (turned) and values [batch, head, key, d_head] of positions shared by all runs
    """

    positions: Tensor
    turn: tuple[Tensor, Tensor] | None
    allowed: dict[int | None, Tensor]
    past: tuple[KeysAndValues, ...] | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """What a run computed, per layer, with leading axes [batch, position].

    attention_in, mlp_in, final  the stream [.., d_model] as the layer's attention, its MLP and the logits read it
    q, k, v                      [.., head, d_head] before the rotary embedding, one for every query head
    mix                          [.., head, d_head] each head's output before the output projection
    mlp_out                      [.., d_model]; `embedding` is the output of the node `input`
    """

    embedding: Tensor
    attention_in: tuple[Tensor, ...]
    q: tuple[Tensor, ...]
    k: tuple[Tensor, ...]
    v: tuple[Tensor, ...]
    mix: tuple[Tensor, ...]
    mlp_in: tuple[Tensor, ...]
    mlp_out: tuple[Tensor, ...]
    final: Tensor


def make_frame(
    model: Transformer, real: Tensor, first: int = 0, past: tuple[KeysAndValues, ...] | None = None
) -> Frame:
    """The frame of the positions from `first` on; `real` [batch, position] is False for padding on either side.

    With `first` > 0, `past` holds the keys and values of the positions before it.
    """
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    index = torch.arange(real.shape[1], device=real.device)
    query, key = index[first:, None], index[None, :]
    # Padding sees itself, so that its softmax has something to sum over; nothing real sees padding.
    causal = (key <= query) & real[:, None, None, :] | (key == query)
    windows = {layer.window for layer in model.layers}
    allowed = {w: causal if w is None else causal & (query - key < w) for w in windows}
    positions = positions[:, first:]
    turn = None if model.rotary is None else model.rotary(model.unembed, positions)
    return Frame(positions, turn, allowed, past)


def run(model: Transformer, embedding: Tensor, frame: Frame) -> Trace:
    """The model's run from the output of the node `input` [batch, position, d_model].

    Gradients flow if `embedding` requires them. `mlp_in` and `final` are views of their own, so that a gradient at
    one of them is that of its reader alone.
    """
    x = add_positions(model, embedding, frame)
    kept: dict[str, list[Tensor]] = {name: [] for name in ("attention_in", "q", "k", "v", "mix", "mlp_in", "mlp_out")}
    for index, layer in enumerate(model.layers):
        q, k, v = (project(layer.attention_norm(x)) for project in layer.qkv)
        mix = attend(model, index, q, k, v, frame)
        mid = x + join_heads(layer, mix)
        mlp_in = (x if model.graph.parallel else mid).view_as(x)
        mlp_out = layer.mlp(layer.mlp_norm(mlp_in))
        for name, value in zip(kept, (x, q, k, v, mix, mlp_in, mlp_out), strict=True):
            kept[name].append(value)
        x = mid + mlp_out
    return Trace(embedding=embedding, final=x.view_as(x), **{name: tuple(values) for name, values in kept.items()})


def add_positions(model: Transformer, embedding: Tensor, frame: Frame) -> Tensor:
    """The stream that the first layer reads."""
    return embedding if model.positions is None else embedding + model.positions[frame.positions]


def join_heads(layer: Layer, mix: Tensor) -> Tensor:
    """What a layer's heads write to the stream together, output bias included: [..., d_model]."""
    return torch.nn.functional.linear(mix.flatten(-2), layer.out.flatten(1), layer.out_bias)


def attend(
    model: Transformer, layer: int, q: Tensor, k: Tensor, v: Tensor, frame: Frame, heads: Tensor | None = None
) -> Tensor:
    """Attention of some heads (all for None) of a layer: q, k, v and the result are [batch, position, head, d_head]."""
    q, k, v = (_turned(q, frame), _turned(k, frame), v)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    if frame.past is not None:
        past_k, past_v = (part if heads is None else part[:, heads] for part in frame.past[layer])
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    scores = (q @ k.transpose(-1, -2)) * model.attention_scale
    allowed = frame.allowed[model.layers[layer].window]
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    pattern = at_least_float32(scores).softmax(-1).to(v.dtype)
    return (pattern @ v).transpose(1, 2)


def keys_and_values(trace: Trace, frame: Frame) -> tuple[KeysAndValues, ...]:
    """Per layer, the keys (turned) and values of a run, as a `Frame` of later positions takes them for its past."""
    turned = [_turned(k, frame).transpose(1, 2) for k in trace.k]
    return tuple((k, v.transpose(1, 2)) for k, v in zip(turned, trace.v, strict=True))


def _turned(x: Tensor, frame: Frame) -> Tensor:
    """x [batch, position, head, d_head] with the rotary embedding applied to its leading entries."""
    if frame.turn is None:
        return x
    cos, sin = (part[:, :, None].to(x.dtype) for part in frame.turn)
    size = cos.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    first, second = part.chunk(2, -1)
    part = part * cos + torch.cat([-second, first], -1) * sin
    return part if size == x.shape[-1] else torch.cat([part, rest], -1)


def read_out(model: Transformer, stream: Tensor, answers: Tensor, all_logits: bool) -> Readout:
    """The logits for the stream [example, d_model] at each example's last position: the answers', or all of them."""
    y = model.final_norm(stream)
    if all_logits:
        logits = y @ model.unembed.T
        return Readout(answers, logits.gather(1, answers), logits)
    return Readout(answers, (model.unembed[answers] @ y.unsqueeze(-1)).squeeze(-1))
