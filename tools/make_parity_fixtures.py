"""Make tests/parity/data: what the public EAP-IG computes on tiny random models, as numbers only.

    git clone https://github.com/hannamw/EAP-IG
    VENV/bin/pip install torch transformers==4.57.6 transformer-lens==2.18.0 'pyarrow<22' matplotlib
    TQDM_DISABLE=1 VENV/bin/python tools/make_parity_fixtures.py --peer EAP-IG

It draws a random HuggingFace model of every family and random prompt pairs, checks that TransformerLens gives the
model's logits, has EAP-IG score the edges and run circuits, all in float64, and writes one folder per family; the
README beside them says what is in it. EAP-IG is imported from its checkout and none of its code is copied. Nor is
edgewise imported, so nothing of it is in what it is tested against. The same seed and versions give the same
numbers, up to the rounding of another processor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

OUT = Path(__file__).resolve().parents[1] / "tests" / "parity" / "data"
VOCABULARY, CONTEXT = 29, 16
# Uneven within a batch, longer than Gemma's window; the two shortest prompts have nothing after them to average in.
LENGTHS, BATCH = (7, 5, 9, 5, 8, 6), 3
STEPS = 5
# Their information flow routes need batches that are as wide as their longest prompt, which these are not.
METHODS = ("EAP", "EAP-IG-inputs", "clean-corrupted", "EAP-IG-activations", "exact")
ABLATIONS = ("patching", "zero", "mean-positional")
# Sizes of circuits, as shares of all edges.
SHARES = (0.1, 0.25, 0.5, 0.9)
# Of nodes and neurons. Their exact patching of nodes raises an IndexError at `logits`.
LEVELS = ("node", "neuron")
LEVEL_METHODS = ("EAP", "EAP-IG-inputs", "EAP-IG-activations")
LEVEL_ABLATIONS = ("patching", "zero")
# HuggingFace's rotary tables, and Gemma's norms and softmax, are float32 in a float64 model too.
LARGEST_LOGIT_GAP = {"gpt2": 1e-12, "qwen2": 1e-5, "gemma2": 1e-5}


@dataclass(frozen=True)
class Family:
    """A kind of model.

    kind      the HuggingFace class, and `config` what it is built with
    lens      what TransformerLens has to be told beyond the sizes, and `convert` its function for the weights
    """

    kind: str
    config: dict[str, Any]
    lens: dict[str, Any]
    convert: str


ROTARY = {
    "normalization_type": "RMS", "final_rms": True, "gated_mlp": True, "positional_embedding_type": "rotary",
    "rotary_adjacent_pairs": False, "ungroup_grouped_query_attention": True,
}  # fmt: skip
FAMILIES = {
    "gpt2": Family(
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 12, "n_inner": 20, "n_layer": 3, "n_head": 2,
            "bos_token_id": 0, "eos_token_id": 0,
        },
        {"normalization_type": "LN", "act_fn": "gelu_new", "eps": 1e-5, "d_head": 6, "d_mlp": 20},
        "convert_gpt2_weights",
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        {
            "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "hidden_size": 16, "intermediate_size": 20,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 100.0,
            "rms_norm_eps": 1e-6,
        },
        {**ROTARY, "act_fn": "silu", "eps": 1e-6, "rotary_base": 100, "rotary_dim": 4, "n_key_value_heads": 2,
         "d_head": 4, "d_mlp": 20},
        "convert_qwen2_weights",
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        {
            "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "hidden_size": 10, "intermediate_size": 16,
            "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6,
            "rope_theta": 100.0, "rms_norm_eps": 1e-6, "sliding_window": 4, "query_pre_attn_scalar": 4,
            "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
        },
        {**ROTARY, "act_fn": "gelu_pytorch_tanh", "eps": 1e-6, "rotary_base": 100, "rotary_dim": 6,
         "n_key_value_heads": 1, "d_head": 6, "d_mlp": 16, "use_attn_scale": True, "attn_scale": 2.0,
         "attn_scores_soft_cap": 2.0, "output_logits_soft_cap": 3.0, "use_local_attn": True, "window_size": 4,
         "attn_types": ["local", "global", "local"], "use_normalization_before_and_after": True},
        "convert_gemma_weights",
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Data:
    """Prompt pairs.

    clean, corrupted  [example, position], padded at the end with 0
    length            [example]
    labels            [example, 2], the correct and the incorrect answer
    """

    clean: np.ndarray
    corrupted: np.ndarray
    length: np.ndarray
    labels: np.ndarray

    def batches(self) -> list[tuple[list[tuple[int, ...]], list[tuple[int, ...]], Tensor]]:
        """As EAP-IG's loaders give them, but for tokens in place of text."""
        prompts = [
            [tuple(row[:length].tolist()) for row, length in zip(rows, self.length, strict=True)]
            for rows in (self.clean, self.corrupted)
        ]
        starts = range(0, len(self.length), BATCH)
        return [
            (prompts[0][at : at + BATCH], prompts[1][at : at + BATCH], torch.tensor(self.labels[at : at + BATCH]))
            for at in starts
        ]


def draw_data(seed: int) -> Data:
    """Pairs that differ in two places, anywhere in the prompt."""
    rng = np.random.default_rng(seed)
    clean = np.zeros((len(LENGTHS), max(LENGTHS)), np.int64)
    corrupted, labels = clean.copy(), np.zeros((len(LENGTHS), 2), np.int64)
    for row, length in enumerate(LENGTHS):
        clean[row, :length] = corrupted[row, :length] = rng.integers(VOCABULARY, size=length)
        for place in rng.choice(length, size=2, replace=False):
            corrupted[row, place] = (clean[row, place] + rng.integers(1, VOCABULARY)) % VOCABULARY
        labels[row] = rng.choice(VOCABULARY, size=2, replace=False)
    return Data(clean, corrupted, np.array(LENGTHS), labels)


def draw_model(family: Family, seed: int) -> torch.nn.Module:
    """A random model, with large weights and uneven norms and biases, so that no part of it hides.

    Its weights are float32 numbers, which it holds in float64.
    """
    kind = getattr(transformers, family.kind)
    model = kind(kind.config_class(**family.config))
    source = torch.Generator().manual_seed(seed)
    # Gemma adds 1 to the weights of its norms itself.
    centre = 0.0 if "gemma" in model.config.model_type else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.ndim == 1 and ("norm" in name or "ln_" in name) and name.endswith("weight")
            noise = torch.randn(parameter.shape, generator=source)
            parameter.copy_(centre + 0.3 * noise if is_norm else 0.4 * noise)
    model.set_attn_implementation("eager")
    return model.double().eval()


def load_peer(checkout: Path) -> SimpleNamespace:
    """EAP-IG's modules, told to take tokens for text and to stay on the processor."""
    sys.path.insert(0, str(checkout / "src"))
    make_zeros = torch.zeros
    # The device is written into their code.
    torch.zeros = lambda *shape, device=None, **rest: make_zeros(
        *shape, device="cpu" if device == "cuda" else device, **rest
    )
    import eap.attribute
    import eap.attribute_node
    import eap.evaluate
    import eap.graph
    import eap.utils

    for module in (eap.attribute, eap.attribute_node, eap.evaluate, eap.utils):
        module.tokenize_plus = ready_tokens
    return SimpleNamespace(
        Graph=eap.graph.Graph,
        attribute=eap.attribute.attribute,
        attribute_node=eap.attribute_node.attribute_node,
        evaluate_graph=eap.evaluate.evaluate_graph,
        evaluate_baseline=eap.evaluate.evaluate_baseline,
    )


def ready_tokens(model: Any, prompts: list[tuple[int, ...]], max_length: int | None = None) -> tuple:
    """In place of tokenising: tokens, mask, lengths and width, the same width for all batches."""
    lengths, width = torch.tensor([len(prompt) for prompt in prompts]), max(LENGTHS)
    tokens = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts])
    return tokens, (torch.arange(width) < lengths[:, None]).long(), lengths, width


def build_lens(name: str, model: torch.nn.Module, data: Data) -> Any:
    """The same model in TransformerLens, unfolded, with the switches that EAP-IG asks for."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained import weight_conversions

    config, family = model.config, FAMILIES[name]
    lens = HookedTransformer(
        HookedTransformerConfig(
            n_layers=config.num_hidden_layers, n_heads=config.num_attention_heads, d_model=config.hidden_size,
            n_ctx=CONTEXT, d_vocab=VOCABULARY, dtype=torch.float64, device="cpu", **family.lens,
        )
    )  # fmt: skip
    weights = getattr(weight_conversions, family.convert)(model, lens.cfg)
    lens.load_and_process_state_dict(
        {key: value.detach().double() for key, value in weights.items()},
        fold_ln=False, center_writing_weights=False, center_unembed=False, fold_value_biases=False,
    )  # fmt: skip
    for switch in ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in"):
        getattr(lens, f"set_{switch}")(True)
    for tokens, length in zip(data.clean, data.length, strict=True):
        prompt = torch.tensor(tokens[None, :length])
        with torch.no_grad():
            gap = (lens(prompt) - model(prompt).logits).abs().max().item()
        if not gap <= LARGEST_LOGIT_GAP[name]:
            raise SystemExit(f"{name}: TransformerLens's logits are off by {gap:.1e} from HuggingFace's")
    return lens


def gap_of_answers(logits: Tensor, clean_logits: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """The logit difference of every example, behind its last token."""
    last = logits[torch.arange(len(lengths)), lengths - 1]
    return -last.gather(1, labels).diff().squeeze(1)


def loss(*run: Tensor) -> Tensor:
    """Minus the mean logit difference of a batch."""
    return -gap_of_answers(*run).mean()


def new_graph(peer: SimpleNamespace, lens: Any, scores: np.ndarray | None = None) -> Any:
    """EAP-IG's graph of a model, whose scores are kept in float64."""
    graph = peer.Graph.from_model(lens)
    graph.scores = graph.scores.double() if scores is None else torch.tensor(scores)
    return graph


def score(peer: SimpleNamespace, lens: Any, data: Data) -> dict[str, np.ndarray]:
    """METHOD|f64 [source, destination] of every method, and which of these places are edges."""
    found = {}
    for method in METHODS:
        graph = new_graph(peer, lens)
        steps = STEPS if "IG" in method else None
        peer.attribute(lens, graph, data.batches(), loss, method, ig_steps=steps, quiet=True)
        found[f"{method}|f64"] = torch.where(graph.real_edge_mask, graph.scores, 0.0).numpy()
    return {**found, "real_edge_mask": graph.real_edge_mask.numpy()}


def circuits_of(graph: Any, seed: int) -> Iterator[str]:
    """Set the graph to one circuit after the other, not pruned yet; gives their names."""
    edges = len(graph.edges)
    for count in (0, *(round(share * edges) for share in SHARES), edges):
        for kind, choose in (("greedy", graph.apply_greedy), ("topn", graph.apply_topn)):
            for absolute in (True, False):
                # The empty and the full circuit are the same, whoever chooses them.
                if 0 < count < edges or (kind, absolute) == ("greedy", True):
                    choose(count, absolute=absolute, prune=False)
                    yield f"{kind}_abs{int(absolute)}_n{count}"
    rng = np.random.default_rng(seed)
    for share in (0.6, 0.8):
        graph.in_graph[:] = torch.tensor(rng.random(graph.in_graph.shape) < share) & graph.real_edge_mask
        yield f"random_n{int(graph.in_graph.sum())}"


def evaluate(peer: SimpleNamespace, lens: Any, data: Data, scores: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The runs of the model and of circuits chosen by `scores`, and the edges of these, as chosen and pruned."""

    def run(verb: Callable[..., Tensor], *subject: Any, **options: Any) -> np.ndarray:
        return verb(lens, *subject, data.batches(), gap_of_answers, quiet=True, **options).numpy()

    found = {
        "baseline|f64": run(peer.evaluate_baseline),
        "baseline_corrupted|f64": run(peer.evaluate_baseline, run_corrupted=True),
    }
    graph = new_graph(peer, lens, scores)
    for key in circuits_of(graph, seed):
        found[f"in_graph_raw|{key}"] = graph.in_graph.numpy().copy()
        graph.prune()
        found[f"in_graph|{key}"] = graph.in_graph.numpy().copy()
        for ablation in ABLATIONS:
            options = {"intervention": ablation, "intervention_dataloader": data.batches()}
            found[f"ld|{key}|{ablation}|f64"] = run(peer.evaluate_graph, graph, **options)
    return found


def new_level_graph(peer: SimpleNamespace, lens: Any) -> Any:
    """EAP-IG's graph with scores of nodes and neurons, which are kept in float64."""
    graph = peer.Graph.from_model(lens, neuron_level=True, node_scores=True)
    graph.nodes_scores, graph.neurons_scores = graph.nodes_scores.double(), graph.neurons_scores.double()
    return graph


def score_levels(peer: SimpleNamespace, lens: Any, data: Data) -> dict[str, np.ndarray]:
    """LEVEL|METHOD|f64: [source] of nodes, [source, d_model] of neurons; as published, and with |output as defined.

    As published, an MLP's output difference meets the gradient at the MLP's input; |output takes it at its output.
    """
    scores = {}
    for level in LEVELS:
        for method in LEVEL_METHODS:
            for suffix in ("", "|output"):
                graph = new_level_graph(peer, lens)
                for node in graph.nodes.values():
                    if suffix and node.name.startswith("m"):
                        node.in_hook = node.out_hook
                steps, neuron = STEPS if "IG" in method else None, level == "neuron"
                options = {"ig_steps": steps, "neuron": neuron, "quiet": True}
                peer.attribute_node(lens, graph, data.batches(), loss, method, **options)
                values = graph.neurons_scores if neuron else graph.nodes_scores
                scores[f"{level}|{method}{suffix}|f64"] = values.numpy().copy()
    return scores


def level_circuits(peer: SimpleNamespace, lens: Any, scores: dict[str, np.ndarray]) -> Iterator[tuple[str, str, Any]]:
    """The level and name of every circuit, and its graph: the best by scores, without and with unscored ones."""
    for level in LEVELS:
        for absolute in (True, False):
            values = torch.tensor(scores[f"{level}|EAP-IG-inputs|output|f64"])
            for unscored in ((), (0, 2, 5)):
                values[list(unscored)] = torch.nan
                n_scored = int((~values.isnan()).sum())
                for count in (0, *(int(share * n_scored) for share in SHARES), n_scored):
                    graph = new_level_graph(peer, lens)
                    if level == "node":
                        graph.nodes_scores, graph.neurons_in_graph = values, None
                    else:
                        graph.neurons_scores = values
                    graph.apply_topn(count, absolute, level=level, prune=True)
                    yield level, f"{level}_abs{int(absolute)}_u{len(unscored)}_n{count}", graph


def evaluate_levels(
    peer: SimpleNamespace, lens: Any, data: Data, scores: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Per LEVEL, over its circuits: keys, members, weighted edge counts, and logit differences per ablation."""
    rows: dict[str, list[Any]] = {}
    for level, key, graph in level_circuits(peer, lens, scores):
        members = graph.nodes_in_graph if level == "node" else graph.neurons_in_graph
        values = {"keys": key, "members": members.numpy().copy(), "weighted_edge_count": graph.weighted_edge_count()}
        for ablation in LEVEL_ABLATIONS:
            options = {"quiet": True, "intervention": ablation}
            run = peer.evaluate_graph(lens, graph, data.batches(), gap_of_answers, **options)
            values[f"{ablation}|f64"] = run.numpy()
        for name, value in values.items():
            rows.setdefault(f"{level}|{name}", []).append(value)
    return {name: np.array(values) for name, values in rows.items()}


def write_level_files(folder: Path, peer: SimpleNamespace, lens: Any, scores: dict[str, np.ndarray]) -> None:
    """Half of the nodes, and of the neurons, in EAP-IG's pt, float32 as it has them. Its json fails for them."""
    for level in LEVELS:
        values = torch.tensor(scores[f"{level}|EAP-IG-inputs|output|f64"]).float()
        graph = peer.Graph.from_model(lens, neuron_level=level == "neuron", node_scores=level == "node")
        (graph.nodes_scores if level == "node" else graph.neurons_scores)[:] = values
        graph.apply_topn(values.numel() // 2, True, level=level)
        graph.to_pt(str(folder / f"{level}s.pt"))


def write_importances(folder: Path, peer: SimpleNamespace, lens: Any, scores: np.ndarray) -> None:
    """The scores, and a circuit of half of the edges, in EAP-IG's two formats, both float32 as it has them."""
    graph = peer.Graph.from_model(lens)
    graph.scores[:] = torch.tensor(scores)
    graph.apply_greedy(len(graph.edges) // 2, absolute=True)
    graph.to_json(str(folder / "importances.json"))
    graph.to_pt(str(folder / "importances.pt"))


def describe(name: str, seed: int, graph: Any, checkout: Path, circuits: list[str]) -> dict[str, Any]:
    """What a reader of the numbers has to know."""
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "name": name,
        "hf_class": FAMILIES[name].kind,
        "hf_config": FAMILIES[name].config,
        "seed": seed,
        "batch": BATCH,
        "ig_steps": STEPS,
        "versions": {
            "EAP-IG": commit.stdout.strip() or "unknown",
            **{name: version(name) for name in ("torch", "transformers", "transformer-lens")},
        },
        "src_nodes": [node for node in graph.nodes if node != "logits"],
        "dst_nodes": graph.get_dst_nodes(),
        "circuits": [{"key": key} for key in circuits],
    }


def make_family(name: str, seed: int, peer: SimpleNamespace, checkout: Path, folder: Path) -> None:
    """Draw, run and write one family."""
    folder.mkdir(parents=True, exist_ok=True)
    data, model = draw_data(seed), draw_model(FAMILIES[name], seed)
    lens = build_lens(name, model, data)
    scores = score(peer, lens, data)
    chosen_by = scores["EAP-IG-inputs|f64"]
    evaluation = evaluate(peer, lens, data, chosen_by, seed)
    circuits = [key.split("|")[1] for key in evaluation if key.startswith("in_graph_raw|")]
    meta = describe(name, seed, new_graph(peer, lens), checkout, circuits)
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    weights = {key: value.float().numpy() for key, value in model.state_dict().items()}
    np.savez_compressed(folder / "hf_state_dict.npz", **weights)
    np.savez_compressed(folder / "data.npz", **vars(data), batch=BATCH)
    np.savez_compressed(folder / "scores.npz", **scores)
    np.savez_compressed(folder / "evaluation.npz", **evaluation)
    write_importances(folder, peer, lens, chosen_by)
    level_scores = score_levels(peer, lens, data)
    levels = {**level_scores, **evaluate_levels(peer, lens, data, level_scores)}
    np.savez_compressed(folder / "levels.npz", **levels)
    write_level_files(folder, peer, lens, level_scores)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {int(scores['real_edge_mask'].sum())} edges, {len(circuits)} circuits, {size / 1024:.0f} KB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, help="a checkout of EAP-IG (its src folder's parent)")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY", help="gpt2, qwen2, gemma2")
    given = parser.parse_args()
    torch.set_num_threads(1)
    peer = load_peer(given.peer)
    for name in given.families:
        make_family(name, given.seed, peer, given.peer, given.out / name)


if __name__ == "__main__":
    main()
