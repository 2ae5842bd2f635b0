"""A slow implementation, straight from the definitions: one example at a time, every destination with an input of its
own, HuggingFace's modules for everything inside a node. It shares no code with edgewise's runner.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Sources = dict[str, Tensor]
Read = Callable[[str, Sources], Tensor]


class SlowModel:
    """Runs a HuggingFace model node by node; `read(destination, sources so far)` says what a destination reads."""

    def __init__(self, loaded: torch.nn.Module) -> None:
        self.loaded = loaded
        self.config = loaded.config
        self.is_gpt2 = self.config.model_type == "gpt2"
        self.n_heads = self.config.num_attention_heads
        self.n_layers = self.config.num_hidden_layers

    def embed(self, tokens: list[int]) -> Tensor:
        body = self.loaded.transformer.wte if self.is_gpt2 else self.loaded.model.embed_tokens
        return body(torch.tensor(tokens))

    def constant(self, length: int, layers: int) -> Tensor:
        """What belongs to no node, in the stream before layer `layers`: positions and output biases."""
        total = torch.zeros(length, self.config.hidden_size, dtype=self.loaded.dtype)
        if self.is_gpt2:
            total = total + self.loaded.transformer.wpe.weight[:length]
        for layer in range(layers):
            bias = self._attention(layer)["bias"]
            total = total if bias is None else total + bias
        return total

    def run(self, embedding: Tensor, read: Read) -> tuple[Sources, Tensor]:
        """All sources [position, d_model], and the logits at the last position."""
        sources: Sources = {"input": embedding}
        for layer in range(self.n_layers):
            parts = self._attention(layer)
            written = {}
            for head in range(self.n_heads):
                q, k, v = (
                    self._project(parts, letter, head, parts["norm"](read(f"a{layer}.h{head}<{letter}>", sources)))
                    for letter in "qkv"
                )
                written[f"a{layer}.h{head}"] = self._head(layer, q, k, v) @ parts["out"][head]
            sources |= written
            sources[f"m{layer}"] = parts["mlp"](parts["mlp_norm"](read(f"m{layer}", sources)))
        final = self.loaded.transformer.ln_f if self.is_gpt2 else self.loaded.model.norm
        return sources, self.loaded.lm_head(final(read("logits", sources)))[-1]

    def _attention(self, layer: int) -> dict:
        if self.is_gpt2:
            block = self.loaded.transformer.h[layer]
            width = self.config.hidden_size
            q, k, v = block.attn.c_attn.weight.split(width, 1)
            biases = block.attn.c_attn.bias.split(width)
            return {
                "norm": block.ln_1, "mlp_norm": block.ln_2, "mlp": block.mlp, "bias": block.attn.c_proj.bias,
                "weights": dict(zip("qkv", (q, k, v), strict=True)), "biases": dict(zip("qkv", biases, strict=True)),
                "out": block.attn.c_proj.weight.split(width // self.n_heads, 0),
            }  # fmt: skip
        block = self.loaded.model.layers[layer]
        attention = block.self_attn
        modules = {letter: getattr(attention, f"{letter}_proj") for letter in "qkv"}
        return {
            "norm": block.input_layernorm, "mlp_norm": block.post_attention_layernorm, "mlp": block.mlp,
            "bias": attention.o_proj.bias,
            "weights": {letter: module.weight.T for letter, module in modules.items()},
            "biases": {letter: module.bias for letter, module in modules.items()},
            "out": attention.o_proj.weight.T.split(self.d_head, 0),
        }  # fmt: skip

    @property
    def d_head(self) -> int:
        return getattr(self.config, "head_dim", None) or self.config.hidden_size // self.n_heads

    def _project(self, parts: dict, letter: str, head: int, normed: Tensor) -> Tensor:
        heads = self.n_heads if letter == "q" else getattr(self.config, "num_key_value_heads", self.n_heads)
        own = head * heads // self.n_heads
        columns = slice(own * self.d_head, (own + 1) * self.d_head)
        result = normed @ parts["weights"][letter][:, columns]
        bias = parts["biases"][letter]
        return result if bias is None else result + bias[columns]

    def _head(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = len(q)
        if not self.is_gpt2:
            cos, sin = self.loaded.model.rotary_emb(q[None], torch.arange(length)[None])
            q, k = (
                x * cos[0] + torch.cat([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1) * sin[0] for x in (q, k)
            )
        scores = q @ k.T / self.d_head**0.5
        window = getattr(self.config, "sliding_window", None)
        for row in range(length):
            for column in range(length):
                if column > row or (window is not None and row - column >= window):
                    scores[row, column] = -torch.inf
        return scores.softmax(-1) @ v

    # What a destination reads.

    def layer_of(self, destination: str) -> int:
        """How many layers' output biases the stream at a destination holds."""
        if destination == "logits":
            return self.n_layers
        layer = int(destination[1:].split(".")[0])
        return layer + 1 if destination.startswith("m") else layer

    def everything(self, destination: str, sources: Sources) -> Tensor:
        """The stream as the model has it: all sources so far."""
        length = len(sources["input"])
        return self.constant(length, self.layer_of(destination)) + sum(sources.values())

    def circuit(self, inside: set[str], reference: Sources) -> Read:
        """In-circuit sources as they are in this run, all others as in the reference."""

        def read(destination: str, sources: Sources) -> Tensor:
            chosen = [now if f"{name}->{destination}" in inside else reference[name] for name, now in sources.items()]
            return self.constant(len(sources["input"]), self.layer_of(destination)) + sum(chosen)

        return read


def slow_scores(
    slow: SlowModel, clean: list[int], corrupted: list[int], answers: tuple[int, int], steps: int | None
) -> dict[str, float]:
    """EAP (steps None) or EAP-IG scores of one example, edge by edge, with a separate input for every destination."""
    z_clean, _ = slow.run(slow.embed(clean), slow.everything)
    z_corrupted, _ = slow.run(slow.embed(corrupted), slow.everything)
    start, end = slow.embed(corrupted), slow.embed(clean)
    points = [end] if steps is None else [start + (k / steps) * (end - start) for k in range(steps)]
    totals: dict[str, float] = {}
    for point in points:
        inputs: dict[str, Tensor] = {}
        senders: dict[str, list[str]] = {}

        def read(destination: str, sources: Sources, inputs=inputs, senders=senders) -> Tensor:
            # A tensor of its own for every reader, so that its gradient is that reader's alone.
            inputs[destination] = (slow.everything(destination, sources) + 0.0).requires_grad_()
            inputs[destination].retain_grad()
            senders[destination] = list(sources)
            return inputs[destination]

        _, logits = slow.run(point.detach().requires_grad_(), read)
        loss = -(logits[answers[0]] - logits[answers[1]])
        gradients = torch.autograd.grad(loss, list(inputs.values()))
        for destination, gradient in zip(inputs, gradients, strict=True):
            for source in senders[destination]:
                value = ((z_corrupted[source] - z_clean[source]) * gradient).sum().item() / len(points)
                name = f"{source}->{destination}"
                totals[name] = totals.get(name, 0.0) + value
    return totals
