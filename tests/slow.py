"""A slow implementation, straight from the definitions: one example at a time, every destination with an input of its
own, HuggingFace's modules for everything inside a node. It shares no code with edgewise's runner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

Sources = dict[str, Tensor]
Read = Callable[[str, Sources], Tensor]


class SlowModel:
    """Runs a HuggingFace model node by node; `read(destination, sources so far)` says what a destination reads.

    rules  what differs in the backward pass: norms, activations, gates, patterns, matmuls, softmax-2, softmax-lrp
    """

    def __init__(self, loaded: torch.nn.Module, rules: str = "") -> None:
        self.loaded, self.rules = loaded, set(rules.split())
        self.config = config = loaded.config
        self.kind = config.model_type
        self.n_heads, self.n_layers = config.num_attention_heads, config.num_hidden_layers
        self.d_head = getattr(config, "head_dim", None) or config.hidden_size // self.n_heads
        self.is_gemma = self.kind.startswith("gemma")
        self.parallel = self.kind == "gpt_neox" and config.use_parallel_residual
        self.body = {"gpt2": "transformer", "gpt_neox": "gpt_neox"}.get(self.kind, "model")
        self.body = getattr(loaded, self.body)
        self.body = self.body.decoder if self.kind == "opt" else self.body
        self.blocks = [self._block(layer) for layer in range(self.n_layers)]

    def embed(self, tokens: list[int]) -> Tensor:
        module = {"gpt2": "wte", "gpt_neox": "embed_in"}.get(self.kind, "embed_tokens")
        return getattr(self.body, module)(torch.tensor(tokens))

    def run(self, embedding: Tensor, read: Read, fixed: Sources | None = None) -> tuple[Sources, Tensor]:
        """All sources [position, d_model], and the logits at the last position; `fixed` replaces sources' outputs."""
        sources: Sources = {"input": embedding}
        fixed = fixed or {}
        for layer, block in enumerate(self.blocks):
            before, written = dict(sources), {}
            for head in range(self.n_heads):
                q, k, v = (
                    self._project(
                        block, letter, head, self._norm(block.norm, read(f"a{layer}.h{head}<{letter}>", before))
                    )
                    for letter in "qkv"
                )
                written[f"a{layer}.h{head}"] = self._head(layer, q, k, v) @ block.out[head]
            sources |= {name: fixed.get(name, output) for name, output in written.items()}
            stream = read(f"m{layer}", before if self.parallel else dict(sources))
            mlp = self._norm(block.after_mlp, self._mlp(block.mlp, self._norm(block.mlp_norm, stream)))
            sources[f"m{layer}"] = fixed.get(f"m{layer}", mlp)
        final = {"gpt2": "ln_f", "gpt_neox": "final_layer_norm", "opt": "final_layer_norm"}.get(self.kind, "norm")
        logits = self._unembed()(self._norm(getattr(self.body, final), read("logits", dict(sources))))[-1]
        cap = getattr(self.config, "final_logit_softcapping", None)
        return sources, logits if cap is None else torch.tanh(logits / cap) * cap

    def _norm(self, module: torch.nn.Module, x: Tensor) -> Tensor:
        """A norm; by the rule `norms` its scale is a constant. HuggingFace's RMS norms would round to float32."""
        if isinstance(module, torch.nn.Identity):
            return x
        is_layer_norm = isinstance(module, torch.nn.LayerNorm)
        x = x - x.mean(-1, keepdim=True) if is_layer_norm else x
        eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
        scale = (x.square().mean(-1, keepdim=True) + eps).sqrt()
        y = x / (scale.detach() if "norms" in self.rules else scale) * (module.weight + self.is_gemma)
        return y + module.bias if is_layer_norm else y

    def _mlp(self, module: torch.nn.Module, x: Tensor) -> Tensor:
        if self.kind == "opt":  # the parts of its MLP are in the block
            module = SimpleNamespace(up=module.fc1, gate=module.fc1, act=module.activation_fn, down=module.fc2)
        elif self.kind == "phi3":
            gate, up = (partial(torch.nn.functional.linear, weight=w) for w in module.gate_up_proj.weight.chunk(2))
            module = SimpleNamespace(up=up, gate=gate, act=module.activation_fn, down=module.down_proj)
        elif not self.rules & {"activations", "gates"}:
            return module(x)
        names = {"gpt2": ("c_fc", "c_fc", "act", "c_proj"),
                 "gpt_neox": ("dense_h_to_4h", "dense_h_to_4h", "act", "dense_4h_to_h"),
                 "opt": ("gate", "up", "act", "down"), "phi3": ("gate", "up", "act", "down")}  # fmt: skip
        names = names.get(self.kind, ("gate_proj", "up_proj", "act_fn", "down_proj"))
        gate, up, activation, down = (getattr(module, name) for name in names)
        y = gate(x)
        y = y * (activation(y) / y).detach() if "activations" in self.rules else activation(y)
        if gate is not up:
            y = y * up(x)
            y = less_gradient(y, 0.5) if "gates" in self.rules else y
        return down(y)

    def _softmax(self, scores: Tensor) -> Tensor:
        pattern = scores.softmax(-1)
        if "patterns" in self.rules:
            return pattern.detach()
        if "softmax-2" in self.rules:  # the derivative of 2 softmax(x / 2) is diag(s) - s s^T at temperature 2
            soft = 2 * (scores / 2).softmax(-1)
            return pattern.detach() + soft - soft.detach()
        return RelevanceSoftmax.apply(scores) if "softmax-lrp" in self.rules else pattern

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
        elif self.kind == "phi3":
            block = self.body.layers[layer]
            n_shared = self.config.num_key_value_heads * d_head
            sizes = [self.n_heads * d_head, n_shared, n_shared]
            weights = dict(zip("qkv", block.self_attn.qkv_proj.weight.T.split(sizes, 1), strict=True))
            biases = dict.fromkeys("qkv")
            out, bias = block.self_attn.o_proj.weight.T, None
            norms = (block.input_layernorm, block.post_attention_layernorm, same, same)
        else:
            block = self.body.layers[layer]
            modules = {letter: getattr(block.self_attn, f"{letter}_proj") for letter in "qkv"}
            weights = {letter: module.weight.T for letter, module in modules.items()}
            biases = {letter: module.bias for letter, module in modules.items()}
            project = block.self_attn.out_proj if self.kind == "opt" else block.self_attn.o_proj
            out, bias = project.weight.T, project.bias
            if self.kind == "opt":
                norms = (block.self_attn_layer_norm, block.final_layer_norm, same, same)
            elif self.kind == "olmo2":
                norms = (same, same, block.post_attention_layernorm, block.post_feedforward_layernorm)
            elif not self.is_gemma:
                norms = (block.input_layernorm, block.post_attention_layernorm, same, same)
            else:
                norms = (block.input_layernorm, block.pre_feedforward_layernorm,
                         block.post_attention_layernorm, block.post_feedforward_layernorm)  # fmt: skip
        return SimpleNamespace(
            weights=weights, biases=biases, out=out.split(d_head, 0), bias=bias,
            mlp=block if self.kind == "opt" else block.mlp,
            norm=norms[0], mlp_norm=norms[1], after_attention=norms[2], after_mlp=norms[3],
            q_norm=getattr(getattr(block, "self_attn", None), "q_norm", same),
            k_norm=getattr(getattr(block, "self_attn", None), "k_norm", same),
        )  # fmt: skip

    def _project(self, block: SimpleNamespace, letter: str, head: int, normed: Tensor) -> Tensor:
        stored = block.weights[letter].shape[1] // self.d_head
        own = head * stored // self.n_heads
        columns = slice(own * self.d_head, (own + 1) * self.d_head)
        result, bias = normed @ block.weights[letter], block.biases[letter]
        result = result if bias is None else result + bias
        if self.kind == "olmo2" and letter != "v":  # a norm over all heads, as if all read what this head reads
            result = self._norm({"q": block.q_norm, "k": block.k_norm}[letter], result)
        return result[:, columns]

    def _head(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length, config, block = len(q), self.config, self.blocks[layer]
        kinds = getattr(config, "layer_types", None)
        if "matmuls" in self.rules:  # pattern @ v halves the gradients of both, q @ k again
            q, k, v = less_gradient(q, 0.25), less_gradient(k, 0.25), less_gradient(v, 0.5)
        if self.kind != "olmo2":
            q, k = self._norm(block.q_norm, q), self._norm(block.k_norm, k)
        if self.kind not in ("gpt2", "opt"):
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
        return self._softmax(scores.masked_fill(blocked, -torch.inf)) @ v

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
        elif self.kind == "opt":
            stream = stream + self.body.embed_positions.weight[2 : 2 + length]
        stream = stream + sum(output for name, output in outputs.items() if not name.startswith("a"))
        for layer, block in enumerate(self.blocks):
            heads = [output for name, output in outputs.items() if name.startswith(f"a{layer}.")]
            if heads:  # what belongs to no node, the output bias, comes with them
                joined = sum(heads) if block.bias is None else sum(heads) + block.bias
                stream = stream + self._norm(block.after_attention, joined)
        return stream

    def circuit(self, inside: set[str], reference: Sources) -> Read:
        """In-circuit sources as they are in this run, all others as in the reference."""

        def read(destination: str, sources: Sources) -> Tensor:
            chosen = {
                name: now if f"{name}->{destination}" in inside else reference[name] for name, now in sources.items()
            }
            return self.combine(destination, chosen)

        return read


class RelevanceSoftmax(torch.autograd.Function):
    """The softmax's relevance x (R - s sum(R)) of R = s g, divided by its input x."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x.softmax(-1))
        return x.softmax(-1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        x, output = ctx.saved_tensors
        x = torch.where(x.isinf(), torch.ones_like(x), x)
        relevance = output * gradient
        return x * (relevance - output * relevance.sum(-1, keepdim=True)) / x


def less_gradient(x: Tensor, share: float) -> Tensor:
    return share * x + (1 - share) * x.detach()


class SlowExample:
    """Scores of one example, by their definitions: edge name -> score."""

    def __init__(self, slow: SlowModel, clean: list[int], corrupted: list[int], answers: tuple[int, int]) -> None:
        self.slow, self.answers, self.tokens = slow, answers, (clean, corrupted)
        self.start, self.end = slow.embed(corrupted), slow.embed(clean)
        self.clean, logits = slow.run(self.end, slow.combine)
        self.metric = logits[answers[0]] - logits[answers[1]]
        self.corrupted, _ = slow.run(self.start, slow.combine)

    def gradient_scores(
        self, point: Tensor, fixed: Sources | None = None, dropped: int | None = None
    ) -> dict[str, float]:
        """The scores of positions, summed."""
        by_position = self.position_scores(point, fixed, dropped)
        return {name: values.sum().item() for name, values in by_position.items()}

    def position_scores(
        self, point: Tensor, fixed: Sources | None = None, dropped: int | None = None
    ) -> dict[str, Tensor]:
        """Difference times gradient [position] at one run, with a separate tensor for every edge.

        fixed    outputs that replace those of the run
        dropped  a layer whose outputs pass no gradient
        """
        carried: dict[str, Tensor] = {}

        def read(destination: str, sources: Sources) -> Tensor:
            # What an edge carries is a tensor of its own, so that its gradient is that edge's alone.
            own = {
                name: (output.detach() if name.startswith((f"a{dropped}.", f"m{dropped}")) else output) + 0.0
                for name, output in sources.items()
            }
            for output in own.values():
                if not output.requires_grad:
                    output.requires_grad_()
            carried.update({f"{name}->{destination}": output for name, output in own.items()})
            return self.slow.combine(destination, own)

        _, logits = self.slow.run(point.detach().requires_grad_(), read, fixed)
        loss = -(logits[self.answers[0]] - logits[self.answers[1]])
        gradients = torch.autograd.grad(loss, list(carried.values()), materialize_grads=True)
        return {
            name: ((self.corrupted[source] - self.clean[source]) * gradient).sum(1)
            for (name, source), gradient in zip(((n, n.split("->")[0]) for n in carried), gradients, strict=True)
        }

    def eap_by_position(self) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in self.position_scores(self.end).items()}

    def eap(self) -> dict[str, float]:
        return self.gradient_scores(self.end)

    def path(self, points: list[float]) -> dict[str, float]:
        """The mean over points between the corrupted (0) and the clean (1) embedding."""
        return mean_of([self.gradient_scores(self.start + p * (self.end - self.start)) for p in points])

    def activations(self, steps: int) -> dict[str, float]:
        """EAP-IG-activations: each group of nodes alone goes from its corrupted to its clean output."""
        groups = [["input"]]
        for layer in range(self.slow.n_layers):
            groups += [[name for name in self.clean if name.startswith(f"a{layer}.")], [f"m{layer}"]]
        runs = []
        for group in groups:
            for step in range(1, steps + 1):
                share = step / steps
                fixed = {
                    name: (share * self.clean[name] + (1 - share) * self.corrupted[name]).detach() for name in group
                }
                runs.append(self.gradient_scores(fixed.get("input", self.end), fixed))
        return mean_of(runs)

    def grad_drop(self) -> dict[str, float]:
        runs = [self.gradient_scores(self.end, dropped=layer) for layer in range(self.slow.n_layers)]
        return mean_of([{name: abs(value) for name, value in run.items()} for run in runs])

    def exact(self, every: int) -> dict[str, float]:
        """The metric of the model minus that of all edges but one, for every so-and-so-many-th edge."""
        edges: list[str] = []

        def read(destination: str, sources: Sources) -> Tensor:
            edges.extend(f"{name}->{destination}" for name in sources)
            return self.slow.combine(destination, sources)

        self.slow.run(self.end, read)
        effects = {}
        for edge in edges[::every]:
            _, logits = self.slow.run(self.end, self.slow.circuit(set(edges) - {edge}, self.corrupted))
            effects[edge] = (self.metric - logits[self.answers[0]] + logits[self.answers[1]]).item()
        return effects

    def flow(self) -> dict[str, float]:
        """Information flow routes, position by position and edge by edge."""
        shares: dict[str, float] = {}

        def added(name: str, sources: Sources, position: int) -> Tensor:
            if not name.startswith("a"):
                return sources[name][position]
            layer = int(name[1:].split(".")[0])
            block, heads = self.slow.blocks[layer], [z for n, z in sources.items() if n.startswith(f"a{layer}.")]
            joined = sum(heads) if block.bias is None else sum(heads) + block.bias
            return (sources[name] * (self.slow._norm(block.after_attention, joined) / joined))[position]

        def read(destination: str, sources: Sources) -> Tensor:
            stream = self.slow.combine(destination, sources)
            for position, x in enumerate(stream):
                near = {
                    n: max(0.0, (x.abs().sum() - (x - added(n, sources, position)).abs().sum()).item()) for n in sources
                }
                for name, value in near.items():
                    edge = f"{name}->{destination}"
                    shares[edge] = shares.get(edge, 0.0) + value / sum(near.values()) / len(stream)
            return stream

        self.slow.run(self.end, read)
        return shares


def mean_of(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
