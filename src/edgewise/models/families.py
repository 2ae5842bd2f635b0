"""The supported model families: what their configs may contain, and how to build a Transformer from their modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, unknown_name
from ..graph import Graph
from .transformer import Layer, Mlp, Norm, Projection, Transformer


@dataclass(frozen=True)
class Family:
    """How edgewise supports one `model_type` of HuggingFace.

    build    a loaded model -> its Transformer, which shares the weights
    honours  config attributes that `build`, or the modules that it uses, respect
    demands  config attributes for which only these values are supported
    equal    config attributes that must have the same value as another
    """

    build: Callable[[Any], Transformer]
    honours: frozenset[str]
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)


# Config attributes that do not change what a forward pass computes.
HARMLESS = frozenset(
    "_name_or_path architectures chunk_size_feed_forward dtype torch_dtype id2label label2id is_decoder "
    "is_encoder_decoder model_type output_attentions output_hidden_states problem_type return_dict "
    "transformers_version auto_map initializer_range use_cache bos_token_id eos_token_id pad_token_id "
    "tie_word_embeddings pretraining_tp n_ctx attention_dropout resid_pdrop embd_pdrop attn_pdrop hidden_dropout "
    "dropout layerdrop init_std "
    "classifier_dropout task_specific_params summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout reorder_and_upcast_attn attn_implementation "
    "_attn_implementation_autoset gradient_checkpointing max_window_layers unsloth_version unsloth_fixed "
    "rope_theta rope_scaling rotary_emb_base rotary_pct is_llama_config rope_interleaved transformers.js_config "
    "_sliding_window_pattern cache_implementation _model_name_or_path unk_token_id "
    # transformers 4 wrote these into every config: generation and bookkeeping.
    "torchscript tie_encoder_decoder finetuning_task prefix max_length min_length do_sample early_stopping "
    "num_beams temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "num_return_sequences encoder_no_repeat_ngram_size num_beam_groups diversity_penalty "
    "return_dict_in_generate output_scores use_bfloat16 tf_legacy_loss remove_invalid_values output_past "
    "use_return_dict pruned_heads".split()
)


def check_config(config: Any) -> Family:
    """Return the family of a HuggingFace config. Raise InputError if the config has an unsupported option."""
    kind = config.model_type
    if kind not in FAMILIES:
        raise unknown_name("model family", kind, list(FAMILIES))
    family = FAMILIES[kind]
    for name, value in config.to_dict().items():
        if name == "quantization_config" and (value or {}).get("quant_method") == "gguf":
            continue  # transformers de-quantises the weights of a .gguf file
        if name in _WINDOWS and getattr(config, "sliding_window", None) is None:
            continue  # which layers have a window doesn't matter if there is none
        if name in family.demands and value not in family.demands[name]:
            allowed = " or ".join(repr(v) for v in family.demands[name])
            raise InputError(f"this {kind} config has {name} = {value!r}, which isn't supported; expected {allowed}")
        if name in family.equal and value != (expected := getattr(config, family.equal[name])):
            raise InputError(
                f"this {kind} config has {name} = {value!r}, which isn't supported; expected {expected!r}, its "
                f"{family.equal[name]}"
            )
        is_known = name in {*family.honours, *family.demands, *family.equal} or name in HARMLESS
        if not is_known and value is not None and value != {} and value != []:
            raise InputError(f"this {kind} config has {name} = {value!r}, an option that isn't supported for {kind}")
    return family


def build_transformer(model: Any) -> Transformer:
    """Return the Transformer of a loaded HuggingFace causal language model, which shares its weights."""
    transformer = check_config(model.config).build(model)
    # The Transformer is built from the config, so attributes of attention modules must not have been edited.
    expected = {
        "scaling": transformer.attention_scale,
        "attn_logit_softcapping": transformer.attention_cap,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    }
    for part_name, part in model.named_modules():
        if "Attention" not in type(part).__name__:  # adapters also have a scaling, which is another one
            continue
        for name in expected.keys() & vars(part).keys():
            value = float(getattr(part, name) or 0)
            # Two formulas for one scale can differ by rounding.
            if not math.isclose(value, expected[name] or 0, rel_tol=1e-6):
                raise InputError(
                    f"{part_name}.{name} is {value:g}, but {expected[name]} follows from the model's config, which "
                    "edgewise follows; make the model from a config that says so, or undo the edit"
                )
    return transformer


def _norm(module: Any, is_minus_one: bool = False) -> Norm:
    """Return the Norm of a layer norm or an RMS norm."""
    if isinstance(module, nn.LayerNorm):
        return Norm(module.weight, module.bias, module.eps, centred=True)
    eps = module.eps if is_minus_one else module.variance_epsilon
    return Norm(module.weight, None, eps, centred=False, is_minus_one=is_minus_one)


def _transformer(
    model: Any, layers: tuple[Layer, ...], final_norm: Norm, mlp_kept: int, is_parallel: bool = False, **parts: Any
) -> Transformer:
    """Return the Transformer of a model with these layers; config attributes that it lacks have their usual value."""
    config, head = model.config, model.get_output_embeddings()
    embed = parts.pop("embed", model.get_input_embeddings())
    embedding, (width, n_heads, d_head) = model.get_input_embeddings().weight, layers[0].out.shape
    # With the rope type longrope, the rotary embedding of all tokens changes if one prompt of a batch is longer than
    # `original_max_position_embeddings`. Results must not depend on the batch, so longer prompts are not accepted.
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    original_length = "original_max_position_embeddings"
    original = rope.get(original_length) or getattr(config, original_length, None)
    is_long = "longrope" in (rope.get("rope_type"), rope.get("type")) and original
    return Transformer(
        graph=Graph(len(layers), n_heads, width, is_parallel),
        d_head=d_head,
        layers=layers,
        embed=lambda tokens: embed(tokens.to(embedding.device)).to(layers[0].device),
        final_norm=final_norm,
        unembed=head.weight,
        unembed_bias=head.bias,
        attention_scale=(getattr(config, "query_pre_attn_scalar", None) or d_head) ** -0.5,
        attention_cap=getattr(config, "attn_logit_softcapping", None) or None,
        logit_cap=getattr(config, "final_logit_softcapping", None) or None,
        max_length=min(config.max_position_embeddings, original) if is_long else config.max_position_embeddings,
        mlp_kept=mlp_kept,
        **parts,
    )


def _gpt2(model: Any) -> Transformer:
    from transformers.activations import NewGELUActivation

    config, body = model.config, model.transformer
    size = (3, config.n_head, config.n_embd // config.n_head)
    # The usual activation as one kernel; the module's own formula takes eight kernels.
    gelu = partial(F.gelu, approximate="tanh")

    def layer(block: Any) -> Layer:
        weight, bias = block.attn.c_attn.weight.T, block.attn.c_attn.bias
        up, down = block.mlp.c_fc, block.mlp.c_proj
        activation = gelu if isinstance(block.mlp.act, NewGELUActivation) else block.mlp.act
        q, k, v = (Projection(*part) for part in zip(weight.unflatten(0, size), bias.unflatten(0, size), strict=True))
        return Layer(
            attention_norm=_norm(block.ln_1),
            qkv=(q, k, v),
            project_all=lambda y: F.linear(y, weight, bias).unflatten(-1, size).unbind(-3),
            out=block.attn.c_proj.weight.T.unflatten(1, size[1:]),
            out_bias=block.attn.c_proj.bias,
            mlp_norm=_norm(block.ln_2),
            mlp=Mlp(lambda x: down(activation(up(x))), up, activation, down),
        )

    layers, inner = tuple(layer(block) for block in body.h), config.n_inner or 4 * config.n_embd
    return _transformer(model, layers, _norm(body.ln_f), inner, positions=body.wpe.weight)


def _gpt_neox(model: Any) -> Transformer:
    config, body = model.config, model.gpt_neox
    size = (config.num_attention_heads, 3, config.hidden_size // config.num_attention_heads)

    def layer(block: Any) -> Layer:
        fused, dense = block.attention.query_key_value, block.attention.dense
        weight = fused.weight.unflatten(0, size)
        bias = None if fused.bias is None else fused.bias.unflatten(0, size)
        q, k, v = (Projection(weight[:, i], None if bias is None else bias[:, i]) for i in range(3))
        return Layer(
            attention_norm=_norm(block.input_layernorm),
            qkv=(q, k, v),
            project_all=lambda y: fused(y).unflatten(-1, size).unbind(-2),
            out=dense.weight.unflatten(1, (size[0], size[2])),
            out_bias=dense.bias,
            mlp_norm=_norm(block.post_attention_layernorm),
            mlp=Mlp(block.mlp, block.mlp.dense_h_to_4h, block.mlp.act, block.mlp.dense_4h_to_h),
        )

    return _transformer(
        model,
        tuple(layer(block) for block in body.layers),
        _norm(body.final_layer_norm),
        config.intermediate_size,
        config.use_parallel_residual,
        rotary=lambda like, positions, kind: body.rotary_emb(like, positions),
    )


def _opt(model: Any) -> Transformer:
    config, body = model.config, model.model.decoder
    heads, d_head = config.num_attention_heads, config.hidden_size // config.num_attention_heads

    def layer(block: Any) -> Layer:
        return Layer(
            attention_norm=_norm(block.self_attn_layer_norm),
            qkv=_projections(block.self_attn, heads, d_head),
            out=block.self_attn.out_proj.weight.unflatten(1, (heads, d_head)),
            out_bias=block.self_attn.out_proj.bias,
            mlp_norm=_norm(block.final_layer_norm),
            mlp=Mlp(lambda x: block.fc2(block.activation_fn(block.fc1(x))), block.fc1, block.activation_fn, block.fc2),
        )

    layers, inner = tuple(layer(block) for block in body.layers), 2 * config.ffn_dim  # before and after the activation
    positions = body.embed_positions.weight[body.embed_positions.offset :]
    return _transformer(model, layers, _norm(body.final_layer_norm), inner, positions=positions)


def _llama(model: Any, norm: Callable[[Any], Norm] = _norm, **parts: Any) -> Transformer:
    """Build Llama and the families with its structure, which the names of their modules tell.

    Gemma and OLMo-2 have norms after attention and MLP; OLMo-2 has none before them. q and k may have norms, per head
    or over all heads. Projections may be stored in one matrix, as in Phi-3.
    """
    config, body = model.config, model.model
    heads = config.num_attention_heads
    d_head = getattr(config, "head_dim", None) or config.hidden_size // heads
    # Without `layer_types`, all layers have the window. Configs of Qwen have none unless `use_sliding_window` is True.
    kinds, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    rope = getattr(config, "rope_parameters", None) or {}
    # Gemma 3 has a rotary embedding per kind of layer: two modules in transformers 4, two entries in transformers 5.
    has_local_module = hasattr(body, "rotary_emb_local")
    rotary_kinds = kinds if kinds and (has_local_module or kinds[0] in rope) else None

    def layer(index: int, block: Any) -> Layer:
        def find_norm(name: str, parent: Any = block) -> Norm | None:
            return norm(getattr(parent, name)) if hasattr(parent, name) else None

        attention, has_post_norms = block.self_attn, hasattr(block, "post_feedforward_layernorm")
        q_norm, k_norm = find_norm("q_norm", attention), find_norm("k_norm", attention)
        is_per_head = q_norm is not None and q_norm.stored_weight.shape[0] == d_head
        mlp, up, gate = block.mlp, getattr(block.mlp, "up_proj", None), getattr(block.mlp, "gate_proj", None)
        if up is None:
            gate, up = (partial(F.linear, weight=weight) for weight in mlp.gate_up_proj.weight.chunk(2))
        activation = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
        return Layer(
            attention_norm=find_norm("input_layernorm"),
            qkv=_projections(attention, heads, d_head, (None, None) if is_per_head else (q_norm, k_norm)),
            out=attention.o_proj.weight.unflatten(1, (heads, d_head)),
            out_bias=attention.o_proj.bias,
            mlp_norm=find_norm("pre_feedforward_layernorm" if has_post_norms else "post_attention_layernorm"),
            mlp=Mlp(mlp, up, activation, mlp.down_proj, gate, find_norm("post_feedforward_layernorm")),
            window=window if kinds is None or kinds[index] == "sliding_attention" else None,
            rotary_kind=None if rotary_kinds is None else rotary_kinds[index],
            q_norm=q_norm if is_per_head else None,
            k_norm=k_norm if is_per_head else None,
            post_norm=find_norm("post_attention_layernorm") if has_post_norms else None,
        )

    def rotary(like: Tensor, positions: Tensor, kind: str | None) -> tuple[Tensor, Tensor]:
        """Return cos and sin for positions, in the dtype and on the device of `like`."""
        if kind is None:
            return body.rotary_emb(like, positions)
        if has_local_module:
            module = body.rotary_emb_local if kind == "sliding_attention" else body.rotary_emb
            return module(like, positions)
        return body.rotary_emb(like, positions, kind)

    # transformers runs as many layers as the config says, even if there are more.
    layers = tuple(layer(index, block) for index, block in enumerate(body.layers[: config.num_hidden_layers]))
    inner = 3 * config.intermediate_size  # the gate before and after its activation, and the gated values
    return _transformer(model, layers, norm(body.norm), inner, rotary=rotary, **parts)


def _gemma(model: Any) -> Transformer:
    """Build Gemma: norms whose stored weight is the weight minus 1, and embeddings scaled by the root of the width."""
    embed, norm = model.get_input_embeddings(), partial(_norm, is_minus_one=True)
    if hasattr(embed, "embed_scale"):  # newer versions of transformers scale in the module
        return _llama(model, norm)
    scale = embed.weight.new_tensor(model.config.hidden_size**0.5)
    return _llama(model, norm, embed=lambda tokens: embed(tokens) * scale)


def _projections(
    attention: Any, heads: int, d_head: int, norms: tuple[Norm | None, Norm | None] = (None, None)
) -> tuple[Projection, Projection, Projection]:
    """Return the projections to q, k and v, split into heads. `norms` are those of q and k over all heads.

    heads  the number of query heads, which may share keys and values
    """
    if hasattr(attention, "qkv_proj"):
        weight = attention.qkv_proj.weight
        n_shared = (len(weight) - heads * d_head) // 2
        stored = [(part, None) for part in weight.split([heads * d_head, n_shared, n_shared])]
    else:
        stored = [(part.weight, part.bias) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]

    def split(weight: Tensor, bias: Tensor | None, norm: Norm | None) -> Projection:
        size = (weight.shape[0] // d_head, d_head)
        split_bias = None if bias is None else bias.unflatten(0, size)
        return Projection(weight.unflatten(0, size), split_bias, heads // size[0], norm)

    q, k, v = (split(*part, norm) for part, norm in zip(stored, (*norms, None), strict=True))
    return q, k, v


_COMMON = frozenset(
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings "
    "rope_parameters attention_bias".split()
)
_LLAMA = _COMMON | frozenset("num_key_value_heads head_dim hidden_act rms_norm_eps mlp_bias".split())
# transformers reads these for Qwen. Mistral and Phi-3 have one window for all layers, whatever `layer_types` says.
_WINDOWS = frozenset({"sliding_window", "use_sliding_window", "layer_types"})
_NEOX = _COMMON | frozenset("hidden_act layer_norm_eps use_parallel_residual partial_rotary_factor".split())
_GEMMA = (
    _LLAMA
    | {"sliding_window", "layer_types"}
    | frozenset("hidden_activation query_pre_attn_scalar final_logit_softcapping attn_logit_softcapping".split())
)
_PHI3 = (_LLAMA | {"sliding_window", "partial_rotary_factor", "original_max_position_embeddings"}) - {"mlp_bias"}
_OPT = (_COMMON - {"rope_parameters", "attention_bias", "intermediate_size"}) | frozenset(
    "ffn_dim enable_bias activation_function".split()
)
_GPT2 = frozenset("vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon".split())
# transformers 4 wrote this into every config.
_DECODER = {"add_cross_attention": (False,)}
_GPT2_DEMANDS = {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), **_DECODER}
_GEMMA_DEMANDS = {"use_bidirectional_attention": (None, False), **_DECODER}
# transformers reads this cap for Gemma 2 only.
_GEMMA3_DEMANDS = {**_GEMMA_DEMANDS, "attn_logit_softcapping": (None,)}
# OPT-350m norms the stream after attention and MLP, and projects its embeddings.
_OPT_DEMANDS = {
    "do_layer_norm_before": (True,),
    "layer_norm_elementwise_affine": (True,),
    "_remove_final_layer_norm": (False,),
    **_DECODER,
}
_QWEN_DEMANDS = {"use_mrope": (None, False), **_DECODER}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(_gpt2, _GPT2, _GPT2_DEMANDS),
    "gpt_neox": Family(_gpt_neox, _NEOX, _DECODER),
    "llama": Family(_llama, _LLAMA, _DECODER),
    "mistral": Family(_llama, _LLAMA | {"sliding_window"}, _DECODER),
    "qwen2": Family(_llama, _LLAMA | _WINDOWS, _QWEN_DEMANDS),
    "qwen3": Family(_llama, _LLAMA | _WINDOWS, _QWEN_DEMANDS),
    "olmo2": Family(_llama, _LLAMA - {"mlp_bias"}, _DECODER),
    "phi3": Family(_llama, _PHI3, _DECODER),
    "opt": Family(_opt, _OPT, _OPT_DEMANDS, {"word_embed_proj_dim": "hidden_size"}),
    "gemma2": Family(_gemma, _GEMMA, _GEMMA_DEMANDS),
    "gemma3_text": Family(_gemma, _GEMMA | {"rope_local_base_freq"}, _GEMMA3_DEMANDS),
}
