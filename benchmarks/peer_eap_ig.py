"""Measure the public implementation of EAP-IG, for benchmarks/engine.py. Needs transformer-lens.

Usage: peer_eap_ig.py CHECKOUT THREADS BATCH LENGTH. Prints one line of JSON: label -> CPU and wall seconds per example.
"""

from __future__ import annotations

import json
import sys
import time

import torch

checkout, threads, batch, length = sys.argv[1], *map(int, sys.argv[2:5])
sys.path.insert(0, f"{checkout}/src")
torch.set_num_threads(threads)

if not torch.cuda.is_available():  # EAP-IG hard-codes the device
    make_zeros = torch.zeros
    torch.zeros = lambda *shape, device=None, **rest: make_zeros(*shape, device=None if device else device, **rest)

import eap.attribute  # noqa: E402
import eap.evaluate  # noqa: E402
from eap.graph import Graph  # noqa: E402
from transformer_lens import HookedTransformer, HookedTransformerConfig  # noqa: E402

config = HookedTransformerConfig(
    n_layers=12, d_model=768, n_ctx=1024, d_head=64, n_heads=12, d_mlp=3072, d_vocab=50257, act_fn="gelu_new",
    normalization_type="LN", device="cpu", seed=0,
)  # fmt: skip
model = HookedTransformer(config)
for switch in ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in"):
    getattr(model, f"set_{switch}")(True)

generator = torch.Generator().manual_seed(0)
clean = torch.randint(50257, (batch, length), generator=generator)
corrupted = (clean + 1) % 50257
prompts = {"clean": clean, "corrupted": corrupted}


def ready_tokens(model, inputs, max_length=None):
    """Replace the tokenizer: return the tokens, their mask and lengths."""
    tokens = prompts[inputs[0]]
    return tokens, torch.ones_like(tokens), torch.full((batch,), length), length


eap.attribute.tokenize_plus = eap.evaluate.tokenize_plus = ready_tokens
data = [(["clean"] * batch, ["corrupted"] * batch, torch.zeros(batch))]


def loss(logits, clean_logits, lengths, labels):
    """Return the negative mean logit difference at the last position."""
    return -(logits[:, -1, 11] - logits[:, -1, 12]).mean()


def per_example(logits, clean_logits, lengths, labels):
    """Return the logit difference of every example."""
    return logits[:, -1, 11] - logits[:, -1, 12]


def clock(work) -> list[float]:
    """Return CPU and wall seconds per example, after a warm-up."""
    work()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return [(time.process_time() - cpu) / batch, (time.perf_counter() - wall) / batch]


graph = Graph.from_model(model)
rows = {
    "peer EAP-IG-5": clock(
        lambda: eap.attribute.attribute(model, graph, data, loss, "EAP-IG-inputs", ig_steps=5, quiet=True)
    )
}
graph.apply_topn(324, True)
rows["peer circuit 0.01"] = clock(lambda: eap.evaluate.evaluate_graph(model, graph, data, per_example, quiet=True))
print(json.dumps(rows))
