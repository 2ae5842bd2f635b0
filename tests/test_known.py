"""The embedded models whose circuits are known: the circuits are true, and rankings can be compared with them."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest
import torch

from edgewise import (
    Accuracy,
    Circuit,
    Eap,
    Graph,
    InputError,
    MaskIg,
    Model,
    evaluate_circuits,
    known_circuit,
    load_model,
    load_task,
    score_edges,
)
from edgewise.evaluate.known import CUTS, read_truth
from edgewise.evaluate.roc import auroc, precision_at_true_size
from edgewise.evaluate.verify import MAX_OUTSIDE, MIN_INSIDE, verify_circuit
from edgewise.models import make_batch
from edgewise.models.prepare import prepare
from edgewise.tasks.known import KNOWN

NAMES = [name.removeprefix("known/") for name in KNOWN]


@cache
def known_model(name: str) -> Model:
    return load_model(f"known/{name}", device="cpu")


def known_task(name: str, split: str = "test", examples: int = 20):
    return load_task(f"known/{name}", known_model(name), split, examples)


@pytest.mark.parametrize("name", NAMES)
def test_exact_patching_of_every_edge_agrees_with_the_known_circuit(name):
    result = verify_circuit(known_model(name), known_task(name), known_circuit(name), CUTS.get(name, ()))
    assert result.strongest_outside <= MAX_OUTSIDE == 0.01
    assert result.weakest_inside >= MIN_INSIDE == 0.05
    assert result.faithfulness >= 0.99
    assert result.is_verified


@pytest.mark.parametrize("name", NAMES)
def test_patching_all_edges_outside_at_once_changes_little_on_any_example(name):
    model, task, truth = known_model(name), known_task(name, "validation"), known_circuit(name)
    ran = evaluate_circuits(model, task, [truth], of_model=[Accuracy()])
    assert ran.of_model["accuracy"].mean() == 1
    assert np.abs(ran.values[0] - ran.full).mean() < 0.05 * (ran.full.mean() - ran.empty.mean())


def test_a_wrong_circuit_is_not_verified():
    model, task, truth = (
        known_model("greater-than"),
        known_task("greater-than", examples=8),
        known_circuit("greater-than"),
    )
    edges = truth.edges
    missing = verify_circuit(model, task, Circuit.from_edges(model.graph, edges[1:]))
    assert missing.strongest_outside > MAX_OUTSIDE and not missing.is_verified
    extra = verify_circuit(model, task, Circuit.from_edges(model.graph, [*edges, "m0->m1"]))
    assert extra.weakest_inside < MIN_INSIDE and not extra.is_verified
    with pytest.raises(InputError, match="has none"):
        verify_circuit(model, task, Circuit.empty(model.graph))


def test_a_backup_head_matters_only_if_the_other_head_is_cut():
    model, task, truth = known_model("backup"), known_task("backup", examples=8), known_circuit("backup")
    effects = verify_circuit(model, task, truth).effects
    edge = model.graph.edge_index
    assert abs(effects[edge("a2.h2->logits")]) < 0.01 and abs(effects[edge("input->a1.h0<q>")]) < 0.01
    assert effects[edge("a1.h0->a2.h2<q>")] < -0.5  # cut, both heads copy
    cut = verify_circuit(model, task, truth, CUTS["backup"]).effects
    assert cut[edge("a2.h2->logits")] > 0.5 and cut[edge("input->a1.h0<q>")] > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_no_node_is_silent(name):
    """Nodes outside the circuit respond to the corruption too; only the backup head waits."""
    model = known_model(name)
    transformer = model.transformer
    with torch.no_grad():
        batch = prepare(transformer, make_batch(known_task(name).examples, transformer.device), False)
        clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
    for index, layer in enumerate(transformer.layers):
        mix = clean.mix[index] - corrupted.mix[index]
        sizes = torch.einsum("bphd,mhd->bphm", mix, layer.out).norm(dim=-1).amax(1).mean(0)
        silent = [f"a{index}.h{head}" for head, size in enumerate(sizes) if size < 0.1]
        assert silent == (["a2.h2"] if name == "backup" and index == 2 else [])
        assert (clean.mlp_out[index] - corrupted.mlp_out[index]).norm(dim=-1).amax(1).mean() > 0.1


def test_both_families_are_there():
    assert {known_model(name).module.config.model_type for name in NAMES} == {"gpt2", "llama"}


def test_the_models_tell_scorers_apart():
    model, truth = known_model("induction"), known_circuit("induction")
    areas = [
        auroc(np.abs(score_edges(model, known_task("induction", "train"), s).mean()), truth) for s in (Eap(), MaskIg())
    ]
    assert areas[0] < 0.9 < areas[1]


def test_precision_at_the_true_size_is_the_mean_over_orders_of_ties():
    graph = Graph(1, 1, 2)
    truth = Circuit.from_edges(graph, graph.edge_names[1:4])
    score = np.array([2, 1, 2, 1, 0, 1, 0, 0][: graph.n_edges], float)
    orders = [np.array(order) for order in permutations(range(graph.n_edges))]
    best = [order[np.argsort(-score[order], kind="stable")][:3] for order in orders]
    assert precision_at_true_size(score, truth) == pytest.approx(np.mean([truth.mask[edges].mean() for edges in best]))
    assert precision_at_true_size(truth.mask, truth) == 1
    with pytest.raises(InputError, match="lack some"):
        precision_at_true_size(score, Circuit.full(graph))


def test_a_known_task_needs_its_own_model():
    with pytest.raises(InputError, match="'sun' is no token of this model: use --model known/induction"):
        load_task("known/induction", known_model("ioi"))


def test_names_and_files_of_known_circuits(tmp_path):
    assert known_circuit("known/ioi") == known_circuit("ioi") == read_truth("known/ioi")
    known_circuit("ioi").save(tmp_path / "truth.npz")
    assert read_truth(str(tmp_path / "truth.npz")) == known_circuit("ioi")
    for read in (known_circuit, read_truth, load_model):
        with pytest.raises(InputError, match=r"'known/nothing'; choose one of: .*induction"):
            read("known/nothing")
