"""In half precision, only the model's own passes are narrow: what is made of them is summed in float32."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import Circuit, Eap, EapIg, InputError, Session, Store, evaluate_circuits, score_edges
from edgewise.models import make_batch, wrap_model
from edgewise.models.prepare import prepare
from edgewise.score import MaskIg
from edgewise.tasks import Accuracy, Kl, LogitDifference

SHAPED = ("gpt2", "llama", "gemma2", "neox", "olmo2")
# What the passes themselves lose: eight bits of a bfloat16, eleven of a float16.
LOST = {torch.bfloat16: 0.01, torch.float16: 0.0003}


def prepare_task(model):
    return prepare(model.transformer, make_batch(random_task(5).examples, model.transformer.device))


def compare_circuits(narrow, circuit_shares, tolerance):
    """Circuits of a narrow model differ from those of the same weights in float32 by at most a share of their range."""
    models, rng = [wrap_model(narrow), wrap_model(deepcopy(narrow).float())], np.random.default_rng(0)
    graph = models[0].graph
    circuits = [Circuit(graph, rng.random(graph.n_edges) < share) for share in circuit_shares]
    found, expected = (evaluate_circuits(model, random_task(5, seed=3), circuits) for model in models)
    assert np.abs(found.values - expected.values).max() < tolerance * np.abs(expected.full - expected.empty).max()


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("family", SHAPED)
def test_scores_and_circuits_are_those_of_float32_but_for_the_passes(family, dtype):
    narrow = build(family, torch.float32).to(dtype)
    models = [wrap_model(narrow), wrap_model(deepcopy(narrow).float())]
    task = random_task(5, seed=3)
    for scorer, metric in ((Eap(), LogitDifference()), (EapIg(3), Kl()), (MaskIg(3), LogitDifference())):
        found, expected = (score_edges(model, task, scorer, metric).values.ravel() for model in models)
        assert np.corrcoef(found, expected)[0, 1] > 1 - LOST[dtype], scorer
    compare_circuits(narrow, (0.3, 0.9), 10 * np.sqrt(LOST[dtype]))


def test_large_streams_are_normed_before_they_are_multiplied():
    """Or else a float16 would overflow. Larger writes make no difference after norms, nor q that keys make up for."""
    narrow = build("llama", torch.float32)
    times = {"embed_tokens": 300, "o_proj": 300, "down_proj": 300, "q_proj": 50, "k_proj": 1 / 50}
    for name, weight in narrow.named_parameters():
        weight.data *= times.get(name.split(".")[-2], 1)
    compare_circuits(narrow.to(torch.float16), (0.9,), 0.1)


@pytest.mark.parametrize("family", SHAPED)
def test_differences_of_runs_lose_nothing(family):
    """The runs are narrow, what lies between them isn't: as in float64, but for the rounding of float32."""
    model = wrap_model(build(family, torch.bfloat16))
    batch = prepare_task(model)
    clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
    (found,) = batch.differences(clean, corrupted).parts
    for index, layer in enumerate(batch.model.layers):
        mix = corrupted.mix[index].double() - clean.mix[index].double()
        heads = torch.einsum("bphe,dhe->bhpd", mix, layer.out.double())
        first = model.graph.n_attention_sources(index)
        torch.testing.assert_close(
            found[:, first : first + model.graph.n_heads].double(), heads, rtol=1e-5, atol=1e-6 * heads.abs().max()
        )
        mlp = corrupted.mlp_out[index].double() - clean.mlp_out[index].double()
        torch.testing.assert_close(found[:, model.graph.mlp_source_index(index)].double(), mlp, rtol=1e-6, atol=0)


@pytest.mark.parametrize("all_logits", [False, True])
@pytest.mark.parametrize("family", SHAPED)
def test_logits_are_read_in_float32(family, all_logits, monkeypatch):
    """Gradients of the stream, too; all logits in parts."""
    monkeypatch.setattr("edgewise.models.prepare.TOKENS_AT_ONCE", 10)
    narrow = build(family, torch.bfloat16)
    stream = torch.randn((5, narrow.config.hidden_size), generator=torch.manual_seed(0)).bfloat16()
    results = []
    for loaded, dtype in ((narrow, torch.bfloat16), (deepcopy(narrow).double(), torch.float64)):
        leaf = stream.to(dtype).requires_grad_()
        readout = prepare_task(wrap_model(loaded)).read_stream(leaf, all_logits)
        logits = readout.logits if all_logits else readout.answer_logits
        results.append((logits, *torch.autograd.grad(logits.square().sum(), leaf)))
    (logits, gradient), (expected, expected_gradient) = results
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), expected, rtol=1e-4, atol=1e-4)
    atol = 1e-2 * expected_gradient.abs().max()
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-2, atol=atol)


@pytest.mark.parametrize("family", SHAPED)
def test_gradients_of_weights_are_summed_over_examples_in_float32(family):
    model = wrap_model(build(family, torch.bfloat16))
    batch = prepare_task(model)
    reference = batch.run(batch.corrupted)
    shared = torch.full((model.graph.n_edges,), 0.5, requires_grad=True)
    own = shared.detach().expand(len(batch.last), -1).clone().requires_grad_()
    total, each = (
        torch.autograd.grad(batch.run_weighted(weights, reference).float().square().sum(), weights)[0].double()
        for weights in (shared, own)
    )
    torch.testing.assert_close(total, each.sum(0), rtol=1e-5, atol=1e-5 * total.abs().max())


@pytest.mark.parametrize("metric", [LogitDifference(), Kl(), Accuracy()], ids=lambda metric: metric.name)
def test_an_overflow_is_an_error(metric, tmp_path):
    """Not a metric of NaN, nor an accuracy of 0; and what is stored is not taken for finished work."""
    narrow = build("llama", torch.float32)
    for name, weight in narrow.named_parameters():
        weight.data *= {"gate_proj": 40, "up_proj": 40, "down_proj": 8}.get(name.split(".")[-2], 1)
    model, session = wrap_model(narrow.to(torch.float16)), Session(Store(tmp_path))
    for _ in range(2):
        with pytest.raises(InputError, match=r"NaN or infinite on 5 of the 5 examples .*dtype='float32'"):
            evaluate_circuits(model, random_task(5), [Circuit.full(model.graph)], metric, session=session)
