"""Laws of node and neuron scores, and of node and neuron circuits, for every model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import FAMILIES, random_task
from slow import SlowExample, SlowModel

from edgewise import Eap
from edgewise.models import make_batch
from edgewise.models.prepare import prepare
from edgewise.score.first_order import run_with_gradients
from edgewise.score.run_scorer import score_edges
from edgewise.tasks import LogitDifference

METRIC = LogitDifference()


def slow_output_scores(slow: SlowModel, example, point: torch.Tensor) -> np.ndarray:
    """[source, d_model] (corrupted - clean output) times the gradient at the output, by autograd, over positions."""
    runs = SlowExample(slow, list(example.clean), list(example.corrupted), (example.correct, example.incorrect))
    outputs, logits = slow.run(point.detach().requires_grad_(), slow.combine)
    loss = -(logits[example.correct] - logits[example.incorrect])
    gradients = torch.autograd.grad(loss, list(outputs.values()), materialize_grads=True)
    terms = [
        ((runs.corrupted[name] - runs.clean[name]) * gradient).sum(0)
        for name, gradient in zip(outputs, gradients, strict=True)
    ]
    return torch.stack(terms).detach().numpy()


@pytest.mark.parametrize("share", [1.0, 0.4], ids=["clean", "between"])
def test_output_scores_are_those_of_autograd(loaded, model, share):
    """At the clean run, and at one between the corrupted and the clean embedding."""
    task, slow = random_task(3, seed=5, longest=7), SlowModel(loaded)
    batch = prepare(model.transformer, make_batch(task.examples, model.transformer.device))
    clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
    readout = batch.read_out(clean, False)
    gradients = run_with_gradients(batch, METRIC, batch.corrupted.lerp(batch.clean, share), readout)[-1]
    differences = batch.differences(clean, corrupted)
    scores = batch.contract_outputs(differences, [gradients], by_dimension=True).numpy()
    for row, example in enumerate(task.examples):
        ends = [slow.embed(list(tokens)) for tokens in (example.corrupted, example.clean)]
        expected = slow_output_scores(slow, example, ends[0].lerp(ends[1], share))
        assert list(model.graph.source_names)[0] == "input"
        np.testing.assert_allclose(scores[row], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    by_node = batch.contract_outputs(differences, [gradients, gradients]).numpy()
    np.testing.assert_allclose(by_node, scores.sum(-1), rtol=1e-9, atol=1e-9 * np.abs(by_node).max())


def test_a_nodes_score_is_the_sum_over_its_out_edges(model):
    task = random_task(3, seed=6)
    batch = prepare(model.transformer, make_batch(task.examples, model.transformer.device))
    clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
    gradients = run_with_gradients(batch, METRIC, batch.clean, batch.read_out(clean, False))[-1]
    differences = batch.differences(clean, corrupted)
    edges, nodes = batch.contract(differences, [gradients]), batch.contract_outputs(differences, [gradients])
    summed = torch.zeros_like(nodes).index_add_(1, torch.as_tensor(model.graph.edge_source.astype(np.int64)), edges)
    torch.testing.assert_close(nodes, summed, rtol=1e-9, atol=1e-9)
