"""A slow implementation, straight from the definitions: one example at a time, every destination with an input of its
own, HuggingFace's modules for everything inside a node. It shares no code with edgewise's runner.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor

Sources = dict[str, Tensor]
Read = Callable[[str, Sources], Tensor]


class SlowModel:
    """Runs a HuggingFace model node by node; `read(destination, sources so far)` says what a destination reads."""

    def __init__(self, loaded: torch.nn.Module) -> None:
        self.loaded = loaded
        self.config = config = loaded.config
        self.kind = config.model_type
        self.n_heads, self.n_layers = config.num_attention_heads, config.num_hidden_layers
        self.d_head = getattr(config, "head_dim", None) or config.hidden_size // self.n_heads
        self.is_gemma = self.kind.startswith("gemma")
        self.parallel = self.kind == "gpt_neox" and config.use_parallel_residual
        self.body = {"gpt2": "transformer", "gpt_neox": "gpt_neox"}.get(self.kind, "model")
        self.body = getattr(loaded, self.body)
        self.blocks = [self._block(layer) for layer in range(self.n_layers)]

    def embed(self, tokens: list[int]) -> Tensor:
        module = {"gpt2": "wte", "gpt_neox": "embed_in"}.get(self.kind, "embed_tokens")
        return getattr(self.body, module)(torch.tensor(tokens))

    def run(self, embedding: Tensor, read: Read) -> tuple[Sources, Tensor]:
        """All sources [position, d_model], and the logits at the last position."""
        sources: Sources = {"input": embedding}
        for layer, block in enumerate(self.blocks):
            before, written = dict(sources), {}
            for head in range(self.n_heads):
                q, k, v = (
                    self._project(block, letter, head, block.norm(read(f"a{layer}.h{head}<{letter}>", before)))
                    for letter in "qkv"
                )
                written[f"a{layer}.h{head}"] = self._head(layer, q, k, v) @ block.out[head]
            sources |= written
            mlp = block.mlp(block.mlp_norm(read(f"m{layer}", before if self.parallel else dict(sources))))
            sources[f"m{layer}"] = block.after_mlp(mlp)
        final = {"gpt2": "ln_f", "gpt_neox": "final_layer_norm"}.get(self.kind, "norm")
        logits = self._unembed()(getattr(self.body, final)(read("logits", dict(sources))))[-1]
        cap = getattr(self.config, "final_logit_softcapping", None)
        return sources, logits if cap is None else torch.tanh(logits / cap) * cap

    def _unembed(self) -> torch.nn.Module:
        return self.loaded.embed_out if hasattr(self.loaded, "embed_out") else self.loaded.lm_head

    def _block(self, layer: int) -> SimpleNamespace:
        width, d_head = self.config.hidden_size, self.d_head
        same = torch.nn.Identity()
        if self.kind == "gpt2":
            block = self.body.h[layer]
            attention = block.attn
            weights = dict(zip("qkv", attention.c_attn.weight.split(width, 1), strict=True))
            biases = dict(zip("qkv", attention.c_attn.bias.split(width), strict=True))
            out, bias = attention.c_proj.weight, attention.c_proj.bias
            norms = (block.ln_1, block.ln_2, same, same)
        elif self.kind == "gpt_neox":
            block = self.body.layers[layer]
            fused = block.attention.query_key_value
            rows = torch.arange(3 * width).view(self.n_heads, 3, d_head)
            weights = {letter: fused.weight[rows[:, i].flatten()].T for i, letter in enumerate("qkv")}
            biases = {letter: fused.bias[rows[:, i].flatten()] for i, letter in enumerate("qkv")}
            out, bias = block.attention.dense.weight.T, block.attention.dense.bias
            norms = (block.input_layernorm, block.post_attention_layernorm, same, same)
        else:
            block = self.body.layers[layer]
            modules = {letter: getattr(block.self_attn, f"{letter}_proj") for letter in "qkv"}
            weights = {letter: module.weight.T for letter, module in modules.items()}
            biases = {letter: module.bias for letter, module in modules.items()}
            out, bias = block.self_attn.o_proj.weight.T, block.self_attn.o_proj.bias
            norms = (block.input_layernorm, block.post_attention_layernorm, same, same)
            if self.is_gemma:
                norms = (block.input_layernorm, block.pre_feedforward_layernorm,
                         block.post_attention_layernorm, block.post_feedforward_layernorm)  # fmt: skip
        return SimpleNamespace(
            weights=weights, biases=biases, out=out.split(d_head, 0), bias=bias, mlp=block.mlp,
            norm=norms[0], mlp_norm=norms[1], after_attention=norms[2], after_mlp=norms[3],
            q_norm=getattr(getattr(block, "self_attn", None), "q_norm", same),
            k_norm=getattr(getattr(block, "self_attn", None), "k_norm", same),
        )  # fmt: skip

    def _project(self, block: SimpleNamespace, letter: str, head: int, normed: Tensor) -> Tensor:
        stored = block.weights[letter].shape[1] // self.d_head
        own = head * stored // self.n_heads
        columns = slice(own * self.d_head, (own + 1) * self.d_head)
        result = normed @ block.weights[letter][:, columns]
        bias = block.biases[letter]
        return result if bias is None else result + bias[columns]

    def _head(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length, config, block = len(q), self.config, self.blocks[layer]
        kinds = getattr(config, "layer_types", None)
        q, k = block.q_norm(q), block.k_norm(k)
        if self.kind != "gpt2":
            which = (kinds[layer],) if self.kind == "gemma3_text" else ()
            cos, sin = (part[0] for part in self.body.rotary_emb(q[None], torch.arange(length)[None], *which))
            q, k = (self._turn(x, cos, sin) for x in (q, k))
        scale = config.query_pre_attn_scalar if self.is_gemma else self.d_head
        scores = q @ k.T / scale**0.5
        cap = getattr(config, "attn_logit_softcapping", None)
        scores = scores if cap is None else torch.tanh(scores / cap) * cap
        window = getattr(config, "sliding_window", None)
        if kinds is not None and kinds[layer] != "sliding_attention":
            window = None
        blocked = torch.zeros(length, length, dtype=torch.bool)
        for row in range(length):
            for column in range(length):
                blocked[row, column] = column > row or (window is not None and row - column >= window)
        return scores.masked_fill(blocked, -torch.inf).softmax(-1) @ v

    @staticmethod
    def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = cos.shape[-1]
        part, rest = x[:, :size], x[:, size:]
        half = torch.cat([-part[:, size // 2 :], part[:, : size // 2]], 1)
        return torch.cat([part * cos + half * sin, rest], 1)

    # What a destination reads.

    def combine(self, destination: str, outputs: Sources) -> Tensor:
        """The stream at a destination, made of the outputs of all sources before it."""
        length = len(outputs["input"])
        stream = torch.zeros(length, self.config.hidden_size, dtype=self.loaded.dtype)
        if self.kind == "gpt2":
            stream = stream + self.body.wpe.weight[:length]
        stream = stream + sum(output for name, output in outputs.items() if not name.startswith("a"))
        for layer, block in enumerate(self.blocks):
            heads = [output for name, output in outputs.items() if name.startswith(f"a{layer}.")]
            if heads:  # what belongs to no node, the output bias, comes with them
                joined = sum(heads) if block.bias is None else sum(heads) + block.bias
                stream = stream + block.after_attention(joined)
        return stream

    def circuit(self, inside: set[str], reference: Sources) -> Read:
        """In-circuit sources as they are in this run, all others as in the reference."""

        def read(destination: str, sources: Sources) -> Tensor:
            chosen = {
                name: now if f"{name}->{destination}" in inside else reference[name] for name, now in sources.items()
            }
            return self.combine(destination, chosen)

        return read


def slow_scores(
    slow: SlowModel, clean: list[int], corrupted: list[int], answers: tuple[int, int], steps: int | None
) -> dict[str, float]:
    """EAP (steps None) or EAP-IG scores of one example, edge by edge, with a separate tensor for every edge."""
    z_clean, _ = slow.run(slow.embed(clean), slow.combine)
    z_corrupted, _ = slow.run(slow.embed(corrupted), slow.combine)
    start, end = slow.embed(corrupted), slow.embed(clean)
    points = [end] if steps is None else [start + (k / steps) * (end - start) for k in range(steps)]
    totals: dict[str, float] = {}
    for point in points:
        carried: dict[str, Tensor] = {}

        def read(destination: str, sources: Sources, carried=carried) -> Tensor:
            # What an edge carries is a tensor of its own, so that its gradient is that edge's alone.
            own = {name: output + 0.0 for name, output in sources.items()}
            carried.update({f"{name}->{destination}": output for name, output in own.items()})
            return slow.combine(destination, own)

        _, logits = slow.run(point.detach().requires_grad_(), read)
        loss = -(logits[answers[0]] - logits[answers[1]])
        for name, gradient in zip(carried, torch.autograd.grad(loss, list(carried.values())), strict=True):
            source = name.split("->")[0]
            value = ((z_corrupted[source] - z_clean[source]) * gradient).sum().item() / len(points)
            totals[name] = totals.get(name, 0.0) + value
    return totals
