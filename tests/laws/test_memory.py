"""A run keeps to the memory that it is given: what torch allocates at its peak, beyond the model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from edgewise import Circuit, Eap, EapIg, Example, Mean, Patching, Task, evaluate_circuits, score_edges
from edgewise.models import wrap_model

VOCABULARY, LENGTH, BUDGET = 50, 12, 40_000_000
# Estimates are rounded to whole examples, a tenth of these batches or less, and circuits differ.
FACTOR = 1.5


@pytest.fixture(scope="module", params=[(4, 8, 256), (3, 4, 384)], ids=["4x8x256", "3x4x384"])
def model(request):
    """GPT-2's shape, but small."""
    layers, heads, width = request.param
    torch.manual_seed(0)
    shape = {"n_layer": layers, "n_head": heads, "n_embd": width, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    return wrap_model(GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0)).eval(), name="small")


def prompts(count):
    """Pairs of one length that differ in their first token, so that nothing is shared."""
    rng = np.random.default_rng(0)
    rows = rng.integers(1, VOCABULARY, size=(count, LENGTH)).tolist()
    return Task("random", "all", tuple(Example(tuple(row), (row[0] - 1, *row[1:]), 1, 2) for row in rows))


def peak(work, folder):
    """The most bytes that torch held at once during `work` on top of those before it, by its own trace."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    events = sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"])
    return int(np.cumsum([event["args"]["Bytes"] for event in events]).max())


# About twice as many examples as fit.
@pytest.mark.parametrize("scorer, count", [(Eap(), 30), (EapIg(5), 20), (EapIg(20), 10)])
def test_scoring_fits_into_its_memory_and_makes_use_of_it(model, scorer, count, tmp_path):
    used = peak(lambda: score_edges(model, prompts(count), scorer, memory=BUDGET), tmp_path)
    assert BUDGET / FACTOR < used < BUDGET * FACTOR


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("ablation", [Patching(), Mean()], ids=lambda one: one.name)
def test_evaluation_fits_into_its_memory_and_makes_use_of_it(model, ablation, share, tmp_path):
    mask = np.random.default_rng(0).random(model.graph.n_edges) < share
    circuits = [Circuit(model.graph, mask)]
    used = peak(lambda: evaluate_circuits(model, prompts(50), circuits, ablation=ablation, memory=BUDGET), tmp_path)
    # Of a small circuit less runs than is planned for.
    assert BUDGET / (FACTOR if share > 0.1 else 2) < used < BUDGET * FACTOR
