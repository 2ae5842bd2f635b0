"""In half precision, only the model's own passes are narrow: what is made of them is summed in float32."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import Circuit, Eap, EapIg, evaluate_circuits, score_edges
from edgewise.models import make_batch, wrap_model
from edgewise.models.gradients import source_differences
from edgewise.models.prepare import prepare
from edgewise.models.weighted import run_weighted
from edgewise.score import MaskIg
from edgewise.tasks import Kl, LogitDifference

SHAPED = ("gpt2", "llama", "gemma2", "neox")
# What the passes themselves lose: eight bits of a bfloat16, eleven of a float16.
LOST = {torch.bfloat16: 0.01, torch.float16: 0.0003}


def ready_for(model, seed=0):
    return prepare(model.transformer, make_batch(random_task(5, seed).examples, model.transformer.device))


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("family", SHAPED)
def test_scores_and_circuits_are_those_of_float32_but_for_the_passes(family, dtype):
    narrow = build(family, torch.float32).to(dtype)
    models = [wrap_model(narrow), wrap_model(deepcopy(narrow).float())]
    task = random_task(5, seed=3)
    for scorer, metric in ((Eap(), LogitDifference()), (EapIg(3), Kl()), (MaskIg(3), LogitDifference())):
        found, expected = (score_edges(model, task, scorer, metric).values.ravel() for model in models)
        assert np.corrcoef(found, expected)[0, 1] > 1 - LOST[dtype], scorer
    rng = np.random.default_rng(0)
    circuits = [Circuit(models[0].graph, rng.random(models[0].graph.n_edges) < share) for share in (0.3, 0.9)]
    found, expected = (evaluate_circuits(model, task, circuits) for model in models)
    scale = np.abs(expected.full - expected.empty).max()
    assert np.abs(found.values - expected.values).max() < 10 * np.sqrt(LOST[dtype]) * scale


def test_large_streams_are_normed_before_they_are_multiplied():
    """Or else a float16 would overflow. Larger writes make no difference after norms, nor q that keys make up for."""
    narrow = build("llama", torch.float32)
    times = {"embed_tokens": 300, "o_proj": 300, "down_proj": 300, "q_proj": 50, "k_proj": 1 / 50}
    for name, weight in narrow.named_parameters():
        weight.data *= times.get(name.split(".")[-2], 1)
    narrow.to(torch.float16)
    models = [wrap_model(narrow), wrap_model(deepcopy(narrow).float())]
    circuits = [Circuit(models[0].graph, np.random.default_rng(0).random(models[0].graph.n_edges) < 0.9)]
    found, expected = (evaluate_circuits(model, random_task(5, seed=3), circuits) for model in models)
    scale = np.abs(expected.full - expected.empty).max()
    assert np.abs(found.values - expected.values).max() < 0.1 * scale


@pytest.mark.parametrize("family", SHAPED)
def test_differences_of_runs_lose_nothing(family):
    """The runs are narrow, what lies between them isn't: as in float64, but for the rounding of float32."""
    model = wrap_model(build(family, torch.bfloat16))
    ready = ready_for(model)
    with torch.no_grad():
        clean, corrupted = ready.run(ready.clean), ready.run(ready.corrupted)
        (found,) = source_differences(ready.model, clean, corrupted)
    for index, layer in enumerate(ready.model.layers):
        mix = corrupted.mix[index].double() - clean.mix[index].double()
        heads = torch.einsum("bphe,dhe->bhpd", mix, layer.out.double())
        first = model.graph.attention_sources(index)
        torch.testing.assert_close(
            found[:, first : first + model.graph.n_heads].double(), heads, rtol=1e-5, atol=1e-6 * heads.abs().max()
        )
        mlp = corrupted.mlp_out[index].double() - clean.mlp_out[index].double()
        torch.testing.assert_close(found[:, model.graph.mlp_source(index)].double(), mlp, rtol=1e-6, atol=0)


@pytest.mark.parametrize("all_logits", [False, True])
@pytest.mark.parametrize("family", SHAPED)
def test_logits_are_read_in_float32(family, all_logits, monkeypatch):
    """Gradients of the stream, too; all logits in parts."""
    monkeypatch.setattr("edgewise.models.forward.TOKENS_AT_ONCE", 10)
    narrow = build(family, torch.bfloat16)
    stream = torch.randn((5, narrow.config.hidden_size), generator=torch.manual_seed(0)).bfloat16()
    found = []
    for loaded, kind in ((narrow, torch.bfloat16), (deepcopy(narrow).double(), torch.float64)):
        given = stream.to(kind).requires_grad_()
        readout = ready_for(wrap_model(loaded)).read_stream(given, all_logits)
        said = readout.logits if all_logits else readout.answer_logits
        (gradient,) = torch.autograd.grad(said.square().sum(), given)
        found.append((said, gradient))
    (said, gradient), (expected, by_hand) = found
    assert said.dtype == torch.float32
    torch.testing.assert_close(said.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient.double(), by_hand, rtol=1e-2, atol=1e-2 * by_hand.abs().max())


@pytest.mark.parametrize("family", SHAPED)
def test_gradients_of_weights_are_summed_over_examples_in_float32(family):
    model = wrap_model(build(family, torch.bfloat16))
    ready = ready_for(model)
    with torch.no_grad():
        reference = ready.run(ready.corrupted)
    shared = torch.full((model.graph.n_edges,), 0.5, requires_grad=True)
    own = shared.detach().expand(len(ready.last), -1).clone().requires_grad_()
    found = []
    for weights in (shared, own):
        stream = run_weighted(ready.model, weights, ready.clean, reference, ready.frame, ready.last)
        found += torch.autograd.grad(stream.float().square().sum(), weights)
    torch.testing.assert_close(found[0].double(), found[1].double().sum(0), rtol=1e-5, atol=1e-5 * found[0].abs().max())
