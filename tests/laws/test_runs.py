"""Laws that the runs of every model obey."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import VOCABULARY, build, first_in_every_family, random_task
from slow import SlowModel

from edgewise import Circuit, evaluate_circuits
from edgewise.evaluate import Mean, Patching, PositionalMean, Zero
from edgewise.graph import Graph, NeuronGraph, SpanGraph
from edgewise.models import make_batch, memory, wrap_model
from edgewise.models.circuits import number_nodes
from edgewise.models.forward import make_frame, run
from edgewise.models.prepare import prepare
from edgewise.models.transformer import soft_cap
from edgewise.tasks import Example

# The slow implementation's RMS norms are HuggingFace's, which compute in float32 whatever the model's dtype.
HF_NORM = {"rtol": 1e-5, "atol": 1e-5}


def all_logits(model, tokens, real=None):
    real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
    trace = run(model.transformer, model.transformer.embed(tokens), make_frame(model.transformer, real))
    logits = model.transformer.final_norm(trace.final) @ model.transformer.unembed.T
    return soft_cap(logits, model.transformer.logit_cap), trace


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_logits_equal_those_of_transformers(family, dtype, tolerance):
    loaded = build(family, dtype)
    tokens = torch.randint(VOCABULARY, (3, 13), generator=torch.Generator().manual_seed(1))
    expected = loaded(tokens).logits
    found, _ = all_logits(wrap_model(loaded), tokens)
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


def test_padding_on_either_side_matches_transformers(loaded, model):
    tokens = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(2))
    for pad, real in (("right", [[1] * 9, [1] * 6 + [0] * 3]), ("left", [[1] * 9, [0] * 3 + [1] * 6])):
        real = torch.tensor(real, dtype=torch.bool)
        found, _ = all_logits(model, tokens, real)
        short = tokens[1][real[1]][None]
        expected = loaded(short).logits[0]
        torch.testing.assert_close(
            found[1][real[1]], expected, rtol=0, atol=1e-5 * expected.abs().max().item(), msg=pad
        )


def test_weights_are_shared_not_copied(loaded, model):
    theirs = {parameter.untyped_storage().data_ptr() for parameter in loaded.parameters()}
    for layer in model.transformer.layers:
        for part in layer.qkv:
            assert part.weight.untyped_storage().data_ptr() in theirs
        assert layer.out.untyped_storage().data_ptr() in theirs


def test_sources_sum_to_the_stream_at_every_destination(loaded, model):
    """The stream that each reader sees is the sum of all earlier sources and of what belongs to no node."""
    tokens = [5, 9, 2, 33, 8]
    slow = SlowModel(loaded)
    sources, _ = slow.run(slow.embed(tokens), slow.combine)
    _, trace = all_logits(model, torch.tensor([tokens]))
    names = list(sources)
    for layer in range(model.graph.n_layers):
        before = {name: sources[name] for name in names[: model.graph.n_attention_sources(layer)]}
        torch.testing.assert_close(trace.attention_in[layer][0], slow.combine(f"a{layer}.h0<q>", before), **HF_NORM)
        before = {name: sources[name] for name in names[: model.graph.n_mlp_sources(layer)]}
        torch.testing.assert_close(trace.mlp_in[layer][0], slow.combine(f"m{layer}", before), **HF_NORM)
    torch.testing.assert_close(trace.final[0], slow.combine("logits", sources), **HF_NORM)


@first_in_every_family("share_prefix", [True, False])
def test_full_circuit_is_the_clean_run_and_empty_the_corrupted(model, share_prefix):
    """Of edges, of pairs and of neurons."""
    names = ("even", "odd")
    examples = [
        replace(example, span_names=names, span_indices=tuple(place % 2 for place in range(example.length)))
        for example in random_task().examples
    ]
    batch = prepare(model.transformer, make_batch(examples, torch.device("cpu")), share_prefix)
    reference = batch.run(batch.corrupted)
    for graph in (model.graph, SpanGraph(model.graph, names), NeuronGraph(model.graph)):
        streams = batch.run_circuits([Circuit.full(graph), Circuit.empty(graph)], reference)
        for stream, trace in zip(streams, (batch.run(batch.clean), reference), strict=True):
            found, expected = batch.read_stream(stream, True).logits, batch.read_out(trace, True).logits
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@first_in_every_family("ablation", [Patching(), Zero(), Mean(), PositionalMean()])
def test_circuits_do_not_depend_on_batches_or_order(model, ablation):
    task = random_task(6, seed=4)
    rng = np.random.default_rng(0)
    circuits = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for share in (0.1, 0.5, 0.9)]
    whole = evaluate_circuits(model, task, circuits, ablation=ablation, batch_size=6)
    single = evaluate_circuits(model, task, circuits, ablation=ablation, batch_size=1)
    np.testing.assert_allclose(single.values, whole.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(single.empty, whole.empty, rtol=1e-9, atol=1e-9)
    backwards = type(task)(task.name, task.split, task.examples[::-1])
    again = evaluate_circuits(model, backwards, circuits, ablation=ablation, batch_size=4)
    np.testing.assert_allclose(again.values[:, ::-1], whole.values, rtol=1e-9, atol=1e-9)
    some = evaluate_circuits(model, task, circuits, ablation=ablation, rows=[4, 1, 2])
    np.testing.assert_allclose(some.values, whole.values[:, [4, 1, 2]], rtol=1e-9, atol=1e-9)


def test_answer_logits_equal_those_of_the_whole_vocabulary(model, task):
    batch = prepare(model.transformer, make_batch(task.examples, torch.device("cpu")))
    few, many = (batch.read_out(batch.run(batch.clean), all_logits) for all_logits in (False, True))
    torch.testing.assert_close(few.answer_logits, many.answer_logits, rtol=1e-10, atol=1e-10)


def test_only_positions_after_the_shared_prefix_run(model):
    """Prefixes of every length, then the same three tokens: three positions run, whatever the padding."""
    tails = ((5, 9, 2), (7, 9, 2))
    examples = [Example((*range(n), *tails[0]), (*range(n), *tails[1]), 1, 2) for n in (2, 9, 5)]
    batch = prepare(model.transformer, make_batch(examples, torch.device("cpu")))
    assert batch.clean.shape[:2] == (3, 3) and (batch.last == 2).all()
    together = batch.read_out(batch.run(batch.clean), all_logits=True).logits
    for logits, example in zip(together, examples, strict=True):
        expected, _ = all_logits(model, torch.tensor([example.clean]))
        torch.testing.assert_close(logits, expected[0, -1], rtol=1e-9, atol=1e-9)


@first_in_every_family("ablation", [Patching(), PositionalMean()])
def test_circuits_that_run_together_equal_each_alone(model, ablation, monkeypatch):
    """In groups of any size: with nodes that run everywhere and nodes that run at the last position only,
    equal circuits, the full and the empty one, circuits that are equal once they are pruned, and circuits that share
    most of their nodes."""
    graph, rng = model.graph, np.random.default_rng(3)
    circuits = [Circuit(graph, rng.random(graph.n_edges) < share) for share in (0.03, 0.1, 0.2, 0.4, 0.6, 0.8)]
    no_keys = Circuit(graph, np.array([name[-3:] not in ("<k>", "<v>") for name in graph.edge_names]))
    shared = [circuits[1].without(circuits[1].edges[place]) for place in (0, len(circuits[1].edges) // 2, -1)]
    circuits += [no_keys, circuits[2], circuits[3].prune(), Circuit.full(graph), Circuit.empty(graph), *shared]
    task = random_task(5, seed=9)
    alone = [evaluate_circuits(model, task, [one], ablation=ablation).values[0] for one in circuits]
    for most in (1, 3, 100):
        places = len(task) * task.longest
        monkeypatch.setattr(memory, "MAX_STREAM_BYTES", most * 4 * places * graph.d_model * 3 * graph.n_heads)
        together = evaluate_circuits(model, task, circuits, ablation=ablation).values
        np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)


def test_circuits_share_the_nodes_before_an_edge_that_one_of_them_lacks():
    graph, rng = Graph(n_layers=3, n_heads=2, d_model=8), np.random.default_rng(0)
    circuit = Circuit(graph, rng.random(graph.n_edges) < 0.9).prune()
    assert circuit.n_edges > 50
    for edge in np.flatnonzero(circuit.mask).tolist():
        smaller = circuit.without(graph.edge_name(edge)).prune()
        numbers = number_nodes([circuit, smaller])
        after = {graph.edge_target[edge]}
        for other in np.argsort(graph.edge_source, kind="stable"):
            if circuit.mask[other] and graph.edge_source[other] in after:
                after.add(graph.edge_target[other])
        for node in np.flatnonzero(smaller.node_mask[:-1]):
            assert (numbers[0, node] == numbers[1, node]) == (node not in after)
