"""Tiny random HuggingFace models of every family, and random prompt pairs of uneven length."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

# Two test processes on two cores: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import numpy as np
import pytest
import torch
import transformers

from edgewise.learn import TopKLearner
from edgewise.models import Model, load_model, wrap_model
from edgewise.report import figures
from edgewise.report.figures.style import NotebookFigure
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
SHARED = Path(__file__).resolve().parents[2] / "shared"
# What EAP-IG made of a random model of a family (tests/parity/data/README.md): our own folders, and larger ones where
# the shared reference data is.
PARITY = {
    f"{place}/{name}": root / name
    for place, root in (("own", Path(__file__).with_name("parity") / "data"), ("shared", SHARED / "fixtures"))
    for name in ("gpt2", "qwen2", "gemma2")
    if root.is_dir()
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file, and all browser tests, in one process: it makes what they share once.

    Tests of laws and fuzz tests share little: each goes to the process that is free, at the end of the run.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            folder = Path(path).parent.name
            return {"browser": folder, "laws": nodeid, "fuzz": nodeid}.get(folder, path)

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter) -> None:
    """List why tests were skipped, one line per reason."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}", yellow=True)


WIDE = {"vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "max_position_embeddings": 32}  # fmt: skip
SIZES = WIDE | {"hidden_size": 20, "intermediate_size": 28, "num_attention_heads": 4, "num_key_value_heads": 2}
NARROW = SIZES | {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
GEMMA = SIZES | {"num_hidden_layers": 3, "head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 9}
NEOX_ROPE = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"}
NEOX = WIDE | {"intermediate_size": 40, "rope_parameters": NEOX_ROPE}
# Wavelengths on both sides of the borders.
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
# Family -> its class in transformers and the fields of its config.
FAMILIES: dict[str, tuple[str, dict]] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 24, "n_layer": 3, "n_head": 3}),
    # Grouped queries, a head size that isn't width / heads, biases in attention and MLP.
    "llama": ("LlamaForCausalLM", SIZES | {"head_dim": 6, "attention_bias": True, "mlp_bias": True}),
    "qwen2": (
        "Qwen2ForCausalLM",
        SIZES
        | {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 6}
        | {"tie_word_embeddings": True},
    ),
    # A window shorter than the prompts.
    "mistral": ("MistralForCausalLM", NARROW | {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4}),
    # Rope scaling as in Llama 3.1.
    "llama3": (
        "LlamaForCausalLM",
        NARROW | {"max_position_embeddings": 64, "rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True},
    ),
    # Norms of q and k.
    "qwen3": ("Qwen3ForCausalLM", SIZES | {"head_dim": 6}),
    # Norms only after attention and MLP, norms of q and k over all heads, grouped queries, biases in attention.
    "olmo2": ("Olmo2ForCausalLM", SIZES | {"hidden_size": 24, "pad_token_id": None, "attention_bias": True}),
    # Fused projections, a window shorter than the prompts, a rotary embedding of a part of each head.
    "phi3": (
        "Phi3ForCausalLM",
        SIZES | {"hidden_size": 32, "pad_token_id": None, "sliding_window": 4, "partial_rotary_factor": 0.5},
    ),
    "opt": ("OPTForCausalLM", WIDE | {"ffn_dim": 40, "pad_token_id": None}),
    # Norms before and after, soft caps, a window on every other layer, its own query scale.
    "gemma2": ("Gemma2ForCausalLM", GEMMA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    # Norms of q and k too, and two rotary embeddings.
    "gemma3": (
        "Gemma3ForCausalLM",
        GEMMA | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    ),
    # A rotary embedding of a part of each head; attention and MLP in parallel, or not.
    "neox": ("GPTNeoXForCausalLM", NEOX | {"use_parallel_residual": True}),
    "neox-sequential": ("GPTNeoXForCausalLM", NEOX | {"use_parallel_residual": False}),
}


# Layer norms; grouped queries and norms of q and k; attention and MLP in parallel; norms after attention and soft caps.
KINDS = ("gpt2", "qwen3", "neox", "gemma2")


def first_in_every_family(argument: str, values: Iterable[Any], kinds: Sequence[str] = KINDS) -> pytest.MarkDecorator:
    """Run a test of `family` and an argument: its first value in every family, the others in one of each kind."""
    first, *others = values
    pairs = [(family, first) for family in sorted(FAMILIES)]
    pairs += [(family, value) for value in others for family in kinds]
    return pytest.mark.parametrize(f"family, {argument}", pairs, ids=lambda value: getattr(value, "name", str(value)))


def build(family: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.nn.Module:
    """A random model with large weights and uneven norms and biases, so that no part of it hides."""
    name, fields = FAMILIES[family]
    kind = getattr(transformers, name)
    torch.manual_seed(seed)
    model = kind(kind.config_class(**copy.deepcopy(fields)))
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


@pytest.fixture(autouse=True, scope="module")
def empty_figure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawing takes most of the time that writing a result does, and has tests of its own: others draw an empty figure.

    For the whole module, so that also results that the tests of a module share are written with it.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != "test_figures.py":
            patch.setattr(figures, "FIGURES", {"faithfulness": lambda *_: NotebookFigure(figsize=(1, 1))})
            patch.setattr(figures, "study_figure", lambda *_: NotebookFigure(figsize=(1, 1)))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_sync() -> Iterator[None]:
    """Files of tests need not survive a power cut, so tests do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def edgewise() -> Callable[..., tuple[int, str, str]]:
    """A function that runs a command in this process and returns its exit code, stdout and stderr."""
    from commands import run_command

    return run_command


@pytest.fixture(scope="session")
def demo() -> Model:
    """The embedded model."""
    return load_model("demo")


@pytest.fixture(scope="session")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of scores of the embedded model on 20 examples. Tests must not change it."""
    from commands import run_json

    folder = tmp_path_factory.mktemp("scores") / "scores"
    run_json("score", "--examples", 20, "--out", folder)
    return folder


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, `discover` learns rankings, which takes most of its time: here with few steps."""
    monkeypatch.setattr("edgewise.pipeline.TopKLearner", partial(TopKLearner, steps=10))


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


build_once = cache(build)


@cache
def wrap_once(family: str) -> Model:
    return wrap_model(build_once(family), name="tiny")


@pytest.fixture
def loaded(family: str) -> torch.nn.Module:
    """A tiny model of a family. Tests must not change it: all share it."""
    return build_once(family)


@pytest.fixture
def model(family: str) -> Model:
    """A model of `loaded`. Tests must not change it."""
    return wrap_once(family)


@pytest.fixture
def task() -> Task:
    return random_task()


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared reference data isn't here")
    return SHARED


@pytest.fixture(scope="module", params=PARITY)
def parity_folder(request: pytest.FixtureRequest) -> Path:
    return PARITY[request.param]


def in_parity_folders(condition: Callable[[Path], bool]) -> pytest.MarkDecorator:
    """Run a test in the folders that fulfil a condition only."""
    names = [name for name, folder in PARITY.items() if condition(folder)]
    return pytest.mark.parametrize("parity_folder", names, indirect=True, scope="module")
