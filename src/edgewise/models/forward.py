"""One forward pass in plain torch, which keeps the activations that circuits need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from .rules import NO_RULES, BackwardRules
from .transformer import Layer, Norm, Transformer, at_least_float32, halve_gradient, soft_cap

KeysAndValues = tuple[Tensor, Tensor]
Replaced = Mapping[int, Tensor]
NOTHING: Replaced = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Frame:
    """The positions of a batch: what a run needs besides the stream.

    positions  [batch, position] the index of each token in its prompt
    rotary     per kind of rotary embedding, its cos and sin [batch, position, rotated]
    allowed    per window size, [batch, 1, position, key] which keys a position may attend to
    past       per layer, the keys (rotated) and values [batch, head, key, d_head] of the prefix that all runs share
    """

    positions: Tensor
    rotary: dict[str | None, tuple[Tensor, Tensor]]
    allowed: dict[int | None, Tensor]
    past: tuple[KeysAndValues, ...] | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """The activations of a run, mostly per layer, with leading axes [batch, position].

    embedding                    [.., d_model] the output of the node `input`
    attention_in, mlp_in, final  [.., d_model] the stream that the layer's attention, its MLP and the logits read
    q, k, v                      [.., head, d_head] before rotation and norms per head, for every query head
    mix                          [.., head, d_head] each head's output before the output projection
    mlp_out                      [.., d_model] the output of the MLP
    rules                        how the gradient of this run differs from the true one
    is_run                       whether the outputs of all nodes follow from what they read; False for fixed outputs
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
    rules: BackwardRules = NO_RULES
    is_run: bool = True


def make_frame(
    model: Transformer,
    real: Tensor,
    branch: Tensor | None = None,
    first: int = 0,
    past: tuple[KeysAndValues, ...] | None = None,
) -> Frame:
    """Return the frame of the positions from `first` on; `real` [batch, position] is False for padding.

    `branch` [batch, position] is 1 for tokens of the correct answer, 2 for those of the incorrect one, else 0. Both
    answers follow the same prompt: tokens of 2 don't see tokens of 1, and are numbered as if these weren't there. With
    `first` > 0, `past` holds the keys and values of the positions before it.
    """
    numbers = (real.long().cumsum(-1) - 1).clamp(min=0)
    index = torch.arange(real.shape[1], device=real.device)
    query, key = index[first:, None], index[None, :]
    # Padding attends to itself, so that its softmax is defined. Real positions never attend to padding.
    causal = (key <= query) & real[:, None, None, :] | (key == query)
    distance = query - key
    if branch is not None:
        numbers = numbers - (branch == 2) * (branch == 1).sum(-1, keepdim=True)
        causal = causal & ~((branch == 2)[:, None, first:, None] & (branch == 1)[:, None, None, :])
        distance = (numbers[:, first:, None] - numbers[:, None, :])[:, None]
    positions = numbers[:, first:]
    windows = {layer.window for layer in model.layers}
    allowed = {w: causal if w is None else causal & (distance < w) for w in windows}
    rotary = {}
    if model.rotary is not None:
        kinds = {layer.rotary_kind for layer in model.layers}
        rotary = {kind: model.rotary(model.layers[0].out, positions, kind) for kind in kinds}
    return Frame(positions, rotary, allowed, past)


def run(
    model: Transformer,
    embedding: Tensor,
    frame: Frame,
    rules: BackwardRules = NO_RULES,
    mix: Replaced = NOTHING,
    mlp_out: Replaced = NOTHING,
) -> Trace:
    """Run the model from the output of the node `input` [batch, position, d_model].

    Gradients are recorded if `embedding` requires them, and follow the rules. `mlp_in` and `final` are separate views
    of the stream, so that the gradient at one of them is that of its reader alone. `mix` and `mlp_out` hold outputs, by
    layer, that replace those of the run.
    """
    x = embedding
    if model.positions is not None:  # learned position embeddings, which belong to no node
        x = x + model.positions[frame.positions.to(model.positions.device)].to(x.device)
    names = ("attention_in", "q", "k", "v", "mix", "mlp_in", "mlp_out")
    activations: dict[str, list[Tensor]] = {name: [] for name in names}
    for index, layer in enumerate(model.layers):
        x = x.to(layer.device)
        q, k, v = layer.read_qkv(x, rules)
        heads = mix[index] if index in mix else attend(model, index, q, k, v, frame, rules=rules)
        attended = sum_heads(layer, heads)
        mid = x + (attended if layer.post_norm is None else layer.post_norm(attended, rules))
        mlp_in = (x if model.graph.parallel else mid).view_as(x)
        mlp = mlp_out[index] if index in mlp_out else layer.run_mlp(mlp_in, rules)
        for stored, value in zip(activations.values(), (x, q, k, v, heads, mlp_in, mlp), strict=True):
            stored.append(value)
        x = mid + mlp
    x = x.to(model.device)
    layers: dict[str, Any] = {name: tuple(values) for name, values in activations.items()}
    is_run = not mix and not mlp_out
    return Trace(embedding=embedding, final=x.view_as(x), rules=rules, is_run=is_run, **layers)


def sum_heads(layer: Layer, mix: Tensor) -> Tensor:
    """Return the sum of a layer's head outputs and the output bias [..., d_model], before any norm."""
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
    rules: BackwardRules = NO_RULES,
) -> Tensor:
    """Return the attention output of a layer; q, k, v and the output are [batch, position, head, d_head].

    heads        the heads that q, k and v belong to; None for all
    query_frame  the frame of q, if its positions differ from those of k and v
    """
    block = model.layers[layer]
    if rules.detach_patterns:
        q, k = q.detach(), k.detach()
    k, v = _norm_and_rotate(k, block.k_norm, frame, block, rules).transpose(1, 2), v.transpose(1, 2)
    if frame.past is not None:
        past_k, past_v = (part if heads is None else part[:, heads] for part in frame.past[layer])  # heads may repeat
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    mix = _pattern(model, block, q, k, query_frame or frame, rules).to(v.dtype) @ v
    return (halve_gradient(mix) if rules.halve_matmuls else mix).transpose(1, 2)


def attention_patterns(model: Transformer, trace: Trace, frame: Frame) -> tuple[Tensor, ...]:
    """Return, per layer, the attention weights of a run [batch, head, position, key]."""
    return tuple(
        _pattern(model, layer, q, _norm_and_rotate(k, layer.k_norm, frame, layer).transpose(1, 2), frame)
        for layer, q, k in zip(model.layers, trace.q, trace.k, strict=True)
    )


def _pattern(
    model: Transformer, layer: Layer, q: Tensor, k: Tensor, frame: Frame, rules: BackwardRules = NO_RULES
) -> Tensor:
    """Return the attention weights [batch, head, position, key], at least float32.

    q are queries as projected, k [batch, head, key, d_head] keys after norm and rotation.
    """
    q = _norm_and_rotate(q, layer.q_norm, frame, layer, rules).transpose(1, 2)
    products = q @ k.transpose(-1, -2)
    products = halve_gradient(products) if rules.halve_matmuls else products
    scores = soft_cap(products * model.attention_scale, model.attention_cap)
    scores = scores.masked_fill(~frame.allowed[layer.window].to(scores.device), torch.finfo(scores.dtype).min)
    scores = at_least_float32(scores)
    if rules.softmax_temperature == 1:
        return scores.softmax(-1)
    return _TemperedSoftmax.apply(scores, rules.softmax_temperature)  # type: ignore[no-any-return, no-untyped-call]


class _TemperedSoftmax(torch.autograd.Function):
    """A softmax over the last axis whose backward pass is that of another temperature."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, temperature: float) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward((scores / temperature).softmax(-1))
        return scores.softmax(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        return weights * (gradient - (gradient * weights).sum(-1, keepdim=True)), None


def frame_at(frame: Frame, where: tuple[Tensor, Tensor]) -> Frame:
    """Return the frame of some positions of every example, for their queries.

    where  examples [example, 1] and positions [example, read]
    """
    rotary = {kind: (cos[where], sin[where]) for kind, (cos, sin) in frame.rotary.items()}
    allowed = {window: mask[where[0], :, where[1]].transpose(1, 2) for window, mask in frame.allowed.items()}
    return Frame(frame.positions[where], rotary, allowed)


def keys_and_values(model: Transformer, trace: Trace, frame: Frame) -> tuple[KeysAndValues, ...]:
    """Return, per layer, the keys (after norm and rotation) and values of a run, for `Frame.past`."""
    return tuple(
        (_norm_and_rotate(k, layer.k_norm, frame, layer).transpose(1, 2), v.transpose(1, 2))
        for k, v, layer in zip(trace.k, trace.v, model.layers, strict=True)
    )


def _norm_and_rotate(
    x: Tensor, norm: Norm | None, frame: Frame, layer: Layer, rules: BackwardRules = NO_RULES
) -> Tensor:
    """Return queries or keys x [batch, position, head, d_head] after their norm and the rotary embedding."""
    x = x if norm is None else norm(x, rules)
    if not frame.rotary:
        return x
    cos, sin = (part[:, :, None].to(x) for part in frame.rotary[layer.rotary_kind])
    size = cos.shape[-1]
    rotated, rest = x[..., :size], x[..., size:]
    first, second = rotated.chunk(2, -1)
    rotated = rotated * cos + torch.cat([-second, first], -1) * sin
    return rotated if size == x.shape[-1] else torch.cat([rotated, rest], -1)
