"""Against the public EAP-IG: scores, circuits and sizes of nodes and neurons."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import in_parity_folders
from test_eap_ig import TOLERANCE, Fixture

from edgewise import Circuit, Eap, EapIg, TopN
from edgewise.evaluate import Patching, Zero
from edgewise.evaluate.run_circuits import evaluate_circuits
from edgewise.graph import NeuronGraph, NodeGraph
from edgewise.score import CleanCorrupted, EapIgActivations
from edgewise.score.run_scorer import score_edges
from edgewise.select import SelectionProblem, solve

LEVELS = ["node", "neuron"]
KINDS = {"node": NodeGraph, "neuron": NeuronGraph}
pytestmark = in_parity_folders(lambda folder: (folder / "levels.npz").is_file())


@pytest.fixture(scope="module")
def fixture(parity_folder):
    fixture = Fixture(parity_folder)
    fixture.levels = np.load(parity_folder / "levels.npz")
    return fixture


def mean_scores(fixture, scorer, level):
    """[source] or [source, d_model]."""
    scores = score_edges(fixture.model, fixture.task, scorer, level=level).mean()
    return (
        scores.reshape(fixture.model.graph.n_sources, -1).squeeze(-1)
        if level == "node"
        else scores.reshape(fixture.model.graph.n_sources, -1)
    )


def check(fixture, scores, expected):
    tolerance = TOLERANCE[fixture.model.name]
    np.testing.assert_allclose(scores, expected, rtol=10 * tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("suffix", ["|output", ""], ids=["as-defined", "as-published"])
def test_scores_are_theirs(fixture, level, suffix):
    """As published, MLPs have the gradient at their input, so only other nodes are compared. All: times the batch."""
    compared = np.ones(fixture.model.graph.n_sources, bool)
    if not suffix:
        compared = np.array([not name.startswith("m") for name in fixture.model.graph.source_names])
    eap, at_ends = (mean_scores(fixture, scorer, level) for scorer in (Eap(), CleanCorrupted()))
    check(fixture, eap[compared], fixture.levels[f"{level}|EAP{suffix}|f64"][compared] * fixture.batch)
    # Their steps are 1 to 5, ours 0 to 4: step 5 is the clean run and step 0 the corrupted one.
    shifted = mean_scores(fixture, EapIg(5), level) + 2 * (eap - at_ends) / 5
    expected = fixture.levels[f"{level}|EAP-IG-inputs{suffix}|f64"] * fixture.batch
    check(fixture, shifted[compared], expected[compared])


@pytest.mark.parametrize("level", LEVELS)
def test_eap_ig_activations_is_theirs(fixture, level):
    """Where positions are added to `input`; elsewhere theirs lacks some gradients of the first layer."""
    if fixture.model.transformer.positions is None:
        return
    scores = mean_scores(fixture, EapIgActivations(5), level)
    check(fixture, scores, fixture.levels[f"{level}|EAP-IG-activations|output|f64"] * fixture.batch)


def circuits(fixture, level):
    """Their circuits, with the graph of what has a score."""
    plain, listed = fixture.model.graph, []
    for key, members in zip(fixture.levels[f"{level}|keys"], fixture.levels[f"{level}|members"], strict=True):
        unscored = [0, 2, 5] if "_u3_" in str(key) else []
        is_scored = np.ones(members.shape, bool)
        is_scored[unscored] = False
        graph = KINDS[level].of_scored(plain, is_scored)
        listed.append((str(key), Circuit(graph, members.ravel()[graph.members])))
    return listed


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("ablation", [Patching(), Zero()], ids=lambda ablation: ablation.name)
def test_circuits_give_their_logit_differences(fixture, level, ablation):
    """Without `input`, ours are pruned to nothing; theirs run, which is the same under patching only."""
    listed, expected = circuits(fixture, level), fixture.levels[f"{level}|{ablation.name}|f64"]
    ran = evaluate_circuits(fixture.model, fixture.task, [circuit for _, circuit in listed], ablation=ablation)
    has_input = np.array([circuit.graph.member_mask(circuit.mask)[0].any() for _, circuit in listed])
    compared = has_input | (ablation == Patching())
    assert has_input.any()
    np.testing.assert_allclose(ran.values[compared], expected[compared], rtol=0, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_weighted_edge_counts_are_theirs(fixture, level):
    for (key, circuit), expected in zip(
        circuits(fixture, level), fixture.levels[f"{level}|weighted_edge_count"], strict=True
    ):
        # Theirs are float32 sums.
        assert circuit.graph.weighted_edge_count(circuit.mask) == pytest.approx(float(expected), rel=1e-6), key


@pytest.mark.parametrize("level", LEVELS)
def test_top_n_selects_theirs(fixture, level):
    """Sizes count what has a score. Ours are then pruned: without `input`, to nothing."""
    for key, expected in circuits(fixture, level):
        graph, count = expected.graph, int(key.rsplit("_n", 1)[1])
        score = fixture.levels[f"{level}|EAP-IG-inputs|output|f64"].ravel()[graph.members]
        rank = "absolute" if "abs1" in key else "signed"
        chosen = solve(SelectionProblem.build(graph, score, rank, count), solver=TopN()).circuit
        assert expected.n_edges == count and chosen == expected.prune(), key
