"""A transformer as edgewise runs it: its architecture, and weights shared with a loaded HuggingFace model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..graph import Graph
from .memory import Shape
from .rules import NO_RULES, BackwardRules


@dataclass(frozen=True, eq=False)
class Norm:
    """Layer norm (`centred`) or RMS norm over the last axis: weight * normalised + bias.

    is_minus_one  whether the stored weight is the weight minus 1, as in Gemma
    """

    stored_weight: Tensor
    bias: Tensor | None
    eps: float
    centred: bool
    is_minus_one: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.eps, (int, float)) or not 0 <= self.eps < float("inf"):
            raise InputError(
                f"a norm of the model adds {self.eps!r} to the variance, but a number of at least 0 is expected; check "
                "layer_norm_epsilon or rms_norm_eps in config.json"
            )

    @property
    def weight(self) -> Tensor:
        """The weight [d_model]. Adding 1 in half precision would lose digits."""
        return 1 + at_least_float32(self.stored_weight) if self.is_minus_one else self.stored_weight

    def __call__(self, x: Tensor, rules: BackwardRules = NO_RULES) -> Tensor:
        """Return the norm of x [..., d_model] in x's dtype, computed in the wider of x's and the weight's dtype."""
        if rules.detach_norm_scales and x.requires_grad:
            return _DetachedNorm.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]
        weight, bias, wide = self.weight, self.bias, x
        if x.dtype != weight.dtype:
            dtype = torch.promote_types(x.dtype, weight.dtype)
            weight, bias, wide = weight.to(dtype), None if bias is None else bias.to(dtype), x.to(dtype)
        if self.centred:
            return F.layer_norm(wide, x.shape[-1:], weight, bias, self.eps).to(x.dtype)
        return F.rms_norm(wide, x.shape[-1:], weight, self.eps).to(x.dtype)

    def normalise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x [..., d_model] normalised, without weight and bias, and 1 / its scale [..., 1]; at least float32."""
        x = at_least_float32(x)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        inverse_scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * inverse_scale, inverse_scale


class _DetachedNorm(torch.autograd.Function):
    """A norm whose scale counts as a constant in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Norm) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(norm.normalise(x)[1])
        ctx.norm = norm
        return norm(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        scaled = gradient * (ctx.norm.weight * ctx.saved_tensors[0])
        return (scaled - scaled.mean(-1, keepdim=True) if ctx.norm.centred else scaled).to(gradient), None


class _ReplacedGradient(torch.autograd.Function):
    """`value`, whose gradient with respect to `x` is `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, factor: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(factor)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient * ctx.saved_tensors[0], None, None


def halve_gradient(x: Tensor) -> Tensor:
    """Return x; its gradient is halved in the backward pass."""
    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * 0.5)
    return x


@dataclass(frozen=True, eq=False)
class Mlp:
    """An MLP: down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate; then its norm, if any.

    whole  all but the norm, as one function
    """

    whole: Callable[[Tensor], Tensor]
    up: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    gate: Callable[[Tensor], Tensor] | None = None
    norm: Norm | None = None

    def __call__(self, x: Tensor, rules: BackwardRules = NO_RULES) -> Tensor:
        """Return the output for x [..., d_model]."""
        if not (rules.linear_activations or rules.halve_gates) or not x.requires_grad:
            y = self.whole(x)
        else:
            inner = (self.up if self.gate is None else self.gate)(x)
            if rules.linear_activations:
                with torch.no_grad():
                    # The quotient is defined near 0, but not at 0.
                    point = torch.where(inner == 0, 4 * torch.finfo(inner.dtype).tiny, inner)
                    value = self.activation(point)
                    slope = value / point
                active = _ReplacedGradient.apply(inner, value, slope)  # type: ignore[no-untyped-call]
            else:
                active = self.activation(inner)
            if self.gate is not None:
                active = active * self.up(x)
                active = halve_gradient(active) if rules.halve_gates else active
            y = self.down(active)
        return y if self.norm is None else self.norm(y, rules)


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map to heads: weight [head, d_head, d_model], bias [head, d_head].

    With grouped queries, keys and values are stored once per group; `group` query heads share them.

    norm  an RMS norm over the outputs of all stored heads together [head * d_head], as in OLMo-2
    """

    weight: Tensor
    bias: Tensor | None
    group: int = 1
    norm: Norm | None = None

    @property
    def head_weight(self) -> Tensor:
        """The weight for every query head [query head, d_head, d_model]; weights shared by a group are repeated."""
        return self.weight if self.group == 1 else self.weight.repeat_interleave(self.group, dim=0)

    @property
    def head_bias(self) -> Tensor | None:
        """The bias for every query head [query head, d_head]; biases shared by a group are repeated."""
        return self.bias if self.bias is None or self.group == 1 else self.bias.repeat_interleave(self.group, dim=0)

    @property
    def head_norm_weight(self) -> Tensor:
        """[query head, d_head] the weight of `norm`."""
        assert self.norm is not None
        return self.norm.weight.unflatten(0, self.weight.shape[:2]).repeat_interleave(self.group, dim=0)

    def project(self, x: Tensor, rules: BackwardRules = NO_RULES) -> Tensor:
        """Return the outputs [..., query head, d_head] for x [..., d_model], which all heads read."""
        outputs = self.all_heads(x)
        outputs = outputs if self.norm is None else self.norm(outputs, rules)
        heads = outputs.unflatten(-1, self.weight.shape[:2])
        return heads if self.group == 1 else heads.repeat_interleave(self.group, dim=-2)

    def all_heads(self, x: Tensor) -> Tensor:
        """Return the outputs [..., head * d_head] of all stored heads for x [..., d_model], before `norm`."""
        return F.linear(x, self.weight.flatten(0, 1), None if self.bias is None else self.bias.flatten())

    def one_head(self, x: Tensor, head: int) -> Tensor:
        """Return the output [..., d_head] of one stored head for x [..., d_model].

        With a norm over all heads, a head that reads x is normed as if all heads read x.
        """
        if self.norm is None:
            return F.linear(x, self.weight[head], None if self.bias is None else self.bias[head])
        return self.norm(self.all_heads(x)).unflatten(-1, self.weight.shape[:2])[..., head, :]

    def part(self, heads: Tensor) -> Projection:
        """Return the map to some query heads; to all of them if there is a norm over all heads."""
        if self.norm is not None or len(heads) == self.weight.shape[0] * self.group:
            return self
        stored = (heads // self.group).to(self.weight.device)
        return Projection(self.weight[stored], None if self.bias is None else self.bias[stored])

    def offset(self, norm: Norm | None) -> Tensor | None:
        """Return the part [query head, d_head] of q, k or v that doesn't depend on the stream.

        It is the projection of the norm's bias, plus the projection's bias.
        """
        if norm is None or norm.bias is None:
            return self.head_bias
        moved = self.head_weight @ norm.bias
        return moved if self.head_bias is None else moved + self.head_bias


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: attention reads `attention_norm` of the residual stream, the MLP reads `mlp_norm` of it.

    attention_norm  None if attention reads the stream itself; only then may projections have a norm over all heads
    qkv             the projections to queries, keys and values, in the order of the graph's destinations
    out             [d_model, head, d_head] the output projection; `out_bias` [d_model] belongs to no node
    mlp_norm        None if the MLP reads the stream itself
    mlp             the MLP without `mlp_norm`, but with a norm that follows it
    window          the number of positions that attention reads, its own included; None for all
    rotary_kind     which of the model's rotary embeddings it uses
    q_norm, k_norm  norms of q and k, per head
    post_norm       the norm of the sum of all heads, before it is added to the stream
    project_all     [..., d_model] -> q, k and v [..., head, d_head] at once, which is faster; None if `qkv` are stored
                    apart, share keys and values, or have norms
    """

    attention_norm: Norm | None
    qkv: tuple[Projection, Projection, Projection]
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Norm | None
    mlp: Mlp
    window: int | None = None
    rotary_kind: str | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    post_norm: Norm | None = None
    project_all: Callable[[Tensor], tuple[Tensor, ...]] | None = None

    @property
    def device(self) -> torch.device:
        """Where its weights are, and where it runs."""
        return self.out.device

    def part(self, heads: Tensor) -> Layer:
        """Return the layer with some of its heads; norms over all heads keep the projections of all."""
        q, k, v = (projection.part(heads) for projection in self.qkv)
        return replace(self, qkv=(q, k, v), out=take(self.out, 1, heads), project_all=None)

    def read_qkv(self, stream: Tensor, rules: BackwardRules = NO_RULES) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v [..., head, d_head] if all heads read the same stream [..., d_model]."""
        x = stream if self.attention_norm is None else self.attention_norm(stream, rules)
        q, k, v = self.project_all(x) if self.project_all else (part.project(x, rules) for part in self.qkv)
        return q, k, v

    def run_mlp(self, stream: Tensor, rules: BackwardRules = NO_RULES) -> Tensor:
        """Return the output of the MLP for the stream [..., d_model] that it reads."""
        return self.mlp(stream if self.mlp_norm is None else self.mlp_norm(stream, rules), rules)


@dataclass(frozen=True, eq=False)
class Transformer:
    """A whole model, whose layers may be on several devices.

    The stream is moved to the device of each layer, and a layer's activations stay there, so large buffers are spread
    like the weights. Everything else (batches, logits, scores) is on the device of the first layer.

    embed      tokens [batch, position] -> [batch, position, d_model]: the output of the node `input`
    positions  [position, d_model] learned position embeddings, which belong to no node; None if there are none
    rotary     (tensor of the right dtype and device, positions [batch, position], kind) -> cos, sin
               [batch, position, rotated]; None if there is none
    mlp_kept   values per position that an MLP keeps for a backward pass
    attention_cap, logit_cap  soft caps of attention scores and logits: cap * tanh(x / cap)
    unembed_bias  [token] added to the logits, a part of every circuit; only models of TransformerLens have it
    """

    graph: Graph
    d_head: int
    layers: tuple[Layer, ...]
    embed: Callable[[Tensor], Tensor]
    final_norm: Norm
    unembed: Tensor
    attention_scale: float
    max_length: int
    mlp_kept: int
    positions: Tensor | None = None
    rotary: Callable[[Tensor, Tensor, str | None], tuple[Tensor, Tensor]] | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    unembed_bias: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of batches and logits."""
        return self.layers[0].device

    @property
    def device_ranges(self) -> tuple[range, ...]:
        """The layers, in ranges of consecutive layers on one device."""
        devices = [layer.device for layer in self.layers]
        starts = [index for index, device in enumerate(devices) if index == 0 or device != devices[index - 1]]
        return tuple(range(*ends) for ends in zip(starts, [*starts[1:], len(devices)], strict=True))

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of its layers, each once."""
        return tuple(dict.fromkeys(layer.device for layer in self.layers))

    @property
    def device_names(self) -> str:
        """The devices of its layers as text."""
        return ", ".join(map(str, self.devices))

    @property
    def has_post_norm(self) -> bool:
        """Whether the sum of a layer's heads is normed before it is added to the stream."""
        return self.layers[0].post_norm is not None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype it computes in."""
        return self.unembed.dtype

    @property
    def shape(self) -> Shape:
        """The sizes that decide how much memory its batches need."""
        return Shape(self.graph, self.d_head, self.mlp_kept, self.dtype.itemsize, self.has_post_norm)


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """Return x, limited smoothly to the range from -cap to cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def at_least_float32(x: Tensor) -> Tensor:
    """Return x if it is float32 or float64, else a float32 copy."""
    return x if x.dtype == torch.float64 else x.float()


def take(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return entries of x along an axis, by increasing index; x itself if these are all."""
    return x if len(index) == x.shape[dim] else x.index_select(dim, index.to(x.device))
