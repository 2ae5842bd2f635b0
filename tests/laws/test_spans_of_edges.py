"""Laws of positions: scores and circuits of (edge, span) pairs, for every family and ablation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import first_in_every_family, random_task
from slow import SlowExample, SlowModel

from edgewise import Circuit, Eap, EapIg, InputError, evaluate_circuits, score_edges
from edgewise.evaluate import Mean, Patching, PositionalMean, Zero
from edgewise.graph import SpanGraph
from edgewise.score import SCORERS
from edgewise.tasks import Task

NAMES = ("first", "names", "end")
FEW_STEPS = {"eap-ig": {"steps": 2}, "eap-ig-activations": {"steps": 1}}
BY_SPAN = [SCORERS[name](**FEW_STEPS.get(name, {})) for name in SCORERS if SCORERS[name].by_span]
ABLATIONS = [Patching(), Zero(), Mean(), PositionalMean()]


def span_task(task: Task, seed: int = 0, aligned: bool = False) -> Task:
    """The task with random spans: scattered positions, some spans absent from some prompts; `aligned` from the end."""
    rng = np.random.default_rng(seed)
    pattern = rng.integers(len(NAMES), size=64)
    examples = []
    for example in task.examples:
        indices = pattern[-example.length :] if aligned else rng.integers(len(NAMES), size=example.length)
        examples.append(replace(example, span_names=NAMES, span_indices=tuple(indices.tolist())))
    return replace(task, examples=tuple(examples))


def random_circuits(graph: SpanGraph, seed: int = 0) -> list[Circuit]:
    rng = np.random.default_rng(seed)
    return [Circuit(graph, rng.random(graph.n_edges) < share).prune() for share in (0.1, 0.3, 0.7)]


@first_in_every_family("aligned", [False, True])
def test_scores_by_span_are_those_of_the_slow_implementation(loaded, model, aligned):
    task = span_task(random_task(3, seed=1, longest=8), aligned=aligned)
    scores = score_edges(model, task, Eap(), positions=True)
    assert scores.graph == SpanGraph(model.graph, NAMES)
    slow = SlowModel(loaded)
    for row, example in enumerate(task.examples):
        answers = (example.correct, example.incorrect)
        by_position = SlowExample(slow, list(example.clean), list(example.corrupted), answers).eap_by_position()
        expected = np.zeros((model.graph.n_edges, len(NAMES)))
        for name, values in by_position.items():
            np.add.at(expected[model.graph.edge_index(name)], list(example.span_indices), values)
        np.testing.assert_allclose(scores.values[row], expected.ravel(), rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("scorer", BY_SPAN, ids=lambda one: one.name)
@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_scores_summed_over_spans_are_those_of_edges(model, scorer):
    task = span_task(random_task(4, seed=2))
    by_span = score_edges(model, task, scorer, positions=True, batch_size=3)
    plain = score_edges(model, task, scorer)
    summed = by_span.values.reshape(len(task), -1, len(NAMES)).sum(2)
    if scorer.name == "grad-drop":  # a sum of absolute values
        assert (summed >= plain.values - 1e-5 * plain.values.max()).all() and (by_span.values >= 0).all()
    else:
        np.testing.assert_allclose(summed, plain.values, rtol=1e-4, atol=1e-6 * np.abs(plain.values).max())


def test_one_span_is_the_plain_graph(model):
    task = random_task(4, seed=3)
    examples = (replace(e, span_names=("all",), span_indices=(0,) * e.length) for e in task.examples)
    single = replace(task, examples=tuple(examples))
    plain, by_span = score_edges(model, task, EapIg(2)), score_edges(model, single, EapIg(2), positions=True)
    np.testing.assert_allclose(by_span.values, plain.values, rtol=1e-5, atol=1e-6 * np.abs(plain.values).max())
    circuits = [Circuit(model.graph, by_span.mean() > 0), Circuit(by_span.graph, by_span.mean() > 0)]
    values = evaluate_circuits(model, single, circuits).values
    assert (values[0] == values[1]).all()


@first_in_every_family("ablation", [Patching(), Zero()])
def test_circuits_of_pairs_are_those_of_the_slow_implementation(loaded, model, ablation):
    task = span_task(random_task(3, seed=4, longest=8), seed=1)
    graph = SpanGraph(model.graph, NAMES)
    circuits = random_circuits(graph)
    values = evaluate_circuits(model, task, circuits, ablation=ablation).values
    slow = SlowModel(loaded)
    for column, example in enumerate(task.examples):
        reference, _ = slow.run(slow.embed(list(example.corrupted)), slow.combine)
        if ablation == Zero():
            reference = {name: value * 0 for name, value in reference.items()}
        spans = [NAMES[index] for index in example.span_indices]
        for row, circuit in enumerate(circuits):
            inside = set(circuit.edges)

            def read(destination, sources, inside=inside, spans=spans, reference=reference):
                chosen = {}
                for name, now in sources.items():
                    is_inside = torch.tensor([f"{name}->{destination}@{span}" in inside for span in spans])
                    chosen[name] = torch.where(is_inside[:, None], now, reference[name])
                return slow.combine(destination, chosen)

            _, logits = slow.run(slow.embed(list(example.clean)), read)
            expected = (logits[example.correct] - logits[example.incorrect]).item()
            assert values[row, column] == pytest.approx(expected, abs=1e-5 * logits.abs().max().item())


@first_in_every_family("ablation", ABLATIONS)
def test_all_spans_of_edges_are_the_plain_circuit_to_the_last_bit(model, ablation):
    task, graph = span_task(random_task(5, seed=5)), SpanGraph(model.graph, NAMES)
    rng = np.random.default_rng(1)
    plain = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for share in (0.05, 0.3, 0.8)]
    all_spans = [Circuit(graph, graph.from_plain(circuit.mask)) for circuit in plain]
    expected = evaluate_circuits(model, task, plain, ablation=ablation).values
    assert (evaluate_circuits(model, task, all_spans, ablation=ablation).values == expected).all()


@first_in_every_family("ablation", ABLATIONS)
def test_batches_and_other_circuits_change_nothing(model, ablation):
    task = span_task(random_task(5, seed=6), seed=2)
    circuits = random_circuits(SpanGraph(model.graph, NAMES), seed=3)
    together = evaluate_circuits(model, task, circuits, ablation=ablation)
    for row, circuit in enumerate(circuits):
        alone = evaluate_circuits(model, task, [circuit], ablation=ablation, batch_size=1)
        np.testing.assert_allclose(alone.values[0], together.values[row], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["gpt2"])
def test_spans_that_a_task_or_scorer_does_not_have_are_errors(model):
    task = random_task(2)
    with pytest.raises(InputError, match="has none; name spans in its file"):
        score_edges(model, task, positions=True)
    for name in ("exact", "information-flow-routes"):
        with pytest.raises(InputError, match="can't score positions"):
            score_edges(model, span_task(task), SCORERS[name](), positions=True)
    other = Circuit.full(SpanGraph(model.graph, ("a", "b")))
    with pytest.raises(InputError, match="the spans a, b, but task 'random' has first, names, end"):
        evaluate_circuits(model, span_task(task), [other])
    with pytest.raises(InputError, match="the spans a, b, but task 'random' has none"):
        evaluate_circuits(model, task, [other])
