"""Laws that the scores of every model obey."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import FAMILIES, KINDS, VOCABULARY, first_in_every_family, random_task
from slow import SlowExample, SlowModel
from transformers import GPT2Config, GPT2LMHeadModel

from edgewise import Accuracy, Circuit, Eap, EapIg, InputError, Settings
from edgewise.evaluate import Patching, Zero
from edgewise.evaluate.run_circuits import evaluate_circuits
from edgewise.models import make_batch, wrap_model
from edgewise.models.prepare import prepare
from edgewise.score import (
    SCORERS,
    AttnLrp,
    CleanCorrupted,
    EapIgActivations,
    Exact,
    ExpectedGradients,
    Gim,
    GradDrop,
    InformationFlowRoutes,
    RelP,
    RelPQk,
)
from edgewise.score.exact import ExactEdges
from edgewise.score.run_scorer import score_edges
from edgewise.tasks import Kl, LogitDifference, ProbabilityDifference, Task

FEW_STEPS = {"eap-ig": {"steps": 4}, "eap-ig-activations": {"steps": 2}, "mask-ig": {"steps": 3}}
# Rules change the backward pass of norms, products and activations. So also: norms of q and k over all heads, fused
# projections, ReLU.
KINDS_FOR_RULES = (*KINDS, "olmo2", "phi3", "opt")
# Every scorer, with few steps and edges.
SCORED = [
    ExactEdges((0, 3, 11, 25, 40)) if name == "exact" else SCORERS[name](**FEW_STEPS.get(name, {})) for name in SCORERS
]
SCORED.sort(key=lambda scorer: scorer.name != "eap-ig")  # the first one, which has more families, is the default


def random_point(example: SlowExample, seed: int) -> float:
    text = repr((seed, *example.tokens))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


# Scorer -> the rules of the slow implementation, and its scores of an example.
SLOW = [
    (Eap(), "", SlowExample.eap),
    (EapIg(3), "", lambda example: example.path([0, 1 / 3, 2 / 3])),
    (CleanCorrupted(), "", lambda example: example.path([0, 1])),
    (ExpectedGradients(seed=3), "", lambda example: example.path([random_point(example, 3)])),
    (EapIgActivations(2), "", lambda example: example.activations(2)),
    (GradDrop(), "", SlowExample.grad_drop),
    (Gim(), "norms gates matmuls softmax-2", SlowExample.eap),
    (Gim(steps=2), "norms gates matmuls softmax-2", lambda example: example.path([0, 1 / 2])),
    (RelP(), "norms activations gates patterns", SlowExample.eap),
    (RelP(steps=2), "norms activations gates patterns", lambda example: example.path([0, 1 / 2])),
    (RelPQk(), "norms activations gates", SlowExample.eap),
    (AttnLrp(), "norms activations gates matmuls softmax-lrp", SlowExample.eap),
    (InformationFlowRoutes(), "", SlowExample.flow),
    (Exact(), "", lambda example: example.exact(every=23)),
]


SLOW_IN_FAMILIES = [
    pytest.param(family, *row, id=f"{family}-{row[0].name}-{getattr(row[0], 'steps', 0)}")
    for row in SLOW
    for family in (sorted(FAMILIES) if row[0].name == "eap-ig" else KINDS_FOR_RULES if row[1] else KINDS)
]


@pytest.mark.parametrize("family, scorer, rules, definition", SLOW_IN_FAMILIES)
def test_scores_are_those_of_the_slow_implementation(loaded, model, scorer, rules, definition):
    task = random_task(2, seed=1, longest=7)
    scores = score_edges(model, task, scorer).values
    slow = SlowModel(loaded, rules)
    for row, example in enumerate(task.examples):
        answers = (example.correct, example.incorrect)
        expected = definition(SlowExample(slow, list(example.clean), list(example.corrupted), answers))
        edges = [edge for edge, name in enumerate(model.graph.edge_names) if name in expected]
        assert len(edges) == len(expected) >= model.graph.n_edges // (23 if scorer == Exact() else 1)
        wanted = np.array([expected[model.graph.edge_names[edge]] for edge in edges])
        np.testing.assert_allclose(scores[row, edges], wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
        assert np.abs(wanted).max() > 1e-3


def test_every_scorer_has_a_slow_implementation():
    """Except Mask-IG, whose weighted circuits have laws of their own."""
    assert {scorer.name for scorer, _, _ in SLOW} == set(SCORERS) - {"mask-ig"}


@pytest.mark.parametrize("share", [0.1, 0.6])
@first_in_every_family("ablation", [Patching(), Zero()])
def test_circuits_are_those_of_the_slow_implementation(loaded, model, share, ablation):
    task = random_task(3, seed=2, longest=8)
    rng = np.random.default_rng(int(share * 100))
    # The direct edge keeps something after pruning, whatever is drawn.
    mask = rng.random(model.graph.n_edges) < share
    mask[model.graph.blocks[-1].start] = True
    circuit = Circuit(model.graph, mask).prune()
    found = evaluate_circuits(model, task, [circuit], ablation=ablation)
    inside = {name for name, used in zip(model.graph.edge_names, circuit.mask, strict=True) if used}
    slow = SlowModel(loaded)
    for row, example in enumerate(task.examples):
        reference, _ = slow.run(slow.embed(list(example.corrupted)), slow.combine)
        if ablation == Zero():
            reference = {name: value * 0 for name, value in reference.items()}
        _, logits = slow.run(slow.embed(list(example.clean)), slow.circuit(inside, reference))
        expected = (logits[example.correct] - logits[example.incorrect]).item()
        # HuggingFace's RMS norms and rotary tables are float32 in a float64 model, too.
        assert found.values[0, row] == pytest.approx(expected, abs=1e-5 * logits.abs().max().item())


# Not EAP-IG-activations, which cuts the paths through the nodes whose outputs it interpolates, nor Mask-IG, whose
# weights multiply along a path.
FIRST_ORDER = [Eap(), EapIg(), CleanCorrupted(), ExpectedGradients(), RelP(), RelPQk()]


@pytest.mark.parametrize("scorer", [*FIRST_ORDER, Gim(), AttnLrp()], ids=lambda value: value.name)
def test_first_order_scores_are_exact_patching_on_a_linear_model(scorer):
    """Uniform attention, no activation function, norms that only centre: then one edge's effect is its gradient.

    Where a scorer halves the gradients of a product, the model has no attention.
    """
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=12, n_layer=2, n_head=2, activation_function="linear",
        layer_norm_epsilon=1e12,
    )  # fmt: skip
    torch.manual_seed(0)
    loaded = GPT2LMHeadModel(config).double()
    with torch.no_grad():
        for name, parameter in loaded.named_parameters():
            parameter.normal_(0, 0.4)
            if "ln_" in name and "weight" in name:
                parameter.mul_(1e6)  # undoes the huge epsilon
            if "c_attn" in name:
                parameter[..., : 2 * config.n_embd] = 0  # no queries, no keys
            if "attn.c_proj" in name and scorer not in FIRST_ORDER:
                parameter.zero_()
    model = wrap_model(loaded)
    # Without attention, only the last token matters.
    pairs = [
        (example, (*example.corrupted[:-1], (example.clean[-1] + 1) % VOCABULARY))
        for example in random_task(2).examples
    ]
    task = Task("last", "all", tuple(replace(example, corrupted=corrupted) for example, corrupted in pairs))
    exact = score_edges(model, task, Exact()).values
    scores = score_edges(model, task, scorer).values
    np.testing.assert_allclose(scores, exact, rtol=1e-4, atol=1e-6 * np.abs(exact).max())
    assert np.abs(exact).max() > 1e-2


@pytest.mark.parametrize("family", KINDS)
def test_exact_patching_of_the_best_edges_chooses_them_on_all_examples(model):
    task = random_task(4, seed=4)
    every = score_edges(model, task, Exact()).values
    best = score_edges(model, task, Exact(best=9, of=Eap()), batch_size=1).values
    chosen = np.argsort(-np.abs(score_edges(model, task, Eap()).mean()))[:9]
    expected = np.zeros_like(every)
    expected[:, chosen] = every[:, chosen]
    np.testing.assert_allclose(best, expected, rtol=1e-5, atol=1e-6 * np.abs(every).max())


def test_the_random_points_of_expected_gradients_are_uniform_and_depend_on_the_seed():
    examples = random_task(400, seed=8).examples
    batch = make_batch(examples, torch.device("cpu"))
    points = np.array(ExpectedGradients().draw_points(batch))
    assert points.min() >= 0 and points.max() < 1
    assert abs(points.mean() - 0.5) < 0.05 and abs(points.std() - 12**-0.5) < 0.03
    assert np.abs(points - ExpectedGradients(seed=1).draw_points(batch)).min() > 0


@pytest.mark.parametrize("name", sorted(set(SCORERS) - {"exact", "information-flow-routes"}))
def test_a_metric_without_a_gradient_raises_an_input_error(name):
    with pytest.raises(InputError, match="accuracy"):
        SCORERS[name]().check(Accuracy())


@pytest.mark.parametrize(
    "scorer", [*(kind() for kind in SCORERS.values()), Exact(5, Eap())], ids=lambda value: value.name
)
def test_settings_with_any_scorer_survive_writing_and_reading(scorer):
    settings = Settings(scorer=scorer)
    assert Settings.from_record(json.loads(json.dumps(settings.record()))) == settings


def test_scorers_without_gradients_take_every_metric():
    for scorer in (Exact(), InformationFlowRoutes()):
        scorer.check(Accuracy())
    with pytest.raises(InputError, match="accuracy"):
        Exact(best=3).check(Accuracy())


def test_rules_change_no_output_of_a_run(model):
    batch = prepare(model.transformer, make_batch(random_task(3).examples, torch.device("cpu")))
    plain = batch.read_out(batch.run(batch.clean), True).all_logits
    for scorer in (Gim(), RelP(), RelPQk(), AttnLrp()):
        run = batch.run(batch.clean.detach().requires_grad_(), scorer.rules)
        torch.testing.assert_close(batch.read_out(run, True).all_logits.detach(), plain, rtol=1e-12, atol=1e-12)


@first_in_every_family("scorer", SCORED, ("gpt2", "gemma2"))
def test_scores_do_not_depend_on_batch_size_or_order(model, scorer):
    task = random_task(6, seed=5)
    whole = score_edges(model, task, scorer, batch_size=6).values
    scale = np.abs(whole).max()
    np.testing.assert_allclose(
        score_edges(model, task, scorer, batch_size=1).values, whole, rtol=1e-5, atol=1e-6 * scale
    )
    backwards = Task(task.name, task.split, task.examples[::-1])
    np.testing.assert_allclose(
        score_edges(model, backwards, scorer, batch_size=4).values[::-1], whole, rtol=1e-5, atol=1e-6 * scale
    )


@first_in_every_family("scorer", SCORED, ("gpt2", "gemma2"))
def test_scores_do_not_depend_on_padding_or_on_prefix_sharing(model, scorer):
    task = random_task(5, seed=6)

    def scores(examples, share):
        batch = prepare(model.transformer, make_batch(examples, torch.device("cpu")), share)
        return scorer.score(batch, LogitDifference()).values

    whole = scores(task.examples, True)
    unpadded = torch.cat([scores([example], True) for example in task.examples])
    for other in (scores(task.examples, False), unpadded):
        torch.testing.assert_close(other, whole, rtol=1e-8, atol=1e-10 * whole.abs().max().item())


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("metric", [Kl(), ProbabilityDifference()], ids=lambda metric: metric.name)
def test_integrated_scores_of_the_input_add_up_to_the_effect_of_the_input(family, model, metric):
    """Completeness: with many steps, the scores of the edges out of `input` sum to the change of the metric
    along the path, because every path of the network starts with one of them.

    EAP-IG takes the first point of every step. Half of the last point instead of half of the first one makes it the
    trapezoidal rule, which needs far fewer steps. Soft caps need more."""
    task, steps = random_task(2, seed=7), 120 if family == "gemma2" else 30
    scores, first, both_ends = (
        score_edges(model, task, scorer, metric) for scorer in (EapIg(steps), EapIg(1), CleanCorrupted())
    )
    effect = scores.provenance["clean_metric"] - scores.provenance["corrupted_metric"]
    integral = scores.mean() + (both_ends.mean() - first.mean()) / steps
    assert integral[model.graph.edge_source == 0].sum() == pytest.approx(effect, rel=1e-2, abs=0)


@pytest.mark.parametrize("family", ["gpt2"])
def test_an_example_that_does_not_fit_raises_an_input_error(model, monkeypatch):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate too much")

    monkeypatch.setattr("edgewise.score.run_scorer.make_batch", full)
    with pytest.raises(InputError, match="doesn't fit"):
        score_edges(model, random_task(3))


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("memory", [1, 10**5])
def test_the_memory_cap_changes_no_result(model, memory):
    task = random_task(5, seed=9)
    whole = score_edges(model, task, batch_size=5).values
    np.testing.assert_allclose(
        score_edges(model, task, memory=memory).values, whole, rtol=1e-5, atol=1e-6 * np.abs(whole).max()
    )
