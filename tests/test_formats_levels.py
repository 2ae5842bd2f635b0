"""EAP-IG's and MIB's files of nodes and neurons."""

import json

import numpy as np
import pytest
import torch
from conftest import in_parity_folders

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.graph import NeuronGraph, NodeGraph
from edgewise.io.formats import read_edge_file
from edgewise.results import convert

GRAPH = Graph(2, 2, 3)
IS_SCORED = np.ones((GRAPH.n_sources, 3), bool)
IS_SCORED[[1, 4]] = False
IS_SCORED[5, 1] = False
KINDS = {
    "nodes": NodeGraph(GRAPH),
    "some-nodes": NodeGraph.of_scored(GRAPH, IS_SCORED.any(1)),
    "neurons": NeuronGraph(GRAPH),
    "some-neurons": NeuronGraph.of_scored(GRAPH, IS_SCORED),
}


@pytest.fixture(params=KINDS)
def graph(request):
    return KINDS[request.param]


@pytest.fixture(params=[".json", ".pt"])
def suffix(request):
    return request.param


def sample(graph, seed=0):
    """A circuit with `input`, and a score of everything, exact in float32."""
    rng = np.random.default_rng(seed)
    mask = rng.random(graph.n_edges) < 0.5
    mask[0] = True
    return Circuit(graph, mask), rng.normal(size=graph.n_edges).astype(np.float32)


def test_what_is_written_is_read(tmp_path, graph, suffix):
    circuit, score = sample(graph)
    path = tmp_path / f"circuit{suffix}"
    circuit.save(path, score, {"a": 1})
    content = read_edge_file(path)
    assert Circuit(content.graph, content.require_mask()) == circuit and content.about == {"a": 1}
    np.testing.assert_array_equal(content.require_scores(), score)
    # The edges are those among the nodes, for readers that know no levels.
    edges = read_edge_file(path, "edge")
    np.testing.assert_array_equal(edges.mask, circuit.plain().mask)
    assert edges.graph == GRAPH and not edges.score.any()


def test_formats_are_converted_into_each_other(tmp_path, graph):
    circuit, score = sample(graph)
    circuit.save(tmp_path / "a.json", score)
    convert(tmp_path / "a.json", tmp_path / "b.pt")
    convert(tmp_path / "b.pt", tmp_path / "c.json")
    convert(tmp_path / "b.pt", tmp_path / "d.npz")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "c.json").read_bytes()
    assert Circuit.load(tmp_path / "d.npz") == circuit


def test_scores_without_a_circuit(tmp_path, graph, suffix):
    _, score = sample(graph)
    EdgeScores(graph, score[None]).save(tmp_path / "scores")
    convert(tmp_path / "scores", tmp_path / f"scores{suffix}")
    content = EdgeScores.load(tmp_path / f"scores{suffix}")
    assert content.graph == graph
    np.testing.assert_array_equal(content.values[0], score)
    assert not read_edge_file(tmp_path / f"scores{suffix}").has_circuit


@pytest.mark.parametrize("level", ["node", "neuron"])
@in_parity_folders(lambda folder: (folder / "levels.npz").is_file())
def test_their_own_files_are_read(parity_folder, level):
    content = read_edge_file(parity_folder / f"{level}s.pt")
    assert content.graph.level == level
    score = content.require_scores()
    expected = np.argsort(-np.abs(score), kind="stable")[: len(score) // 2]
    np.testing.assert_array_equal(np.flatnonzero(content.require_mask()), np.sort(expected))


def mib_json(tmp_path, **nodes):
    """A file as MIB's documentation has it: nodes by name, with NaN for no score; all edges out."""
    every = {name: {"in_graph": False} for name in GRAPH.node_names}
    edges = {name: {"score": 0.0, "in_graph": False} for name in GRAPH.edge_names}
    cfg = {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": False, "d_model": 3}
    path = tmp_path / "mib.json"
    path.write_text(json.dumps({"cfg": cfg, "nodes": every | nodes, "edges": edges}))
    return path


def test_nan_and_missing_scores_are_always_in_the_graph(tmp_path):
    nan = float("nan")
    path = mib_json(tmp_path, **{"m0": {"in_graph": False, "score": 0.5}, "a0.h0": {"in_graph": False, "score": nan}})
    content = read_edge_file(path)
    assert content.graph.n_edges == 1 and content.graph.edge_names == ("m0",)
    neurons = {"in_graph": False, "neurons_scores": [1.0, nan, -2.0], "neurons": [False, False, False]}
    content = read_edge_file(mib_json(tmp_path, m1=neurons))
    assert content.graph.edge_names == ("m1:0", "m1:2") and content.require_scores().tolist() == [1, -2]
    assert "input" in Circuit.empty(content.graph).plain().nodes


def test_a_level_that_a_file_does_not_have(tmp_path):
    path = mib_json(tmp_path, m0={"in_graph": False, "score": 0.5})
    with pytest.raises(InputError, match="has no neurons, only edges and nodes"):
        read_edge_file(path, "neuron")
    circuit, score = sample(KINDS["nodes"])
    circuit.save(tmp_path / "circuit.npz", score)
    with pytest.raises(InputError, match="has no edges, only nodes"):
        read_edge_file(tmp_path / "circuit.npz", "edge")


def edit_pt(tmp_path, **changes):
    circuit, score = sample(KINDS["neurons"])
    circuit.save(tmp_path / "neurons.pt", score)
    torch.save(torch.load(tmp_path / "neurons.pt") | changes, tmp_path / "edited.pt")
    return tmp_path / "edited.pt"


def test_circuits_of_two_levels_are_refused(tmp_path):
    data = torch.load(edit_pt(tmp_path))
    edges = data["edges_in_graph"].clone()
    edges[0, -1] = not edges[0, -1]
    path = edit_pt(tmp_path, edges_in_graph=edges)
    with pytest.raises(InputError, match="without some edges among them"):
        read_edge_file(path).require_mask()
    with pytest.raises(InputError, match="circuit of neurons"):
        read_edge_file(path, "edge").require_mask()
    read_edge_file(path).require_scores()  # scores are scores


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"neurons_scores": torch.zeros(7, 4)}, r"\[7, 4\], but \[7, 3\]"),
        ({"neurons_scores": torch.zeros(7, 3, dtype=torch.int64)}, "floating-point"),
        ({"neurons_in_graph": torch.full((7, 3), 2)}, "true or false"),
        ({"nodes_scores": torch.zeros(8)}, r"\[8\], but \[7\]"),
        ({"nodes_in_graph": torch.full((7,), 0.5)}, "true or false"),
        ({"nodes_scores": [1, 2]}, "dense tensor"),
        ({"neurons_scores": torch.full((7, 3), float("inf"))}, "finite number"),
    ],
)
def test_wrong_tensors_are_errors(tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        read_edge_file(edit_pt(tmp_path, **changes)).require_scores()


@pytest.mark.parametrize(
    "node, words",
    [
        ({"neurons": [True, False]}, "2 values, but d_model is 3"),
        ({"neurons_scores": [0.5] * 4}, "4 values, but d_model is 3"),
        ({"neurons": [0.5, 1, 0]}, "true or false"),
        ({"score": "high"}, "Expected `float | null`"),
        ({"in_graph": 1}, "Expected `bool`"),
        ([1], "Expected `object`"),
    ],
)
def test_wrong_nodes_are_errors(tmp_path, node, words):
    with pytest.raises(InputError, match=words):
        read_edge_file(mib_json(tmp_path, m0=node))


def test_neurons_without_any_score_are_a_circuit_only(tmp_path):
    path = edit_pt(tmp_path, neurons_scores=torch.full((7, 3), float("nan")), neurons_in_graph=torch.ones(7, 3))
    content = read_edge_file(path, "neuron")
    assert content.graph == NeuronGraph(GRAPH) and np.isnan(content.score).all()
    with pytest.raises(InputError, match="21 of 21"):
        content.require_scores()


def test_a_small_file_can_not_claim_many_neurons(tmp_path):
    path = mib_json(tmp_path, m0={"neurons_scores": [0.5] * 3})
    path.write_text(path.read_text().replace('"d_model": 3', '"d_model": 1000000000'))
    with pytest.raises(InputError, match="too small a file for the neurons"):
        read_edge_file(path)
    with pytest.raises(InputError, match="must have a score for every one"):
        NeuronGraph(Graph(2, 2, 2**30), ((0, 5),))
    assert NodeGraph(Graph(2, 2, 2**30), ((0, 5),)).n_edges == 2
