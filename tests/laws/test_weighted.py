"""What must hold for the weighted circuits of any model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from conftest import VOCABULARY, build, first_in_every_family, random_task
from slow import SlowModel
from transformers import GPT2Config, GPT2LMHeadModel

from edgewise import Circuit, Eap, InputError
from edgewise.evaluate import ABLATIONS
from edgewise.graph import SpanGraph
from edgewise.models import Model, make_batch, wrap_model
from edgewise.models.forward import Trace
from edgewise.models.prepare import Prepared, prepare
from edgewise.runtime import IN_PROCESS
from edgewise.tasks import LogitDifference, Task

EXACT = {"rtol": 1e-9, "atol": 1e-9}
SPANS = ("first", "names", "end")


@dataclass(frozen=True)
class Runs:
    """A prepared batch, and a reference for it."""

    batch: Prepared
    reference: Trace

    def stream(self, weights: torch.Tensor, keep_streams: bool = True) -> torch.Tensor:
        return self.batch.run_weighted(weights, self.reference, keep_streams)

    def metric(self, weights: torch.Tensor, keep_streams: bool = True) -> torch.Tensor:
        """[example] logit differences."""
        readout = self.batch.read_stream(self.stream(weights, keep_streams), all_logits=False)
        return LogitDifference().value(readout, readout)

    def gradient(self, weights: torch.Tensor, keep_streams: bool = True) -> torch.Tensor:
        """Of the sum of the metric over examples: [edge], or [example, edge] for such weights."""
        weights = weights.detach().requires_grad_()
        return torch.autograd.grad(self.metric(weights, keep_streams).sum(), weights)[0]

    def own_gradients(self, weights: torch.Tensor) -> torch.Tensor:
        """[example, edge], at weights [edge]."""
        return self.gradient(weights.expand(len(self.batch.last), -1))


def make_runs(
    model: Model, task: Task, rows=None, share_prefix: bool = True, ablation: str = "patching",
    by_span: bool = False,
) -> Runs:  # fmt: skip
    batch = make_batch((task if rows is None else task.part(rows)).examples, torch.device("cpu"))
    with torch.no_grad():
        prepared = prepare(model.transformer, batch, share_prefix and ablation == "patching", by_span)
        reference = ABLATIONS[ablation]().prepare(model, task, [range(len(task))], IN_PROCESS).reference(prepared)
    return Runs(prepared, reference)


def random_weights(model: Model, seed: int = 0, n_spans: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(model.graph.n_edges * n_spans, dtype=torch.float64, generator=generator)


def with_spans(task: Task) -> Task:
    """The task with random spans: scattered positions, some spans absent from some prompts."""
    rng = np.random.default_rng(0)
    spans = [tuple(rng.integers(len(SPANS), size=example.length).tolist()) for example in task.examples]
    examples = zip(task.examples, spans, strict=True)
    return replace(task, examples=tuple(replace(e, span_names=SPANS, span_indices=s) for e, s in examples))


@pytest.mark.parametrize("by_span", [False, True])
@first_in_every_family("ablation", ABLATIONS)
def test_weights_of_zero_and_one_give_the_circuit(model, task, ablation, by_span):
    """Of edges and of pairs, of any size, the empty and the full one included. Under patching, unpruned circuits of
    edges, too: a node that reads nothing of this run has the same output as in the reference."""
    runs, rng = make_runs(model, with_spans(task), ablation=ablation, by_span=by_span), np.random.default_rng(0)
    graph = SpanGraph(model.graph, SPANS) if by_span else model.graph
    for share in (0, 0.2, 0.5, 0.9, 1):
        circuit = Circuit(graph, rng.random(graph.n_edges) < share)
        (expected,) = runs.batch.run_circuits([circuit.prune()], runs.reference)
        for mask in (circuit.prune().mask, *[circuit.mask] * (ablation == "patching" and not by_span)):
            torch.testing.assert_close(runs.stream(torch.tensor(mask)), expected, **EXACT)


@first_in_every_family("ablation", ["patching", "zero"])
def test_weighted_runs_are_those_of_the_slow_implementation(loaded, model, ablation):
    task, weights = random_task(2, seed=1, longest=7), random_weights(model)
    found = make_runs(model, task, ablation=ablation).metric(weights)
    slow = SlowModel(loaded)
    of_edge = dict(zip(model.graph.edge_names, weights.tolist(), strict=True))
    for row, example in enumerate(task.examples):
        reference, _ = slow.run(slow.embed(list(example.corrupted)), slow.combine)
        if ablation == "zero":
            reference = {name: value * 0 for name, value in reference.items()}

        def read(destination, sources, reference=reference):
            outputs = {
                name: reference[name] + of_edge[f"{name}->{destination}"] * (now - reference[name])
                for name, now in sources.items()
            }
            return slow.combine(destination, outputs)

        _, logits = slow.run(slow.embed(list(example.clean)), read)
        expected = (logits[example.correct] - logits[example.incorrect]).item()
        # HuggingFace's RMS norms and rotary tables are float32 in a float64 model, too.
        assert found[row].item() == pytest.approx(expected, abs=1e-5 * logits.abs().max().item())


def check_gradients(model: Model, task: Task, ablation: str, n_spans: int = 1) -> None:
    """Compare gradients with finite differences, along single edges and along all edges at once."""
    runs = make_runs(model, task, ablation=ablation, by_span=n_spans > 1)
    weights, step = random_weights(model, n_spans=n_spans), 1e-5
    gradient = runs.gradient(weights)
    rng = np.random.default_rng(1)
    directions = torch.zeros((9, len(weights)), dtype=torch.float64)
    directions[range(8), rng.choice(len(weights), 8, replace=False)] = 1
    directions[8] = torch.tensor(rng.normal(size=len(weights)))
    for direction in directions:
        with torch.no_grad():
            ends = [runs.metric(weights + sign * step * direction).sum() for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close(gradient @ direction, slope, rtol=1e-5, atol=1e-6 * gradient.abs().max().item())


@pytest.mark.parametrize("n_spans", [1, len(SPANS)])
@first_in_every_family("ablation", ABLATIONS)
def test_gradients_are_finite_differences(model, task, ablation, n_spans):
    check_gradients(model, with_spans(task), ablation, n_spans)


@first_in_every_family("ablation", ABLATIONS)
def test_equal_weights_at_all_spans_are_those_of_edges(model, task, ablation):
    """The streams are the same, and the gradient of an edge is the sum of those of its pairs, also by example."""
    task, weights = with_spans(task), random_weights(model)
    of_edges, of_pairs = (make_runs(model, task, ablation=ablation, by_span=by_span) for by_span in (False, True))
    spread = weights.repeat_interleave(len(SPANS))
    torch.testing.assert_close(of_pairs.stream(spread), of_edges.stream(weights), **EXACT)
    for keep in (True, False):
        gradient = of_pairs.gradient(spread, keep).unflatten(-1, (-1, len(SPANS)))
        torch.testing.assert_close(gradient.sum(-1), of_edges.gradient(weights), **EXACT)
    own = of_pairs.own_gradients(spread)
    torch.testing.assert_close(own.unflatten(-1, (-1, len(SPANS))).sum(-1), of_edges.own_gradients(weights), **EXACT)
    torch.testing.assert_close(own.sum(0), of_pairs.gradient(spread), **EXACT)


def test_at_weights_of_one_the_gradient_of_a_pair_is_its_score_of_eap(model, task):
    """The score is (z corrupted - z clean) . d(-m)/d input, and the slope (z clean - z corrupted) . dm/d input."""
    task = with_spans(task)
    runs = make_runs(model, task, by_span=True)
    gradient = runs.own_gradients(torch.ones(model.graph.n_edges * len(SPANS), dtype=torch.float64))
    expected = Eap().score(runs.batch, LogitDifference()).values
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-10 * expected.abs().max().item())


@first_in_every_family("n_edges", [4, 0, 1, 12])
def test_heads_without_change_and_gradient_can_be_left_out(model, task, n_edges):
    """A reference that isn't marked as a run makes all heads run. One example has edges that the others lack."""
    runs, rng = make_runs(model, task), np.random.default_rng(n_edges)
    runs_all_heads = replace(runs, reference=replace(runs.reference, is_run=False))
    weights = torch.zeros((len(task), model.graph.n_edges), dtype=torch.float64)
    weights[:, rng.choice(model.graph.n_edges, n_edges, replace=False)] = 1
    weights[0, rng.choice(model.graph.n_edges, n_edges, replace=False)] = 0.5
    for each in (weights, weights[0], weights[1]):
        torch.testing.assert_close(runs.stream(each), runs_all_heads.stream(each), **EXACT)
        torch.testing.assert_close(runs.gradient(each), runs_all_heads.gradient(each), **EXACT)


def test_gradients_of_a_model_with_one_layer_are_finite_differences():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=12, n_layer=1, n_head=2)
    check_gradients(wrap_model(GPT2LMHeadModel(config).double()), random_task(3), "patching")


def test_an_example_with_weights_of_its_own_runs_as_if_it_were_alone(model, task):
    weights = torch.stack([random_weights(model, seed) for seed in range(len(task))])
    together = make_runs(model, task)
    stream, gradient = together.stream(weights), together.gradient(weights)
    for row in range(len(task)):
        alone = make_runs(model, task, [row])
        torch.testing.assert_close(stream[row], alone.stream(weights[row])[0], **EXACT)
        torch.testing.assert_close(gradient[row], alone.gradient(weights[row]), **EXACT)


def test_prefix_sharing_changes_nothing(model):
    task, weights = random_task(5, seed=6), random_weights(model)
    examples = [example for example in task.examples if example.shared_prefix] or task.examples
    task = Task(task.name, task.split, tuple(examples))
    usual, other = make_runs(model, task), make_runs(model, task, share_prefix=False)
    assert usual.batch.frame.past is not None
    torch.testing.assert_close(other.metric(weights), usual.metric(weights), **EXACT)
    torch.testing.assert_close(other.own_gradients(weights), usual.own_gradients(weights), **EXACT)


def test_gradients_on_the_way_from_empty_to_full_add_up_to_the_effect(model, task):
    """One example many times, with other weights each time: the 192 points of a Gauss-Legendre rule, which is off by
    less than a thousandth on these examples; the more points, the less."""
    points, shares = np.polynomial.legendre.leggauss(192)
    runs = make_runs(model, task, [1] * len(points))
    weights = torch.tensor((points + 1) / 2)[:, None].repeat(1, model.graph.n_edges)
    total = torch.tensor(shares / 2) @ runs.gradient(weights).sum(1)
    full, empty = (runs.metric(torch.full((model.graph.n_edges,), end))[0] for end in (1.0, 0.0))
    torch.testing.assert_close(total, full - empty, rtol=1e-3, atol=1e-6)


@first_in_every_family("keep", [True, False])
def test_a_second_backward_pass_and_streams_mixed_again_give_the_same(model, task, keep):
    runs, weights = make_runs(model, task), random_weights(model).requires_grad_()
    value = runs.metric(weights, keep_streams=keep).sum()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(value, weights, retain_graph=True)
        torch.testing.assert_close(gradient, runs.gradient(weights), **EXACT)


def test_float32_gradients_are_close_to_those_of_float64(family, task):
    wide, narrow = (wrap_model(build(family, kind)) for kind in (torch.float64, torch.float32))
    weights = random_weights(wide).float()
    expected = make_runs(wide, task).gradient(weights)
    found = make_runs(narrow, task).gradient(weights)
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 1e-3 * expected.norm()


def test_weights_of_another_graph_raise_an_input_error():
    model = wrap_model(build("gpt2"))
    with pytest.raises(InputError, match="3 weights"):
        make_runs(model, random_task(1)).stream(torch.ones(3))
