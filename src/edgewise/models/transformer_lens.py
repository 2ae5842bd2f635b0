"""Convert a model of TransformerLens to the HuggingFace model with the same weights.

Both kinds of TransformerLens models, `HookedTransformer` and `TransformerBridge`, have the same config and the same
names of weights. The structure decides the family: GPT-2 has learned positions, Llama a gated MLP and RMS norms,
GPT-NeoX rotary positions and layer norms. TransformerLens may have folded or centred weights when it loaded them. The
result has the weights as they are now, with a bias of the unembedding. Its logits are compared with the original's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

PACKAGE = "transformer_lens"
# Config attributes that must be absent, None, False, or at most 0.
UNSUPPORTED = (
    "attn_only", "use_local_attn", "use_attention_sinks", "use_qk_norm", "use_normalization_before_and_after",
    "scale_attn_by_inverse_layer_idx", "rotary_adjacent_pairs", "use_NTK_by_parts_rope", "use_dynamic_ntk_rope",
    "use_yarn_rope", "use_logn_attn", "post_embedding_ln", "num_experts", "clip_qkv", "attn_scores_soft_cap",
    "output_logits_soft_cap",
)  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
# The names of weights, and for every bias, of the weight whose output it is added to.
WEIGHTS = ("W_E", "W_U", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
BIASES = {"b_Q": "W_Q", "b_K": "W_K", "b_V": "W_V", "b_O": "W_O", "b_in": "W_in", "b_out": "W_out", "b_U": "W_U"}
# HookedTransformer's and TransformerBridge's names of a norm's weight and bias.
NORM_NAMES = (("w", "weight"), ("b", "bias"))
# Logits are compared on CHECKED_TOKENS random tokens. They may differ by TOLERANCE (HALF_TOLERANCE in half precision)
# times the largest logit.
CHECKED_TOKENS, TOLERANCE, HALF_TOLERANCE = 64, 1e-5, 0.02


def is_lens_model(module: object) -> bool:
    """Return whether a module is a model of TransformerLens. The package is not imported."""
    packages = {kind.__module__.split(".")[0] for kind in type(module).__mro__}
    return PACKAGE in packages and hasattr(module, "cfg")


def convert_lens_model(model: Any) -> Any:
    """Return a HuggingFace causal language model with copies of the weights of a TransformerLens model.

    Raise InputError if its structure is not that of GPT-2, Llama or GPT-NeoX, or if the logits differ.
    """
    cfg, what = model.cfg, f"this {type(model).__name__}"
    for name in UNSUPPORTED:
        if (value := getattr(cfg, name, None)) is not None and value > 0:
            raise InputError(f"{what} has {name} = {value!r}, which isn't supported; give the HuggingFace model")
    window = getattr(getattr(getattr(model, "original_model", None), "config", None), "sliding_window", None)
    if window is not None:
        raise InputError(f"{what} has sliding_window = {window!r}, which isn't supported; give the HuggingFace model")
    norms, is_gated = str(cfg.normalization_type).removesuffix("Pre"), bool(cfg.gated_mlp)
    builders = {("LN", "standard", False): _gpt2, ("LN", "rotary", False): _gpt_neox, ("RMS", "rotary", True): _llama}
    build = builders.get((norms, cfg.positional_embedding_type, is_gated))
    if build is None or cfg.act_fn not in ACTIVATIONS or getattr(cfg, "attention_dir", "causal") != "causal":
        raise InputError(
            f"{what} has norms {cfg.normalization_type!r}, positions {cfg.positional_embedding_type!r}, activation "
            f"{cfg.act_fn!r} and {'gated' if is_gated else 'plain'} MLPs; only the structures of GPT-2, Llama and "
            "GPT-NeoX are supported"
        )
    if build is not _llama and cfg.n_heads * cfg.d_head != cfg.d_model:
        raise InputError(f"{what} has {cfg.n_heads} heads of {cfg.d_head}; expected heads * size = {cfg.d_model}")
    with torch.no_grad(), torch.random.fork_rng(devices=()):  # building a model draws random weights
        weights = _read_weights(model, what)
        converted, renamed = build(model, weights)
        head_name = "embed_out" if hasattr(converted, "embed_out") else "lm_head"
        setattr(converted, head_name, nn.Linear(cfg.d_model, cfg.d_vocab_out))
        renamed |= {f"{head_name}.weight": weights.W_U.T, f"{head_name}.bias": weights.b_U}
        converted = converted.to(device=weights.W_U.device, dtype=weights.W_U.dtype).eval()
        for name, parameter in converted.named_parameters():
            parameter.copy_(renamed[name])
        # The logits must be the same on random tokens.
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(cfg.d_vocab, (1, min(CHECKED_TOKENS, cfg.n_ctx)), generator=generator)
        tokens, training_parts = tokens.to(converted.device), [part for part in model.modules() if part.training]
        model.eval()
        try:
            expected, logits = model(tokens), converted(tokens).logits
        finally:
            for part in training_parts:
                part.training = True
    difference, largest = (expected - logits).abs().max().item(), expected.abs().max().item()
    if not difference <= (HALF_TOLERANCE if logits.dtype.itemsize < 4 else TOLERANCE) * largest:
        raise InputError(
            f"the logits of {what} are not those of its weights: they differ by up to {difference:.2g}; remove its "
            "hooks, load it with HookedTransformer.from_pretrained_no_processing (or a TransformerBridge without "
            "compatibility mode), or give the HuggingFace model"
        )
    return converted


def _gpt2(model: Any, weights: SimpleNamespace) -> tuple[Any, dict[str, Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    cfg, positions = model.cfg, _read_weight(model, "W_pos")
    if positions is None:  # some versions of TransformerBridge
        positions = model.pos_embed.weight
    config = GPT2Config(
        n_positions=cfg.n_ctx, n_embd=cfg.d_model, n_layer=cfg.n_layers, n_head=cfg.n_heads, n_inner=cfg.d_mlp,
        activation_function=cfg.act_fn, layer_norm_epsilon=cfg.eps, **_shared_options(cfg),
    )  # fmt: skip
    renamed = {"transformer.wte.weight": weights.W_E, "transformer.wpe.weight": positions}
    renamed |= _norm_weights("transformer.ln_f", model.ln_final, weights.W_E)
    for index, block in enumerate(model.blocks):
        prefix, part = f"transformer.h.{index}", _of_layer(weights, index)
        renamed |= _norm_weights(f"{prefix}.ln_1", block.ln1, weights.W_E)
        renamed |= _norm_weights(f"{prefix}.ln_2", block.ln2, weights.W_E)
        qkv = torch.cat([part.W_Q, part.W_K, part.W_V]).transpose(0, 1).flatten(1)
        renamed |= _pair(f"{prefix}.attn.c_attn", qkv, torch.cat([part.b_Q, part.b_K, part.b_V]).flatten())
        renamed |= _pair(f"{prefix}.attn.c_proj", part.W_O.flatten(0, 1), part.b_O)
        renamed |= _pair(f"{prefix}.mlp.c_fc", part.W_in, part.b_in)
        renamed |= _pair(f"{prefix}.mlp.c_proj", part.W_out, part.b_out)
    return GPT2LMHeadModel(config), renamed


def _gpt_neox(model: Any, weights: SimpleNamespace) -> tuple[Any, dict[str, Tensor]]:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    cfg = model.cfg
    rope = _rope_parameters(model, (cfg.rotary_dim or cfg.d_head) / cfg.d_head)
    # transformers 4 reads these options, transformers 5 reads `rope_parameters`.
    old_names = {"rotary_pct": rope.get("partial_rotary_factor", 1.0), "rotary_emb_base": rope["rope_theta"]}
    config = GPTNeoXConfig(
        hidden_size=cfg.d_model, num_hidden_layers=cfg.n_layers, num_attention_heads=cfg.n_heads,
        intermediate_size=cfg.d_mlp, max_position_embeddings=cfg.n_ctx, hidden_act=cfg.act_fn, layer_norm_eps=cfg.eps,
        use_parallel_residual=bool(cfg.parallel_attn_mlp), rope_parameters=rope, **old_names, **_shared_options(cfg),
    )  # fmt: skip
    renamed = {"gpt_neox.embed_in.weight": weights.W_E}
    renamed |= _norm_weights("gpt_neox.final_layer_norm", model.ln_final, weights.W_E)
    for index, block in enumerate(model.blocks):
        prefix, part = f"gpt_neox.layers.{index}", _of_layer(weights, index)
        second_norm = getattr(block, "ln2", block.ln1)
        renamed |= _norm_weights(f"{prefix}.input_layernorm", block.ln1, weights.W_E)
        renamed |= _norm_weights(f"{prefix}.post_attention_layernorm", second_norm, weights.W_E)
        # [head, qkv, d_head, d_model]
        qkv = torch.stack([part.W_Q, part.W_K, part.W_V], 1).transpose(2, 3)
        qkv_bias = torch.stack([part.b_Q, part.b_K, part.b_V], 1)
        renamed |= _pair(f"{prefix}.attention.query_key_value", qkv.flatten(0, 2), qkv_bias.flatten())
        renamed |= _pair(f"{prefix}.attention.dense", part.W_O.flatten(0, 1).T, part.b_O)
        renamed |= _pair(f"{prefix}.mlp.dense_h_to_4h", part.W_in.T, part.b_in)
        renamed |= _pair(f"{prefix}.mlp.dense_4h_to_h", part.W_out.T, part.b_out)
    return GPTNeoXForCausalLM(config), renamed


def _llama(model: Any, weights: SimpleNamespace) -> tuple[Any, dict[str, Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    cfg, gates, rope = model.cfg, model.W_gate, _rope_parameters(model, 1.0)
    old_names: dict[str, Any] = {"rope_theta": rope["rope_theta"]}
    config = LlamaConfig(
        hidden_size=cfg.d_model, num_hidden_layers=cfg.n_layers, num_attention_heads=cfg.n_heads,
        num_key_value_heads=weights.W_K.shape[1], head_dim=cfg.d_head, intermediate_size=cfg.d_mlp,
        max_position_embeddings=cfg.n_ctx, hidden_act=cfg.act_fn, rms_norm_eps=cfg.eps, attention_bias=True,
        mlp_bias=True, rope_parameters=rope, **old_names, **_shared_options(cfg),
    )  # fmt: skip
    renamed = {"model.embed_tokens.weight": weights.W_E} | _norm_weights("model.norm", model.ln_final, weights.W_E)
    for index, block in enumerate(model.blocks):
        prefix, part = f"model.layers.{index}", _of_layer(weights, index)
        renamed |= _norm_weights(f"{prefix}.input_layernorm", block.ln1, weights.W_E)
        renamed |= _norm_weights(f"{prefix}.post_attention_layernorm", block.ln2, weights.W_E)
        for letter in "QKV":
            weight, bias = getattr(part, f"W_{letter}"), getattr(part, f"b_{letter}")
            name = f"{prefix}.self_attn.{letter.lower()}_proj"
            renamed |= _pair(name, weight.transpose(1, 2).flatten(0, 1), bias.flatten())
        no_bias = part.b_in.new_zeros(cfg.d_mlp)  # TransformerLens adds b_in after the gate, where Llama has no bias
        renamed |= _pair(f"{prefix}.self_attn.o_proj", part.W_O.flatten(0, 1).T, part.b_O)
        renamed |= _pair(f"{prefix}.mlp.gate_proj", gates[index].T, no_bias)
        renamed |= _pair(f"{prefix}.mlp.up_proj", part.W_in.T, no_bias)
        renamed |= _pair(f"{prefix}.mlp.down_proj", part.W_out.T, part.b_out)
    return LlamaForCausalLM(config), renamed


def _shared_options(cfg: Any) -> dict[str, Any]:
    """Return the config options of all families."""
    no_tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return {"vocab_size": cfg.d_vocab, "tie_word_embeddings": False, **no_tokens}


def _read_weights(model: Any, what: str) -> SimpleNamespace:
    """Return the weights by their names, stacked over layers; biases that the model does not have are 0."""
    weights = {name: _read_weight(model, name) for name in WEIGHTS}
    if missing := [name for name, weight in weights.items() if weight is None]:
        raise InputError(f"{what} has no weights {', '.join(missing)}; give the HuggingFace model")
    for name, weight_name in BIASES.items():
        weight = weights[weight_name]
        bias, is_by_head = _read_weight(model, name), name in ("b_Q", "b_K", "b_V")
        shape = (*weight.shape[: 2 if is_by_head else weight.ndim > 2], weight.shape[-1])
        weights[name] = weight.new_zeros(shape) if bias is None else bias
    return SimpleNamespace(**weights)


def _read_weight(model: Any, name: str) -> Any:
    """Return a weight, or None if the model has none. Some versions raise TypeError then."""
    try:
        return getattr(model, name, None)
    except TypeError:
        return None


def _of_layer(weights: SimpleNamespace, index: int) -> SimpleNamespace:
    """Return the weights of one layer."""
    return SimpleNamespace(**{name: x[index] for name, x in vars(weights).items() if name[2:] not in ("E", "U")})


def _rope_parameters(model: Any, rotated: float) -> dict[str, Any]:
    """Return the options of the rotary embedding; a TransformerBridge has them in HuggingFace's config."""
    parameters = getattr(getattr(getattr(model, "original_model", None), "config", None), "rope_parameters", None)
    default = {"rope_type": "default", "rope_theta": float(model.cfg.rotary_base), "partial_rotary_factor": rotated}
    return dict(parameters or default)


def _norm_weights(name: str, norm: Any, like: Tensor) -> dict[str, Tensor]:
    """Return the weight and bias of a norm, called `name` in HuggingFace's model; 1 and 0 if it has none."""
    weight, bias = (next((getattr(norm, n) for n in names if hasattr(norm, n)), None) for names in NORM_NAMES)
    ones = like.new_ones(like.shape[1])
    return _pair(name, ones if weight is None else weight, torch.zeros_like(ones) if bias is None else bias)


def _pair(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": bias}
