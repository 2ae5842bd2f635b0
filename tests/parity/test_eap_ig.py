"""Against the public EAP-IG: what it computed on random models, edge by edge and circuit by circuit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

from edgewise import Circuit, Example, Task
from edgewise.evaluate.verb import evaluate_circuits
from edgewise.models import wrap_model
from edgewise.score import score_edges
from edgewise.select import SelectionProblem, solve

# HuggingFace's rotary tables are float32 in a float64 model too.
TOLERANCE = {"gpt2": 1e-7, "qwen2": 1e-5, "gemma2": 1e-5}


class Fixture:
    """A random model, its prompt pairs, and what EAP-IG made of them."""

    def __init__(self, folder):
        meta = json.loads((folder / "meta.json").read_text())
        kind = getattr(transformers, meta["hf_class"])
        loaded = kind(kind.config_class(**meta["hf_config"]))
        weights = np.load(folder / "hf_state_dict.npz")
        loaded.load_state_dict({name: torch.tensor(weights[name]) for name in weights.files})
        self.model = wrap_model(loaded.double(), name=folder.name)
        data = np.load(folder / "data.npz")
        rows = zip(data["clean"], data["corrupted"], data["length"], data["labels"], strict=True)
        examples = (
            Example(tuple(clean[:n].tolist()), tuple(corrupted[:n].tolist()), int(right), int(wrong))
            for clean, corrupted, n, (right, wrong) in rows
        )
        self.task = Task("fixture", "all", tuple(examples))
        self.batch = int(data["batch"])
        self.lengths = data["length"]
        self.scores = np.load(folder / "scores.npz")
        self.evaluation = np.load(folder / "evaluation.npz")
        self.circuits = [circuit["key"] for circuit in meta["circuits"]]

    def edges(self, matrix):
        graph = self.model.graph
        return matrix[graph.edge_source, graph.edge_destination]


@pytest.fixture(scope="module", params=sorted(TOLERANCE))
def fixture(request):
    from conftest import SHARED

    if not SHARED.is_dir():
        pytest.skip("the shared reference data isn't here")
    return Fixture(SHARED / "fixtures" / request.param)


@pytest.mark.parametrize("method, theirs", [("eap", "EAP"), ("eap-ig", "EAP-IG-inputs")])
def test_scores_are_theirs_but_for_their_division_by_the_batch(fixture, method, theirs):
    if fixture.model.name == "gemma2":
        pytest.skip("theirs leaves out the norm after attention, ours differentiates through it")
    expected = fixture.edges(fixture.scores[f"{theirs}|f64"]) * fixture.batch
    found = score_edges(fixture.model, fixture.task, method, 5).mean()
    tolerance = TOLERANCE[fixture.model.name]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_leaving_out_one_edge_has_the_effect_that_theirs_has(fixture):
    """Their exact patching of one edge at a time; for Gemma-2 it is the judge of what an edge is."""
    graph = fixture.model.graph
    edges = np.arange(0, graph.n_edges, 3)  # a third of them is enough, and a third of the time
    without = [Circuit(graph, np.arange(graph.n_edges) != edge) for edge in edges]
    found = evaluate_circuits(fixture.model, fixture.task, without)
    effect = (found.full - found.values).mean(1)
    expected = fixture.edges(fixture.scores["exact|f64"])[edges]
    np.testing.assert_allclose(effect, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_gemma_scores_are_nearer_to_exact_patching_than_without_the_norm_after_attention(fixture):
    if fixture.model.name != "gemma2":
        pytest.skip("only Gemma-2 norms what its heads write")
    exact, theirs = (fixture.edges(fixture.scores[f"{name}|f64"]) for name in ("exact", "EAP-IG-inputs"))
    ours = score_edges(fixture.model, fixture.task, "eap-ig", 5).mean()
    assert np.corrcoef(ours, exact)[0, 1] > np.corrcoef(theirs, exact)[0, 1]
    assert np.abs(ours - exact).mean() < np.abs(theirs * fixture.batch - exact).mean()


@pytest.mark.parametrize("ablation", ["patching", "zero"])
def test_circuits_give_their_logit_differences(fixture, ablation):
    circuits = [
        Circuit(fixture.model.graph, fixture.edges(fixture.evaluation[f"in_graph_raw|{key}"]))
        for key in fixture.circuits
    ]
    found = evaluate_circuits(fixture.model, fixture.task, circuits, ablation=ablation)
    expected = np.stack([fixture.evaluation[f"ld|{key}|{ablation}|f64"] for key in fixture.circuits])
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.full, fixture.evaluation["baseline|f64"], rtol=0, atol=1e-5)


def test_positional_means_give_theirs_where_no_prompt_is_padded(fixture):
    """Theirs averages padding in; ours doesn't. They agree on prompts as short as the shortest."""
    if fixture.model.name == "gemma2":
        pytest.skip("theirs adds the mean to the clean run's activations, too, where a norm follows attention")
    circuits = [
        Circuit(fixture.model.graph, fixture.edges(fixture.evaluation[f"in_graph_raw|{key}"]))
        for key in fixture.circuits
    ]
    found = evaluate_circuits(fixture.model, fixture.task, circuits, ablation="positional-mean")
    expected = np.stack([fixture.evaluation[f"ld|{key}|mean-positional|f64"] for key in fixture.circuits])
    short = fixture.lengths == fixture.lengths.min()
    assert short.sum() >= 2
    np.testing.assert_allclose(found.values[:, short], expected[:, short], rtol=0, atol=1e-5)


def test_greedy_and_top_n_choose_their_edges(fixture):
    """But for equal scores, which they break by when a node was reached and ours by edge order."""
    score = fixture.edges(fixture.scores["EAP-IG-inputs|f64"])
    _, place, count_of = np.unique(score, return_inverse=True, return_counts=True)
    untied = count_of[place] == 1
    assert untied.mean() > 0.9
    for key in fixture.circuits:
        kind, rank, count = key.split("_")[0], "absolute" if "abs1" in key else "signed", int(key.rsplit("_n", 1)[1])
        solver = {"greedy": "greedy", "topn": "top-n"}.get(kind)
        if solver is None:
            continue
        problem = SelectionProblem.build(fixture.model.graph, score, rank, count)
        expected = fixture.edges(fixture.evaluation[f"in_graph|{key}"])
        found = solve(problem, solver).circuit.mask
        assert (found == expected)[untied].all() and found.sum() == expected.sum(), key
