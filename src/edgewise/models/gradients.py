"""Gradients at all destinations, and their products with differences of the sources: the scores of all edges at once.

A head's q, k or v reads the stream through a norm and a projection. A separate input for every destination would need
one copy of the stream per head. Instead, autograd stops at q, k and v ([d_head] instead of [d_model]), and linear
algebra does the rest. Let x^ be the normalised stream, 1/s the norm's inverse scale, W the projection with the norm's
weight folded in, and g the gradient at q. The gradient at the stream is

    (W^T g - mean(W^T g) - x^ mean(W^T g * x^)) / s            (without the first mean for an RMS norm)

and mean(W^T g * x^) = g . (W x^) / d_model, which needs no vector of length d_model per head. So runs are summed as
g / s, with one number per head and run for the component along x^, before a single product with W. Centring the rows
of W has the same effect as subtracting the first mean. If a rule makes 1/s a constant, there is no component along x^.

A norm over the outputs of all heads (OLMo-2) has the same form: q = w W x / s with s the scale of all heads' outputs
y = V x, and w the norm's weight. The gradient at the stream is W^T (w g) / s - V^T (y / s) (g . q) / (s size of y).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .forward import Trace, sum_heads
from .rules import BackwardRules
from .transformer import Layer, Projection, Transformer, at_least_float32

# [batch, source, position, d_model] of all sources: one tensor for every span of layers, on the device of the span.
Differences = tuple[Tensor, ...]
# A range of positions, the span of tokens that they belong to, and the examples of which this is true; None for all.
Segment = tuple[slice, int, Sequence[int] | None]
# By layer with a norm after attention, its normalised input (None if its scale is a constant) and its inverse scale.
PostNorms = dict[int, tuple[Tensor | None, Tensor]]


@dataclass(frozen=True, eq=False)
class AttentionGradient:
    """The gradient at one layer's q, k and v, of one run or summed over several.

    scaled      [batch, position, 3, head, d_head] gradient at q, k, v divided by the norm's scale
    along       per run and norm, [batch, position, 3, head] the component along `normalised`; none if norm scales are
                constants
    normalised  for each of `along`, [batch, position, d_model] the normalised stream; for a norm over all heads, the
                gradient of the size of their outputs
    """

    scaled: Tensor
    along: tuple[Tensor, ...]
    normalised: tuple[Tensor, ...]

    def plus(self, other: AttentionGradient) -> AttentionGradient:
        """Return the sum of both."""
        return AttentionGradient(
            self.scaled + other.scaled, self.along + other.along, self.normalised + other.normalised
        )


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradient at all destinations, at least float32, of one run or summed over several.

    attention   per layer, or of the first layers only
    mlp         for the same layers, [batch, position, d_model]
    logits      [batch, position, d_model]; None if there is only the gradient at the first layers
    post_norms  of this run
    """

    attention: tuple[AttentionGradient, ...]
    mlp: tuple[Tensor, ...]
    logits: Tensor | None
    post_norms: PostNorms

    def without_layer(self, layer: int, before: Gradients | None = None) -> Gradients:
        """Return the gradients with 0 at a layer's destinations and those of `before` at the layers before it."""
        attention = () if before is None else before.attention
        mlp = () if before is None else before.mlp
        dropped = AttentionGradient(torch.zeros_like(self.attention[layer].scaled), (), ())
        return Gradients(
            (*attention, dropped, *self.attention[layer + 1 :]),
            (*mlp, torch.zeros_like(self.mlp[layer]), *self.mlp[layer + 1 :]),
            self.logits,
            self.post_norms,
        )


def destination_gradients(model: Transformer, trace: Trace, loss: Tensor) -> Gradients:
    """Return the gradient of `loss` (a sum over examples) at every destination's input, for the run of `trace`."""
    n = model.graph.n_layers
    *at_layers, logits = torch.autograd.grad(loss, [*_targets(trace, n), trace.final], materialize_grads=True)
    return _scale_gradients(model, trace, at_layers, logits)


def dropped_layer_gradients(model: Transformer, trace: Trace, loss: Tensor) -> Iterator[Gradients]:
    """Yield the gradients of `loss` at all destinations, then those before each layer but the first, last layer first.

    The latter are the gradients at the destinations of earlier layers if no gradient reaches this layer's outputs, so
    that it passes the stream's gradient on unchanged. At the layer itself they are 0, and in later layers unchanged.
    """
    n = model.graph.n_layers
    targets = [*_targets(trace, n), trace.final, *trace.attention_in[1:]]
    gradients = torch.autograd.grad(loss, targets, materialize_grads=True, retain_graph=True)
    at_streams = [*gradients[4 * n + 1 :], gradients[4 * n]]  # after each layer
    yield _scale_gradients(model, trace, gradients[: 4 * n], gradients[4 * n])
    del gradients
    for index in reversed(range(1, n)):
        stream = trace.attention_in[index]
        gradient = at_streams.pop().to(stream.device)
        at_layers = torch.autograd.grad(
            stream, _targets(trace, index), gradient, retain_graph=index > 1, materialize_grads=True
        )
        yield _scale_gradients(model, trace, at_layers, None)


def _targets(trace: Trace, n_layers: int) -> list[Tensor]:
    """Return q, k, v and the MLP's input of the first layers: all destinations but the logits."""
    return [tensor for name in ("q", "k", "v", "mlp_in") for tensor in getattr(trace, name)[:n_layers]]


def _scale_gradients(model: Transformer, trace: Trace, at_layers: Sequence[Tensor], logits: Tensor | None) -> Gradients:
    """Return the gradients at destinations from those at `_targets` and at the final stream."""
    n = len(at_layers) // 4
    attention = tuple(_scale_gradient(model, index, trace, at_layers[index : 3 * n : n]) for index in range(n))
    mlp = tuple(at_least_float32(gradient) for gradient in at_layers[3 * n :])
    last = None if logits is None else at_least_float32(logits)
    return Gradients(attention, mlp, last, _post_norms(model, trace, trace.rules))


def _post_norms(model: Transformer, trace: Trace, rules: BackwardRules) -> PostNorms:
    """Return, by layer with a norm after attention, that norm's normalised input and inverse scale."""
    post_norms: PostNorms = {}
    with torch.no_grad():
        for index, layer in enumerate(model.layers):
            if layer.post_norm is not None:
                normalised, inverse_scale = layer.post_norm.normalise(sum_heads(layer, trace.mix[index]))
                post_norms[index] = (None if rules.detach_norm_scales else normalised, inverse_scale)
    return post_norms


def _scale_gradient(model: Transformer, index: int, trace: Trace, at_qkv: Sequence[Tensor]) -> AttentionGradient:
    """Return a layer's gradient from the gradients [batch, position, head, d_head] at q, k and v."""
    layer = model.layers[index]
    with torch.no_grad():
        gradient = at_least_float32(torch.stack(list(at_qkv), 2))
        if layer.attention_norm is None:
            return _scale_by_head_norms(layer, index, trace, gradient)
        normalised, inverse_scale = layer.attention_norm.normalise(trace.attention_in[index])
        scaled = gradient * inverse_scale[..., None, None]
        if trace.rules.detach_norm_scales:
            return AttentionGradient(scaled, (), ())
        # W x^ is q, k or v without the parts that come from the biases of the norm and the projection.
        offsets = [projection.offset(layer.attention_norm) for projection in layer.qkv]
        values = [at_least_float32(x) for x in (trace.q[index], trace.k[index], trace.v[index])]
        linear = [x if offset is None else x - offset for x, offset in zip(values, offsets, strict=True)]
        along = (gradient * torch.stack(linear, 2)).sum(-1) * (inverse_scale[..., None] / model.graph.d_model)
        return AttentionGradient(scaled, (along,), (normalised,))


def _scale_by_head_norms(layer: Layer, index: int, trace: Trace, gradient: Tensor) -> AttentionGradient:
    """Return the gradient of a layer whose q and k may have norms over all heads, and whose stream is not normed.

    gradient  [batch, position, 3, head, d_head] at q, k and v after these norms
    """
    stream, scaled = at_least_float32(trace.attention_in[index]), gradient.clone()
    along, directions = [], []
    for letter, (projection, values) in enumerate(zip(layer.qkv, (trace.q, trace.k, trace.v), strict=True)):
        if projection.norm is None:
            continue
        weight = at_least_float32(projection.weight)
        bias = None if projection.bias is None else at_least_float32(projection.bias).flatten()
        outputs, inverse_scale = projection.norm.normalise(F.linear(stream, weight.flatten(0, 1), bias))
        scaled[:, :, letter] *= projection.head_norm_weight * inverse_scale[..., None]
        if not trace.rules.detach_norm_scales:
            component = torch.zeros_like(gradient[..., 0])
            component[:, :, letter] = (gradient[:, :, letter] * values[index]).sum(-1) * inverse_scale
            along.append(component / outputs.shape[-1])
            directions.append(outputs @ weight.flatten(0, 1))
    return AttentionGradient(scaled, tuple(along), tuple(directions))


def source_differences(model: Transformer, clean: Trace, corrupted: Trace) -> Differences:
    """Return each source's output in the corrupted run minus that in the clean run, at least float32."""

    def subtract(name: str, index: int | None) -> Tensor:
        a, b = (getattr(run, name) if index is None else getattr(run, name)[index] for run in (corrupted, clean))
        # The runs are similar, so a half-precision difference would have few digits.
        return at_least_float32(a) - at_least_float32(b)

    return _stack_sources(model, clean, subtract)


def source_outputs(model: Transformer, trace: Trace) -> Differences:
    """Return what each source adds to the stream in a run, at least float32.

    A norm after attention divides all heads by the same scale, so each head adds a part of its own.
    """

    def output(name: str, index: int | None) -> Tensor:
        return at_least_float32(getattr(trace, name) if index is None else getattr(trace, name)[index])

    outputs = _stack_sources(model, trace, output)
    if not model.has_post_norm:
        return outputs
    return _apply_post_norms(model, outputs, _post_norms(model, trace, BackwardRules(detach_norm_scales=True)))


def _stack_sources(model: Transformer, like: Trace, output: Callable[[str, int | None], Tensor]) -> Differences:
    """Return values of all sources. `output` gives those of `embedding`, or of `mix` or `mlp_out` of a layer."""
    graph, (batch, length, width) = model.graph, like.embedding.shape
    dtype = at_least_float32(like.embedding[:1, :1]).dtype
    parts = []
    with torch.no_grad():
        for first, span in zip(_first_sources(model), model.spans, strict=True):
            layers = [model.layers[index] for index in span]
            count = graph.attention_sources(span.stop - 1) + graph.n_heads + 1 - first
            part = torch.empty((batch, count, length, width), dtype=dtype, device=layers[0].device)
            if first == 0:
                part[:, 0] = output("embedding", None)
            for index, layer in zip(span, layers, strict=True):
                start = graph.attention_sources(index) - first
                heads = torch.einsum("bphe,dhe->bhpd", output("mix", index), at_least_float32(layer.out))
                part[:, start : start + graph.n_heads] = heads
                part[:, start + graph.n_heads] = output("mlp_out", index)
            parts.append(part)
    return tuple(parts)


def _first_sources(model: Transformer) -> list[int]:
    """Return the first source of every span of layers; `input` belongs to the first span."""
    return [model.graph.attention_sources(span.start) if index else 0 for index, span in enumerate(model.spans)]


@dataclass(frozen=True, eq=False)
class Segments:
    """The positions of a batch by the span of tokens that they belong to.

    n_spans  the number of spans
    parts    ranges of adjacent positions of one span; padding is in none
    """

    n_spans: int
    parts: tuple[Segment, ...]


def find_segments(spans: Tensor, n_spans: int) -> Segments:
    """Return the segments of a batch with these spans [batch, position]; -1 stands for padding."""
    rows: dict[tuple[int, int, int], list[int]] = {}
    for row, indices in enumerate(spans.tolist()):
        for span, run in itertools.groupby(range(len(indices)), indices.__getitem__):
            positions = list(run)
            if span >= 0:
                rows.setdefault((positions[0], positions[-1] + 1, span), []).append(row)
    return Segments(
        n_spans,
        tuple(
            (slice(start, stop), span, None if len(examples) == len(spans) else examples)
            for (start, stop, span), examples in rows.items()
        ),
    )


def contract(
    model: Transformer, differences: Differences, runs: Iterable[Gradients], segments: Segments | None = None
) -> Tensor:
    """Return the scores [batch, edge]: source difference times destination gradient, summed over positions.

    With `segments`, positions are summed by span: the scores are [batch, pair] of (edge, span) pairs.

    Scores are the mean over runs. A generator of runs needs the memory of one run and of their sum. If a norm follows
    attention, a head's difference reaches its readers through a linear map that differs between runs, so each run is
    contracted alone.
    """
    if not model.has_post_norm:
        summed, count = _sum_runs(runs)
        return _contract_gradients(model, differences, summed, segments).div_(count)
    total, count = torch.zeros((), device=model.device), 0
    for run in runs:
        normed = _apply_post_norms(model, differences, run.post_norms)
        total = total + _contract_gradients(model, normed, run, segments)
        count += 1
    return total / count


def contract_outputs(
    model: Transformer, differences: Differences, runs: Iterable[Gradients], by_dimension: bool = False
) -> Tensor:
    """Return the scores [batch, source] of nodes: output difference times gradient at the output, the mean over runs.

    The gradient at a node's output is the sum of the gradients at all destinations that read it. So a node's score is
    the sum of the scores of its out-edges. `by_dimension` keeps the terms of the product's sum over d_model apart:
    [batch, source, d_model], the scores of neurons.

    If a norm follows attention, the output of a head is what it adds before the norm, and the gradient passes the norm.
    """
    if not model.has_post_norm:
        summed, count = _sum_runs(runs)
        return _contract_output_gradients(model, differences, summed, by_dimension).div_(count)
    total, count = torch.zeros((), device=model.device), 0
    for run in runs:
        total = total + _contract_output_gradients(model, differences, run, by_dimension)
        count += 1
    return total / count


def _contract_output_gradients(
    model: Transformer, differences: Differences, gradients: Gradients, by_dimension: bool
) -> Tensor:
    """Return the products [batch, source], or with `by_dimension` [batch, source, d_model]."""
    first_part = differences[0]
    shape = (len(first_part), model.graph.n_sources) + (model.graph.d_model,) * by_dimension
    scores = torch.zeros(shape, dtype=first_part.dtype, device=first_part.device)
    equation = "bspd,bpd->bsd" if by_dimension else "bspd,bpd->bs"
    starts = _first_sources(model)
    with torch.no_grad():
        for sources, gradient in _output_gradients(model, gradients):
            part = max(index for index, start in enumerate(starts) if start <= sources.start)
            start, values = starts[part], differences[part]
            outputs = values[:, sources.start - start : sources.stop - start]
            scores[:, sources] = torch.einsum(equation, outputs, gradient.to(values.device)).to(scores.device)
    return scores


def _output_gradients(model: Transformer, gradients: Gradients) -> Iterator[tuple[slice, Tensor]]:
    """Yield sources and the gradient [batch, position, d_model] at the output of each, from the last layer to `input`.

    It walks down the stream and adds the gradient of every destination that it passes. The sources of layers without
    gradients are left out if there is no gradient at the logits.
    """
    graph, n_layers = model.graph, len(gradients.mlp)
    stream = torch.zeros_like(gradients.mlp[-1]) if gradients.logits is None else gradients.logits
    for index in reversed(range(n_layers)):
        heads, mlp = graph.attention_sources(index), graph.mlp_source(index)
        at_mlp = gradients.mlp[index]
        yield slice(mlp, mlp + 1), stream
        stream = stream.to(at_mlp.device)
        after_attention = stream if graph.parallel else stream + at_mlp
        yield slice(heads, heads + graph.n_heads), _through_post_norm(model, index, after_attention, gradients)
        stream = stream + at_mlp + _attention_stream_gradient(model, index, gradients.attention[index])
    yield slice(0, 1), stream


def _through_post_norm(model: Transformer, index: int, gradient: Tensor, gradients: Gradients) -> Tensor:
    """Return the gradient before the norm that follows attention, if there is one."""
    norm = model.layers[index].post_norm
    if norm is None:
        return gradient
    normalised, inverse_scale = gradients.post_norms[index]
    scaled = gradient * inverse_scale * at_least_float32(norm.weight)
    if normalised is not None:
        scaled = scaled - normalised * (scaled * normalised).mean(-1, keepdim=True)
    return scaled - scaled.mean(-1, keepdim=True) if norm.centred else scaled


def _attention_stream_gradient(model: Transformer, index: int, gradient: AttentionGradient) -> Tensor:
    """Return the gradient [batch, position, d_model] at the stream of a layer's attention, summed over its readers."""
    layer = model.layers[index]
    total = torch.zeros((), device=gradient.scaled.device)
    for letter, projection in enumerate(layer.qkv):
        weight = _fold_centred_norm(layer, projection)
        total = total + torch.einsum("bphe,hed->bpd", gradient.scaled[:, :, letter], weight)
    for along, normalised in zip(gradient.along, gradient.normalised, strict=True):
        total = total - along.sum((2, 3))[..., None] * normalised
    return total


def _sum_runs(runs: Iterable[Gradients]) -> tuple[Gradients, int]:
    """Return the sum of the gradients of runs, and their number; each partial sum is freed when the next exists."""
    attention: list[AttentionGradient] = []
    others: list[Tensor] = []
    count = 0
    n_layers = 0
    for run in runs:
        tensors = run.mlp if run.logits is None else (*run.mlp, run.logits)
        if not count:
            attention, others, n_layers = list(run.attention), list(tensors), len(run.mlp)
        else:
            for index, gradient in enumerate(run.attention):
                attention[index] = attention[index].plus(gradient)
            for index, tensor in enumerate(tensors):
                others[index] = others[index] + tensor
        count += 1
    logits = others[n_layers] if len(others) > n_layers else None
    return Gradients(tuple(attention), tuple(others[:n_layers]), logits, {}), count


def _apply_post_norms(model: Transformer, differences: Differences, post_norms: PostNorms) -> Differences:
    """Return the differences with those of heads after the norm that follows attention, to first order, in one run."""
    normed = tuple(part.clone() for part in differences)
    for start, span, part, normed_part in zip(_first_sources(model), model.spans, differences, normed, strict=True):
        for index in span:
            (normalised, inverse_scale), norm = post_norms[index], model.layers[index].post_norm
            assert norm is not None
            first = model.graph.attention_sources(index) - start
            heads = part[:, first : first + model.graph.n_heads]
            if norm.centred:
                heads = heads - heads.mean(-1, keepdim=True)
            if normalised is not None:
                along = (heads * normalised[:, None]).mean(-1, keepdim=True)
                heads = heads - normalised[:, None] * along
            scaled = heads * inverse_scale[:, None] * at_least_float32(norm.weight)
            normed_part[:, first : first + model.graph.n_heads] = scaled
    return normed


def _contract_gradients(
    model: Transformer, differences: Differences, gradients: Gradients, segments: Segments | None
) -> Tensor:
    """Return the products [batch, edge] of differences with gradients; [batch, pair] with segments."""
    graph, first_part = model.graph, differences[0]
    shape = (len(first_part), graph.n_edges, 1 if segments is None else segments.n_spans)
    scores = torch.zeros(shape, dtype=first_part.dtype, device=first_part.device)
    with torch.no_grad():
        for index in range(len(gradients.attention)):
            attention_block, mlp_block = graph.blocks[2 * index : 2 * index + 2]
            at_stream = _stream_gradient(model, index, gradients.attention[index])
            block = _multiply_sources(differences, graph.attention_sources(index), at_stream, segments)
            del at_stream  # free it before the next layer's, which is as large
            # [source, (qkv, head), span] -> [source, head, qkv, span], the order of edges
            scores[:, attention_block] = block.unflatten(2, (3, graph.n_heads)).transpose(2, 3).flatten(1, 3)
            mlp = gradients.mlp[index].unsqueeze(1)
            scores[:, mlp_block] = _multiply_sources(differences, graph.mlp_sources(index), mlp, segments).squeeze(2)
        if gradients.logits is not None:
            logits = gradients.logits.unsqueeze(1)
            scores[:, graph.blocks[-1]] = _multiply_sources(differences, graph.n_sources, logits, segments).squeeze(2)
    return scores.flatten(1)


def _multiply_sources(differences: Differences, n_sources: int, gradient: Tensor, segments: Segments | None) -> Tensor:
    """Return the products [batch, source, reader, span] with gradients [batch, reader, position, d_model].

    Without segments, there is one span of all positions. Gradients are moved to the device of the differences, which
    are larger.
    """
    blocks = []
    for part in differences:
        if n_sources > 0:
            sources, moved = part[:, :n_sources], gradient.to(part.device)
            if segments is None:
                products = (sources.flatten(2) @ moved.flatten(2).transpose(1, 2)).unsqueeze(-1)
            else:
                products = _multiply_segments(sources, moved, segments)
            blocks.append(products.to(differences[0].device))
        n_sources -= part.shape[1]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)


def _multiply_segments(sources: Tensor, gradient: Tensor, segments: Segments) -> Tensor:
    """Return the products [batch, source, reader, span] by span.

    Adjacent positions of an example are one matrix without a copy, so all spans together cost as much as one product
    over all positions.
    """
    shape = (len(sources), segments.n_spans, sources.shape[1], gradient.shape[1])
    products = sources.new_zeros(shape)
    for positions, span, rows in segments.parts:
        if rows is None:
            reads = gradient[:, :, positions].flatten(2).transpose(1, 2)
            products[:, span].baddbmm_(sources[:, :, positions].flatten(2), reads)
        else:
            for row in rows:
                reads = gradient[row, :, positions].flatten(1).T
                products[row, span].addmm_(sources[row, :, positions].flatten(1), reads)
    return products.permute(0, 2, 3, 1)


def _stream_gradient(model: Transformer, index: int, gradient: AttentionGradient) -> Tensor:
    """Return the gradient [batch, (qkv, head), position, d_model] at the stream that a layer's attention reads."""
    layer, (batch, length, _, n_heads, _) = model.layers[index], gradient.scaled.shape
    at_stream = gradient.scaled.new_empty((batch, 3, n_heads, length, model.graph.d_model))
    along = (torch.stack(gradient.along, -1), torch.stack(gradient.normalised, 1)) if gradient.along else None
    # One projection at a time: all three together would need several copies of hundreds of megabytes for wide models.
    for letter, projection in enumerate(layer.qkv):
        at_stream[:, letter] = torch.einsum(
            "bphe,hed->bhpd", gradient.scaled[:, :, letter], _fold_centred_norm(layer, projection)
        )
        if along is not None:
            at_stream[:, letter] -= torch.einsum("bphr,brpd->bhpd", along[0][:, :, letter], along[1])
    return at_stream.flatten(1, 2)


def _fold_centred_norm(layer: Layer, projection: Projection) -> Tensor:
    """Return a projection's weight [head, d_head, d_model] times the norm's weight, centred if the norm centres."""
    weight, norm = at_least_float32(projection.head_weight), layer.attention_norm
    if norm is None:
        return weight
    weight = weight * norm.weight
    return weight - weight.mean(-1, keepdim=True) if norm.centred else weight
