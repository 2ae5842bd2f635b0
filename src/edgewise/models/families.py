"""The model families: one frozen record of facts each, and where its parts lie in a loaded HuggingFace model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..errors import InputError, unknown_name
from ..graph import Graph
from .transformer import Layer, Norm, Projection, Transformer


@dataclass(frozen=True)
class Family:
    """What one `model_type` of HuggingFace asks of the runner.

    build    a loaded model -> its parts, borrowed, not copied
    honours  config attributes that `build` reads
    demands  config attributes that must have one of these values, because the runner has no other way
    """

    build: Callable[[Any], Transformer]
    honours: frozenset[str]
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


# Attributes that don't change what a forward pass computes.
HARMLESS = frozenset(
    "_name_or_path architectures chunk_size_feed_forward dtype torch_dtype id2label label2id is_decoder "
    "is_encoder_decoder model_type output_attentions output_hidden_states problem_type return_dict "
    "transformers_version auto_map initializer_range use_cache bos_token_id eos_token_id pad_token_id "
    "tie_word_embeddings pretraining_tp n_ctx attention_dropout resid_pdrop embd_pdrop attn_pdrop hidden_dropout "
    "classifier_dropout task_specific_params summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout reorder_and_upcast_attn attn_implementation "
    "_attn_implementation_autoset gradient_checkpointing max_window_layers unsloth_version unsloth_fixed "
    "rope_theta rope_scaling "
    # What transformers 4 wrote into every config: generation and bookkeeping.
    "torchscript tie_encoder_decoder finetuning_task prefix max_length min_length do_sample early_stopping "
    "num_beams temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "num_return_sequences encoder_no_repeat_ngram_size num_beam_groups diversity_penalty return_dict_in_generate "
    "output_scores".split()
)


def check_config(config: Any) -> Family:
    """The family of a HuggingFace config; refuses by name what the runner doesn't handle, never ignores it."""
    kind = config.model_type
    if kind not in FAMILIES:
        raise unknown_name("model family", kind, list(FAMILIES))
    family = FAMILIES[kind]
    for name, value in config.to_dict().items():
        if name in family.demands and value not in family.demands[name]:
            allowed = " or ".join(repr(v) for v in family.demands[name])
            raise InputError(f"this {kind} config has {name} = {value!r}, which isn't handled; expected {allowed}")
        known = name in family.honours or name in family.demands or name in HARMLESS
        if not known and value not in (None, False, {}, []):
            raise InputError(f"this {kind} config has {name} = {value!r}, an attribute that isn't handled for {kind}")
    return family


def build_transformer(model: Any) -> Transformer:
    """The runner's view of a loaded HuggingFace causal language model, sharing its weights."""
    return check_config(model.config).build(model)


def _gpt2(model: Any) -> Transformer:
    config, body = model.config, model.transformer
    heads, width = config.n_head, config.n_embd
    d_head = width // heads

    def layer(block: Any) -> Layer:
        weight, bias = block.attn.c_attn.weight.T, block.attn.c_attn.bias
        q, k, v = (
            Projection(
                weight[i * width : (i + 1) * width].unflatten(0, (heads, d_head)), part.unflatten(0, (heads, d_head))
            )
            for i, part in enumerate(bias.split(width))
        )
        out = block.attn.c_proj.weight.T.unflatten(1, (heads, d_head))
        return Layer(_layer_norm(block.ln_1), q, k, v, out, block.attn.c_proj.bias, _layer_norm(block.ln_2), block.mlp)

    return Transformer(
        graph=Graph(config.n_layer, heads, width),
        d_head=d_head,
        layers=tuple(layer(block) for block in body.h),
        embed=body.wte,
        positions=body.wpe.weight,
        rotary=None,
        final_norm=_layer_norm(body.ln_f),
        unembed=model.lm_head.weight,
        attention_scale=d_head**-0.5,
        max_length=config.n_positions,
    )


def _llama(model: Any) -> Transformer:
    config, body = model.config, model.model
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    d_head = getattr(config, "head_dim", None) or config.hidden_size // heads

    def layer(index: int, block: Any) -> Layer:
        attention = block.self_attn
        return Layer(
            attention_norm=_rms_norm(block.input_layernorm),
            q=_projection(attention.q_proj, heads, 1),
            k=_projection(attention.k_proj, groups, heads // groups),
            v=_projection(attention.v_proj, groups, heads // groups),
            out=attention.o_proj.weight.unflatten(1, (heads, d_head)),
            out_bias=attention.o_proj.bias,
            mlp_norm=_rms_norm(block.post_attention_layernorm),
            mlp=block.mlp,
            window=_window(config, index),
        )

    return Transformer(
        graph=Graph(config.num_hidden_layers, heads, config.hidden_size),
        d_head=d_head,
        layers=tuple(layer(index, block) for index, block in enumerate(body.layers)),
        embed=body.embed_tokens,
        positions=None,
        rotary=body.rotary_emb,
        final_norm=_rms_norm(body.norm),
        unembed=model.lm_head.weight,
        attention_scale=d_head**-0.5,
        max_length=config.max_position_embeddings,
    )


def _window(config: Any, layer: int) -> int | None:
    """The sliding window of a layer, or None if it sees everything."""
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None)
    return window if kinds is None or kinds[layer] == "sliding_attention" else None


def _layer_norm(module: nn.LayerNorm) -> Norm:
    return Norm(module.weight, module.bias, module.eps, centred=True)


def _rms_norm(module: Any) -> Norm:
    return Norm(module.weight, None, module.variance_epsilon, centred=False)


def _projection(module: nn.Linear, heads: int, group: int) -> Projection:
    bias: Tensor | None = module.bias
    d_head = module.weight.shape[0] // heads
    split = None if bias is None else bias.unflatten(0, (heads, d_head))
    return Projection(module.weight.unflatten(0, (heads, d_head)), split, group)


_LLAMA = frozenset(
    (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
        "head_dim hidden_act max_position_embeddings rms_norm_eps rope_parameters attention_bias mlp_bias"
    ).split()
)
_WINDOWS = frozenset({"sliding_window", "use_sliding_window", "layer_types"})
_GPT2 = frozenset("vocab_size n_positions n_embd n_layer n_head n_inner activation_function layer_norm_epsilon".split())
_GPT2_DEMANDS = {
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(_gpt2, _GPT2, _GPT2_DEMANDS),
    "llama": Family(_llama, _LLAMA),
    "mistral": Family(_llama, _LLAMA | _WINDOWS),
    "qwen2": Family(_llama, _LLAMA | _WINDOWS),
}
