"""One forward pass in plain torch, which keeps what circuits are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..tasks.metrics import Readout
from .transformer import Layer, Transformer, at_least_float32, soft_cap

KeysAndValues = tuple[Tensor, Tensor]
# Of a half-precision unembedding, so many tokens are widened at once.
TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Frame:
    """Where a batch's positions sit: what a run needs besides the stream itself.

    positions  [batch, position] the number of each token in its prompt, from 0
    turn       per rotary embedding in use, its cos and sin [batch, position, turned]
    allowed    [batch, 1, position, key] for every window in use: which keys a position may see
    past       per layer, the keys (turned) and values [batch, head, key, d_head] of positions shared by all runs
    """

    positions: Tensor
    turn: dict[str | None, tuple[Tensor, Tensor]]
    allowed: dict[int | None, Tensor]
    past: tuple[KeysAndValues, ...] | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """What a run computed, per layer, with leading axes [batch, position].

    attention_in, mlp_in, final  the stream [.., d_model] as the layer's attention, its MLP and the logits read it
    q, k, v                      [.., head, d_head] as projected, before norm and turn, one for every query head
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
    kinds = {layer.turn for layer in model.layers} if model.rotary is not None else set()
    turn = (
        {kind: model.rotary(model.layers[0].out, positions, kind) for kind in kinds} if model.rotary is not None else {}
    )
    return Frame(positions, turn, allowed, past)


def run(model: Transformer, embedding: Tensor, frame: Frame) -> Trace:
    """The model's run from the output of the node `input` [batch, position, d_model].

    Gradients flow if `embedding` requires them. `mlp_in` and `final` are views of their own, so that a gradient at
    one of them is that of its reader alone.
    """
    x = add_positions(model, embedding, frame)
    kept: dict[str, list[Tensor]] = {name: [] for name in ("attention_in", "q", "k", "v", "mix", "mlp_in", "mlp_out")}
    for index, layer in enumerate(model.layers):
        x = x.to(layer.device)
        q, k, v = layer.project(layer.attention_norm(x))
        mix = attend(model, index, q, k, v, frame)
        mid = x + join_heads(layer, mix)
        mlp_in = (x if model.graph.parallel else mid).view_as(x)
        mlp_out = layer.mlp(layer.mlp_norm(mlp_in))
        for name, value in zip(kept, (x, q, k, v, mix, mlp_in, mlp_out), strict=True):
            kept[name].append(value)
        x = mid + mlp_out
    x = x.to(model.device)
    return Trace(embedding=embedding, final=x.view_as(x), **{name: tuple(values) for name, values in kept.items()})


def add_positions(model: Transformer, embedding: Tensor, frame: Frame) -> Tensor:
    """The stream that the first layer reads."""
    if model.positions is None:
        return embedding
    return embedding + model.positions[frame.positions.to(model.positions.device)].to(embedding.device)


def join_heads(layer: Layer, mix: Tensor) -> Tensor:
    """What a layer's heads write to the stream together, output bias and the norm after it included: [..., d_model]."""
    joined = sum_heads(layer, mix)
    return joined if layer.post_norm is None else layer.post_norm(joined)


def sum_heads(layer: Layer, mix: Tensor) -> Tensor:
    """The sum of a layer's head outputs and the output bias, before any norm: [..., d_model]."""
    return torch.nn.functional.linear(mix.flatten(-2), layer.out.flatten(1), layer.out_bias)


def attend(
    model: Transformer,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frame: Frame,
    heads: Tensor | None = None,
    query_frame: Frame | None = None,
) -> Tensor:
    """Attention of some heads (all for None) of a layer: q, k, v and the result are [batch, position, head, d_head].

    With `query_frame`, q are those of other positions than k and v.
    """
    own = model.layers[layer]
    k, v = (part.transpose(1, 2) for part in (_key(k, frame, own), v))
    if frame.past is not None:
        past_k, past_v = (part if heads is None else part[:, heads] for part in frame.past[layer])
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    return (_pattern(model, own, q, k, query_frame or frame).to(v.dtype) @ v).transpose(1, 2)


def attention_patterns(model: Transformer, trace: Trace, frame: Frame) -> tuple[Tensor, ...]:
    """Per layer, how much every position of a run looks at every other: [batch, head, position, key]."""
    return tuple(
        _pattern(model, layer, q, _key(k, frame, layer).transpose(1, 2), frame)
        for layer, q, k in zip(model.layers, trace.q, trace.k, strict=True)
    )


def _pattern(model: Transformer, layer: Layer, q: Tensor, k: Tensor, frame: Frame) -> Tensor:
    """[batch, head, position, key] of queries as projected and keys [batch, head, key, d_head] as attention uses them;
    at least float32."""
    q = _turned(q if layer.q_norm is None else layer.q_norm(q), frame, layer).transpose(1, 2)
    scores = soft_cap((q @ k.transpose(-1, -2)) * model.attention_scale, model.attention_cap)
    scores = scores.masked_fill(~frame.allowed[layer.window].to(scores.device), torch.finfo(scores.dtype).min)
    return at_least_float32(scores).softmax(-1)


def frame_at(frame: Frame, where: tuple[Tensor, Tensor]) -> Frame:
    """The frame of one position of every example, for its queries."""
    turn = {kind: (cos[where].unsqueeze(1), sin[where].unsqueeze(1)) for kind, (cos, sin) in frame.turn.items()}
    allowed = {window: mask[where[0], :, where[1]].unsqueeze(2) for window, mask in frame.allowed.items()}
    return Frame(frame.positions[where].unsqueeze(1), turn, allowed)


def keys_and_values(model: Transformer, trace: Trace, frame: Frame) -> tuple[KeysAndValues, ...]:
    """Per layer, the keys and values of a run as attention uses them, for the past of a `Frame` of later positions."""
    keys = (_key(k, frame, layer).transpose(1, 2) for k, layer in zip(trace.k, model.layers, strict=True))
    return tuple((k, v.transpose(1, 2)) for k, v in zip(keys, trace.v, strict=True))


def _key(k: Tensor, frame: Frame, layer: Layer) -> Tensor:
    """k as attention uses it: normed, if the model does so, and turned."""
    return _turned(k if layer.k_norm is None else layer.k_norm(k), frame, layer)


def _turned(x: Tensor, frame: Frame, layer: Layer) -> Tensor:
    """x [batch, position, head, d_head] with the rotary embedding applied to its leading entries."""
    if not frame.turn:
        return x
    cos, sin = (part[:, :, None].to(x) for part in frame.turn[layer.turn])
    size = cos.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    first, second = part.chunk(2, -1)
    part = part * cos + torch.cat([-second, first], -1) * sin
    return part if size == x.shape[-1] else torch.cat([part, rest], -1)


def read_out(model: Transformer, stream: Tensor, answers: Tensor, right: Tensor, all_logits: bool) -> Readout:
    """The logits for the stream [example, d_model] at each example's last position: the answers', or all of them.

    At least in float32: metrics are small differences of large logits.
    """
    home, there = answers.device, model.unembed.device
    y = model.final_norm(at_least_float32(stream).to(model.final_norm.weight.device)).to(there)
    if all_logits:
        logits = soft_cap(_all_logits(model.unembed, y), model.logit_cap).to(home)
        return Readout(answers, logits.gather(1, answers), right, logits)
    answer_logits = (at_least_float32(model.unembed[answers.to(there)]) @ y.unsqueeze(-1)).squeeze(-1)
    return Readout(answers, soft_cap(answer_logits, model.logit_cap).to(home), right)


def _all_logits(unembed: Tensor, y: Tensor) -> Tensor:
    """[example, token] y times unembedding, in y's dtype; a wide copy of it is made in parts, for each pass anew."""
    if unembed.dtype == y.dtype:
        return y @ unembed.T
    parts = unembed.split(TOKENS_AT_ONCE)
    return torch.cat([checkpoint(_wide_product, y, part, use_reentrant=False) for part in parts], 1)


def _wide_product(y: Tensor, part: Tensor) -> Tensor:
    return y @ part.to(y.dtype).T
