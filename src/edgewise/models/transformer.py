"""A transformer as the runner sees it: the facts of its architecture, and parts borrowed from a loaded model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import Graph
from .memory import Shape


@dataclass(frozen=True, eq=False)
class Norm:
    """Layer norm (`centred`) or RMS norm over the last axis: weight * normalised + bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centred: bool

    def __call__(self, x: Tensor) -> Tensor:
        """[..., d_model] -> the same shape and dtype, computed in the wider of x's dtype and the weight's."""
        kind = self.weight.dtype
        if x.dtype != kind:
            kind = torch.promote_types(x.dtype, kind)
            bias = None if self.bias is None else self.bias.to(kind)
            return replace(self, weight=self.weight.to(kind), bias=bias)(x.to(kind)).to(x.dtype)
        if self.centred:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)

    def normalise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised x [..., d_model] before weight and bias, and 1 / its scale [..., 1]; at least float32."""
        x = at_least_float32(x)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        shrink = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * shrink, shrink


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map with its heads apart: weight [head, d_head, d_model], bias [head, d_head].

    Keys and values of grouped queries are stored once per group; `group` queries share one.
    """

    weight: Tensor
    bias: Tensor | None
    group: int = 1

    @property
    def head_weight(self) -> Tensor:
        """[query head, d_head, d_model]."""
        return self.weight if self.group == 1 else self.weight.repeat_interleave(self.group, dim=0)

    @property
    def head_bias(self) -> Tensor | None:
        """[query head, d_head]."""
        return self.bias if self.bias is None or self.group == 1 else self.bias.repeat_interleave(self.group, dim=0)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: attention reads `attention_norm` of the stream, the MLP reads `mlp_norm` of it.

    project   [..., d_model] -> q, k and v [..., head, d_head], one for every query head
    out       [d_model, head, d_head]; `out_bias` [d_model] belongs to no node
    mlp       the rest of the MLP node, a norm after it included
    window    how many positions attention sees, itself included; None for all
    turn      which of the model's rotary embeddings it uses
    q_norm, k_norm  norms of q and k, per head
    post_norm       the norm of all heads' outputs together, before they join the stream
    """

    attention_norm: Norm
    q: Projection
    k: Projection
    v: Projection
    project: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Norm
    mlp: Callable[[Tensor], Tensor]
    window: int | None = None
    turn: str | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    post_norm: Norm | None = None

    @property
    def device(self) -> torch.device:
        """Where its weights are, so where it runs."""
        return self.out.device

    @property
    def qkv(self) -> tuple[Projection, Projection, Projection]:
        """The three projections, in the order of the graph's destinations."""
        return self.q, self.k, self.v


@dataclass(frozen=True, eq=False)
class Transformer:
    """A whole model, whose layers may lie on several devices.

    What runs through a layer is moved to that layer's device, and what is kept of it stays there: so the large buffers
    of all sources are spread as the weights are. Everything else (batches, logits, scores) is on the first layer's.

    embed      tokens [batch, position] -> [batch, position, d_model]: the output of the node `input`
    positions  [position, d_model] learned position embeddings, which belong to no node; None if there are none
    rotary     (like, positions [batch, position], which) -> cos, sin [batch, position, turned]; None if there is none
    mlp_kept   how many numbers an MLP keeps of every position for a backward pass
    attention_cap, logit_cap  soft caps of attention scores and logits: cap * tanh(x / cap)
    """

    graph: Graph
    d_head: int
    layers: tuple[Layer, ...]
    embed: Callable[[Tensor], Tensor]
    positions: Tensor | None
    rotary: Callable[[Tensor, Tensor, str | None], tuple[Tensor, Tensor]] | None
    final_norm: Norm
    unembed: Tensor
    attention_scale: float
    max_length: int
    mlp_kept: int
    attention_cap: float | None = None
    logit_cap: float | None = None

    @property
    def device(self) -> torch.device:
        """Where batches are put, and logits come out."""
        return self.layers[0].device

    @property
    def spans(self) -> tuple[range, ...]:
        """The layers, in runs of those that follow each other on one device."""
        places = [layer.device for layer in self.layers]
        starts = [index for index, place in enumerate(places) if index == 0 or place != places[index - 1]]
        return tuple(range(*ends) for ends in zip(starts, [*starts[1:], len(places)], strict=True))

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Where its layers lie, each device once."""
        return tuple(dict.fromkeys(layer.device for layer in self.layers))

    @property
    def where(self) -> str:
        """The same, for people."""
        return ", ".join(map(str, self.devices))

    @property
    def norms_heads(self) -> bool:
        """Whether heads join the stream through a norm."""
        return self.layers[0].post_norm is not None

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self.unembed.dtype

    @property
    def shape(self) -> Shape:
        """What decides how much memory its batches need."""
        post_norm = any(layer.post_norm is not None for layer in self.layers)
        return Shape(self.graph, self.d_head, self.mlp_kept, self.dtype.itemsize, post_norm)


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """x squeezed smoothly between -cap and cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def at_least_float32(x: Tensor) -> Tensor:
    """x itself in float32 or float64, a float32 copy of anything narrower."""
    return x if x.dtype == torch.float64 else x.float()
