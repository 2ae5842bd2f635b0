"""Tiny random HuggingFace models of every family, and random prompt pairs of uneven length."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

# Two test processes on two cores: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from edgewise.models import Model, wrap_model
from edgewise.report import figures
from edgewise.tasks import Example, Task

torch.set_num_threads(1)
# The same examples every time, and no limit of time: a failure is one of the change at hand, not of a busy machine.
hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")
VOCABULARY = 67
# Their tests share a result folder, which takes seconds to make.
FILES_WITH_A_RESULT = (
    "test_circuit_summary.py", "test_readme.py", "test_results.py", "test_terminal.py", "test_untrusted_text.py",
    "test_view.py",
)  # fmt: skip
# Seconds that a test waits for another process, on a machine that is busy with other work.
PATIENCE = 300
SHARED = Path(__file__).resolve().parents[2] / "shared"
# What EAP-IG computes: our own folders, and larger ones where the shared reference data is.
PARITY = {"own": Path(__file__).with_name("parity") / "data", "shared": SHARED / "fixtures"}


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Fail with `what` was waited for if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.01)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file that share a result in one process, which makes it once."""
    for item in items:
        if item.path.name in FILES_WITH_A_RESULT:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_terminal_summary(terminalreporter) -> None:
    """List why tests were skipped, one line per reason."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}", yellow=True)


def _gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=24, n_layer=3, n_head=3))


def _llama() -> LlamaForCausalLM:
    """Grouped queries, a head size that isn't width / heads, biases in attention and MLP."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=20,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        max_position_embeddings=32,
        attention_bias=True,
        mlp_bias=True,
    )
    return LlamaForCausalLM(config)


def _qwen2() -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def _mistral() -> MistralForCausalLM:
    """A window shorter than the prompts."""
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=32,
        sliding_window=4,
    )
    return MistralForCausalLM(config)


def _llama3() -> LlamaForCausalLM:
    """Rope scaling as in Llama 3.1, with wavelengths on both sides of its borders."""
    scaling = {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters=scaling,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def _qwen3() -> Qwen3ForCausalLM:
    """Norms of q and k."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=20,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        max_position_embeddings=32,
    )
    return Qwen3ForCausalLM(config)


def _olmo2() -> Olmo2ForCausalLM:
    """Norms only after attention and MLP, norms of q and k over all heads, grouped queries, biases in attention."""
    config = Olmo2Config(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=None,
        attention_bias=True,
    )
    return Olmo2ForCausalLM(config)


def _phi3() -> Phi3ForCausalLM:
    """Fused projections, a window shorter than the prompts, a rotary embedding of a part of each head."""
    config = Phi3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=None,
        sliding_window=4,
        partial_rotary_factor=0.5,
    )
    return Phi3ForCausalLM(config)


def _opt() -> OPTForCausalLM:
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        ffn_dim=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=32,
        pad_token_id=None,
    )
    return OPTForCausalLM(config)


GEMMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 32,
    "sliding_window": 4,
    "query_pre_attn_scalar": 9,
}


def _gemma2() -> Gemma2ForCausalLM:
    """Norms before and after, soft caps, a window on every other layer, its own query scale."""
    return Gemma2ForCausalLM(Gemma2Config(**GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0))


def _gemma3() -> Gemma3ForCausalLM:
    """Norms of q and k too, and two rotary embeddings."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, layer_types=kinds))


def _neox(parallel: bool) -> Callable[[], GPTNeoXForCausalLM]:
    """A rotary embedding of a part of each head; attention and MLP in parallel, or not."""
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=32,
        use_parallel_residual=parallel,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"},
    )
    return lambda: GPTNeoXForCausalLM(config)


FAMILIES: dict[str, Callable[[], torch.nn.Module]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "qwen2": _qwen2,
    "mistral": _mistral,
    "llama3": _llama3,
    "qwen3": _qwen3,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "opt": _opt,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "neox": _neox(parallel=True),
    "neox-sequential": _neox(parallel=False),
}


def build(family: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.nn.Module:
    """A random model with large weights and uneven norms and biases, so that no part of it hides."""
    torch.manual_seed(seed)
    model = FAMILIES[family]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.35 if parameter.ndim > 1 else 0.3
            noise = torch.randn_like(parameter) * scale
            parameter.copy_(
                1 + noise if parameter.ndim == 1 and "norm" in name.lower().replace("ln_", "norm_") else noise
            )
    # Attention by the plain formula, in the reference too.
    model.set_attn_implementation("eager")
    return model.to(dtype).eval()


def random_task(count: int = 7, seed: int = 0, shortest: int = 5, longest: int = 11) -> Task:
    """Prompt pairs of uneven length that differ in one or two places, some at the very start."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        length = int(rng.integers(shortest, longest + 1))
        clean = rng.integers(VOCABULARY, size=length)
        corrupted = clean.copy()
        for place in rng.choice(length, size=2, replace=False):
            corrupted[place] = (clean[place] + rng.integers(1, VOCABULARY)) % VOCABULARY
        correct, incorrect = rng.choice(VOCABULARY, size=2, replace=False)
        examples.append(Example(tuple(clean.tolist()), tuple(corrupted.tolist()), int(correct), int(incorrect)))
    return Task("random", "all", tuple(examples))


@pytest.fixture(autouse=True)
def one_figure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time that writing a result does, and has tests of its own: others draw one figure."""
    if request.path.name != "test_figures.py":
        name = "faithfulness"
        monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name]})


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that is tested is kept in the user's cache."""
    os.environ["EDGEWISE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def loaded(family: str) -> torch.nn.Module:
    return build(family)


@pytest.fixture
def model(loaded: torch.nn.Module) -> Model:
    return wrap_model(loaded, name="tiny")


@pytest.fixture
def task() -> Task:
    return random_task()


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared reference data isn't here")
    return SHARED


@pytest.fixture(scope="module", params=[f"{place}/{name}" for place in PARITY for name in ("gpt2", "qwen2", "gemma2")])
def parity_folder(request: pytest.FixtureRequest) -> Path:
    """A random model of a family, and what EAP-IG made of it: see tests/parity/data/README.md."""
    place, name = request.param.split("/")
    if place == "shared" and not PARITY[place].is_dir():
        pytest.skip("the shared reference data isn't here")
    return PARITY[place] / name
