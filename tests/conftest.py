"""Tiny random HuggingFace models of every family, and random prompt pairs of uneven length."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Two test processes on two cores: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from edgewise.models import Model, wrap_model
from edgewise.tasks import Example, Task

torch.set_num_threads(1)
VOCABULARY = 67
SHARED = Path(__file__).resolve().parents[2] / "shared"


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


FAMILIES: dict[str, Callable[[], torch.nn.Module]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "qwen2": _qwen2,
    "mistral": _mistral,
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
