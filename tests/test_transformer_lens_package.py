"""Models of the package transformer-lens have their own logits. Without the package, this file is skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from conftest import VOCABULARY, build
from test_transformer_lens import check_equal
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from edgewise.models import wrap_model

lens = pytest.importorskip("transformer_lens", reason="transformer-lens isn't installed")
LAYER_NORMS = {"act_fn": "gelu_new", "normalization_type": "LN"}
ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 8}
GATED = {"act_fn": "silu", "normalization_type": "RMS", "gated_mlp": True, "final_rms": True, **ROTARY}
STRUCTURES = {
    "gpt2": LAYER_NORMS,
    "neox": LAYER_NORMS | ROTARY | {"rotary_dim": 4, "parallel_attn_mlp": True},
    "neox-sequential": LAYER_NORMS | ROTARY,
    "llama": GATED,
    "llama-grouped": GATED | {"n_key_value_heads": 1},
}


@pytest.mark.skipif(not hasattr(lens, "HookedTransformer"), reason="transformer-lens 4 has no HookedTransformer")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("process", [False, True], ids=["plain", "processed"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_models_of_transformer_lens_have_their_own_logits(structure, process):
    """Processed as by `from_pretrained`: folded norms, centred weights, a bias of the unembedding."""
    kind, config_kind = lens.HookedTransformer, lens.HookedTransformerConfig
    options = STRUCTURES[structure]
    sizes = {"n_layers": 2, "d_model": 24, "n_ctx": 32, "d_head": 8, "n_heads": 3, "d_mlp": 40, "d_vocab": VOCABULARY}
    module = kind(config_kind(**sizes, **options, device="cpu"))
    torch.manual_seed(0)
    for name, weight in module.named_parameters():
        weight.data = torch.randn_like(weight) * 0.3 + name.endswith(".w")
        if options.get("gated_mlp") and name.endswith("b_in"):
            weight.data.zero_()
    if process:
        module.process_weights_(center_writing_weights=options["normalization_type"] == "LN")
    check_equal(wrap_model(module), module)


@pytest.mark.skipif(not find_spec("transformer_lens.model_bridge"), reason="needs transformer-lens 3 or later")
@pytest.mark.parametrize("family", ["gpt2", "neox", "llama3", "qwen2"])
@pytest.mark.parametrize("process", [False, True], ids=["plain", "processed"])
def test_bridges_of_transformer_lens_have_their_own_logits(tmp_path, family, process):
    from transformer_lens.model_bridge import TransformerBridge

    words = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w1", pad_token="w1").save_pretrained(
        tmp_path
    )
    build(family, torch.float32).save_pretrained(tmp_path)
    bridge = TransformerBridge.boot_transformers(str(tmp_path), device="cpu")
    if process:
        bridge.enable_compatibility_mode()
    model = wrap_model(bridge)
    check_equal(model, bridge)
    assert model.tokenizer is bridge.tokenizer
