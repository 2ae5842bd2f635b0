"""Laws of node and neuron scores, and of node and neuron circuits, for every model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import KINDS, build, first_in_every_family, random_task
from slow import SlowExample, SlowModel

from edgewise import CPR, Circuit, Eap, EapIg, InputError, TopKLearner
from edgewise.evaluate import Mean, Patching, PositionalMean, Zero
from edgewise.evaluate.run_circuits import evaluate_circuits
from edgewise.graph import NeuronGraph, NodeGraph, graph_of_level
from edgewise.learn import EdgePruning
from edgewise.learn.base import LearningProblem
from edgewise.learn.run_learner import learn_ranking
from edgewise.learn.training import StepRunner
from edgewise.models import wrap_model
from edgewise.models.memory import BUDGET
from edgewise.runtime.local_engine import Local
from edgewise.score import (
    AttnLrp,
    CleanCorrupted,
    EapIgActivations,
    Exact,
    ExpectedGradients,
    Gim,
    GradDrop,
    InformationFlowRoutes,
    MaskIg,
    RelP,
    RelPQk,
)
from edgewise.score.exact import ExactEdges
from edgewise.score.run_scorer import score_edges
from edgewise.tasks import LogitDifference

METRIC = LogitDifference()
# Every ablation.
REPLACED = [Patching(), Zero(), Mean(), PositionalMean()]
# Every scorer of both levels, with few steps.
LINEAR = [
    Eap(), EapIg(3), CleanCorrupted(), ExpectedGradients(), EapIgActivations(2), Gim(), RelP(), RelPQk(), AttnLrp(),
    MaskIg(2),
]  # fmt: skip
IN_KINDS = pytest.mark.parametrize("family", KINDS)


def slow_example(slow: SlowModel, example) -> SlowExample:
    return SlowExample(slow, list(example.clean), list(example.corrupted), (example.correct, example.incorrect))


def slow_output_scores(slow: SlowModel, example, point: torch.Tensor) -> np.ndarray:
    """[source, d_model] (corrupted - clean output) times the gradient at the output, by autograd, over positions."""
    runs = slow_example(slow, example)
    outputs, logits = slow.run(point.detach().requires_grad_(), slow.combine)
    loss = -(logits[example.correct] - logits[example.incorrect])
    gradients = torch.autograd.grad(loss, list(outputs.values()), materialize_grads=True)
    terms = [
        ((runs.corrupted[name] - runs.clean[name]) * gradient).sum(0)
        for name, gradient in zip(outputs, gradients, strict=True)
    ]
    return torch.stack(terms).detach().numpy()


@first_in_every_family("scorer", [EapIg(2), Eap()])
def test_neuron_scores_are_those_of_autograd(loaded, model, scorer):
    shares = [1.0] if scorer == Eap() else [0.0, 0.5]
    task, slow = random_task(3, seed=5, longest=7), SlowModel(loaded)
    neurons = score_edges(model, task, scorer, level="neuron")
    assert neurons.graph == NeuronGraph(model.graph)
    scores = neurons.values.reshape(3, model.graph.n_sources, -1)
    for row, example in enumerate(task.examples):
        start, end = (slow.embed(list(tokens)) for tokens in (example.corrupted, example.clean))
        expected = np.mean([slow_output_scores(slow, example, start.lerp(end, share)) for share in shares], axis=0)
        np.testing.assert_allclose(scores[row], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    nodes = score_edges(model, task, scorer, level="node").values
    np.testing.assert_allclose(nodes, scores.sum(-1), rtol=1e-4, atol=1e-5 * np.abs(nodes).max())


@IN_KINDS
@pytest.mark.parametrize("scorer", LINEAR, ids=lambda scorer: scorer.name)
def test_a_nodes_score_is_the_sum_over_its_out_edges(model, scorer):
    task = random_task(3, seed=6)
    edges, nodes = (score_edges(model, task, scorer, level=level).values for level in ("edge", "node"))
    summed = np.zeros_like(nodes)
    np.add.at(summed, (slice(None), model.graph.edge_source), edges)
    np.testing.assert_allclose(nodes, summed, rtol=1e-3, atol=1e-5 * np.abs(summed).max())


@IN_KINDS
def test_grad_drop_of_a_node_is_the_mean_absolute_sum(loaded, model):
    task, slow = random_task(2, seed=7, longest=7), SlowModel(loaded)
    scores = score_edges(model, task, GradDrop(), level="node").values
    for row, example in enumerate(task.examples):
        runs = slow_example(slow, example)
        total = dict.fromkeys(model.graph.source_names, 0.0)
        for layer in range(model.graph.n_layers):
            sums = dict.fromkeys(total, 0.0)
            for name, value in runs.gradient_scores(runs.end, dropped=layer).items():
                sums[name.split("->")[0]] += value
            total = {name: total[name] + abs(value) / model.graph.n_layers for name, value in sums.items()}
        expected = np.array(list(total.values()))
        np.testing.assert_allclose(scores[row], expected, rtol=1e-4, atol=1e-5 * expected.max())


@IN_KINDS
def test_exact_patching_of_a_node_cuts_all_its_out_edges(model):
    task, graph = random_task(3, seed=8), model.graph
    scores = score_edges(model, task, Exact(), level="node").values
    cut = [Circuit(graph, graph.edge_source != node) for node in range(graph.n_sources)]
    ran = evaluate_circuits(model, task, cut)
    np.testing.assert_allclose(scores, (ran.full - ran.values).T, rtol=1e-4, atol=1e-5)
    neurons = NeuronGraph(graph)
    some = (0, 3, graph.d_model + 1, neurons.n_edges - 1)
    scores = score_edges(model, task, ExactEdges(some), level="neuron").values[:, some]
    cut = [Circuit(neurons, np.arange(neurons.n_edges) != neuron) for neuron in some]
    np.testing.assert_allclose(scores, (ran.full - evaluate_circuits(model, task, cut).values).T, rtol=1e-4, atol=1e-5)


def test_scorers_without_a_level_are_refused():
    model, task = wrap_model(build("gpt2")), random_task(2)
    with pytest.raises(InputError, match="scores edges, not nodes; use another"):
        score_edges(model, task, InformationFlowRoutes(), level="node")
    with pytest.raises(InputError, match="scores edges and nodes, not neurons"):
        score_edges(model, task, MaskIg(2), level="neuron")
    with pytest.raises(InputError, match="unknown level 'heads'"):
        score_edges(model, task, level="heads")


def random_members(model, seed: int, share: float = 0.6):
    """Nodes [source] with `input`, and neurons [source, d_model] of a part of them, as circuits."""
    rng, graph = np.random.default_rng(seed), model.graph
    nodes = rng.random(graph.n_sources) < share
    nodes[0] = True
    neurons = (rng.random((graph.n_sources, graph.d_model)) < 0.5) & nodes[:, None]
    neurons[nodes.nonzero()[0][-1]] = True
    return Circuit(NodeGraph(graph), nodes), Circuit(NeuronGraph(graph), neurons.ravel())


@first_in_every_family("ablation", REPLACED)
def test_node_circuits_are_those_of_the_slow_implementation(loaded, model, ablation):
    """Nodes and neurons run together with others, some of them at the last position only."""
    task, slow = random_task(3, seed=9, longest=8), SlowModel(loaded)
    circuits = [circuit for seed in range(3) for circuit in random_members(model, seed)]
    ran = evaluate_circuits(model, task, circuits, ablation=ablation)
    if ablation not in (Patching(), Zero()):
        # Means are compared with edges, which have laws of their own.
        plain = evaluate_circuits(model, task, [circuit.plain() for circuit in circuits[::2]], ablation=ablation)
        np.testing.assert_allclose(ran.values[::2], plain.values, rtol=1e-9)
        return
    for column, example in enumerate(task.examples):
        runs = slow_example(slow, example)
        reference = {name: z if ablation == Patching() else 0 * z for name, z in runs.corrupted.items()}
        for circuit, value in zip(circuits, ran.values[:, column], strict=True):
            inside = circuit.graph.member_mask(circuit.mask)
            nodes = dict(zip(model.graph.source_names, torch.tensor(inside), strict=True))

            def read(destination, sources, reference=reference, nodes=nodes):
                mixed = {name: torch.where(nodes[name], now, reference[name]) for name, now in sources.items()}
                return slow.combine(destination, mixed)

            _, logits = slow.run(runs.end, read)
            expected = (logits[example.correct] - logits[example.incorrect]).item()
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-6)


@IN_KINDS
@pytest.mark.parametrize("ablation", REPLACED, ids=lambda ablation: ablation.name)
@pytest.mark.parametrize("level", ["node", "neuron"])
def test_full_is_the_model_and_empty_the_reference(model, level, ablation):
    task, graph = random_task(4, seed=10), graph_of_level(model.graph, level)
    # All but one, so that the circuits run: the one has no effect, because everything else is the model's or missing.
    full, empty = Circuit.full(graph), Circuit.empty(graph)
    ran = evaluate_circuits(
        model, task, [full, empty, Circuit(graph, ~graph.edge_source.astype(bool))], METRIC, ablation
    )
    np.testing.assert_array_equal(ran.values[0], ran.full)
    np.testing.assert_array_equal(ran.values[1], ran.empty)
    only_input = Circuit.from_edges(model.graph, ["input->logits"])
    expected = evaluate_circuits(model, task, [only_input], METRIC, ablation).values[0]
    np.testing.assert_allclose(ran.values[2], expected, rtol=1e-9)


@IN_KINDS
@pytest.mark.parametrize("ablation", REPLACED, ids=lambda ablation: ablation.name)
def test_all_neurons_of_nodes_are_the_nodes_to_the_last_bit(model, ablation):
    task, (nodes, _) = random_task(4, seed=11), random_members(model, 5)
    neurons = Circuit(NeuronGraph(model.graph), np.repeat(nodes.mask, model.graph.d_model))
    values = [evaluate_circuits(model, task, [circuit], METRIC, ablation).values for circuit in (nodes, neurons)]
    np.testing.assert_array_equal(*values)
    plain = evaluate_circuits(model, task, [nodes.plain()], METRIC, ablation).values
    np.testing.assert_array_equal(values[0], plain)


@IN_KINDS
@pytest.mark.parametrize("learner", [TopKLearner(steps=4, batch=4), EdgePruning(steps=4, batch=3, sizes=(0.5,))],
                         ids=lambda learner: learner.name)  # fmt: skip
def test_nodes_can_be_learned(model, learner):
    ranking = learn_ranking(model, random_task(4, seed=13), learner, level="node")
    assert ranking.graph == NodeGraph(model.graph) and len(set(ranking.value)) > 1
    with pytest.raises(InputError, match="not for neurons"):
        learn_ranking(model, random_task(4, seed=13), learner, level="neuron")


@IN_KINDS
def test_the_gradient_of_a_nodes_weight_is_a_finite_difference(model):
    task = random_task(2, seed=14)
    problem = LearningProblem(model, task, METRIC, Patching(), (0.5,), BUDGET, level="node")
    runner = StepRunner(problem, Local(), CPR, 2, 0)
    weights = torch.linspace(0.2, 0.9, model.graph.n_sources, dtype=torch.float64)
    _, gradient = runner.run(task.examples, weights)
    for node in range(0, len(weights), 3):
        step = torch.zeros_like(weights)
        step[node] = 1e-4
        ends = [runner.run(task.examples, weights + sign * step)[0] for sign in (1, -1)]
        assert gradient[node].item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3, abs=1e-5)
