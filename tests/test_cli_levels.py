"""Levels on the command line: from scores of the embedded model to evaluated circuits."""

import re

import numpy as np
import pytest
from commands import refused, run_command, run_json

from edgewise import Circuit, Graph
from edgewise.graph import NeuronGraph, NodeGraph, SpanGraph
from edgewise.results import check_submission
from edgewise.results.submission import MODELS, SHARES


@pytest.mark.parametrize("level, kind", [("node", NodeGraph), ("neuron", NeuronGraph)])
def test_from_scores_to_evaluated_circuits(tmp_path, level, kind):
    run_json("score", "--level", level, "--examples", 4, "--out", tmp_path / "scores")
    selected = run_json("select", tmp_path / "scores", "--size", "0.5", "--out", tmp_path / "circuit.json")
    circuit = Circuit.load(tmp_path / "circuit.json")
    assert isinstance(circuit.graph, kind) and circuit.n_edges == selected["edges_kept"]
    assert selected["weighted_edges"] == circuit.graph.weighted_edge_count(circuit.mask)
    row = run_json("evaluate", tmp_path / "circuit.json", "--examples", 4)["circuits"][0]
    assert row["edges"] == circuit.n_edges and row["unit"] == level and np.isfinite(row["faithfulness"])
    other = "edge" if level == "neuron" else "neuron"
    words = ("select", tmp_path / "scores", "--size", "0.5", "--level", other)
    assert f"has no {other}s, only {level}s" in refused(run_command, *words)


@pytest.mark.parametrize("words", [("--level", "node"), ("--level", "neuron"), ("--positions",)])
def test_full_and_empty_have_the_units_of_the_circuit_beside_them(tmp_path, words):
    """Otherwise 479 of 2,395 (edge, span) pairs look as many as the 479 edges of the whole model."""
    run_json("score", *words, "--examples", 4, "--out", tmp_path / "scores")
    run_json("select", tmp_path / "scores", "--size", "0.2", "--out", tmp_path / "circuit.npz")
    graph = Circuit.load(tmp_path / "circuit.npz").graph
    rows = run_json("evaluate", tmp_path / "circuit.npz", "full", "empty", "--examples", 4)["circuits"]
    assert [row["unit"] for row in rows] == [graph.unit] * 3
    assert [row["edges"] for row in rows[1:]] == [graph.n_edges, 0]
    assert [row["faithfulness"] for row in rows[1:]] == [1, 0]
    if isinstance(graph, NodeGraph):
        assert rows[1]["weighted_edges"] == graph.weighted_edge_count(np.ones(graph.n_edges, bool))


def test_commands_name_the_units_and_refuse_other_kinds(tmp_path):
    scores, circuit = tmp_path / "scores", tmp_path / "circuit.npz"
    run_json("score", "--level", "node", "--examples", 4, "--out", scores)
    code, output, _ = run_command("select", scores, "--size", "0.3,0.5")
    assert code == 0 and "nodes asked" in output and "edges asked" not in output
    run_json("select", scores, "--size", "0.5", "--out", circuit)
    code, output, _ = run_command("roc", scores, "--truth", circuit)
    assert code == 0 and "of 21 nodes" in output and "true node ranks" in output
    # A circuit of nodes is exported as the edges among its nodes.
    written = run_json("export", circuit, "--out", tmp_path / "circuit.dot")
    plain = Circuit.load(circuit).plain()
    assert (written["edges"], written["nodes"]) == (plain.n_edges, len(plain.nodes))
    assert all(f'key="{name}"' in (tmp_path / "circuit.dot").read_text() for name in plain.edges)
    for arguments, words in (
        (["verify", circuit], "a circuit of nodes, but this command takes circuits of edges; .* without --level"),
        (["knock-out", "--each", "--circuit", circuit], "takes circuits of edges"),
        (["select", scores, "--edges", 30], "30 nodes were asked for"),
        (["score", "--positions", "--level", "node", "--out", tmp_path / "x"], "one of --positions and --level node"),
        (["run", "--verify", "--level", "node", "--out", tmp_path / "x"], "one of --verify and --level node"),
    ):
        assert re.search(words, refused(run_command, *arguments))


def test_frames_have_the_columns_of_their_kind():
    plain = Graph(1, 2, 4)
    frame = Circuit.full(SpanGraph(plain, ("a", "b@c"))).to_frame()
    assert frame.span.tolist() == ["a", "b@c"] * plain.n_edges
    expected = Circuit.full(plain).to_frame()
    for column in ("source", "destination", "input"):
        assert frame[column].tolist() == expected[column].repeat(2).tolist()
    nodes, neurons = (Circuit.full(kind(plain)).to_frame() for kind in (NodeGraph, NeuronGraph))
    assert list(nodes.columns) == ["node"] and nodes.node.tolist() == list(plain.source_names)
    assert neurons.node.tolist() == [name for name in plain.source_names for _ in range(4)]
    assert neurons.dimension.tolist() == list(range(4)) * plain.n_sources
    assert "of 4 nodes" in repr(Circuit.full(NodeGraph(plain)))


def test_submissions_of_nodes_and_neurons_are_accepted(tmp_path):
    for task, model, kind in (("ioi", "gpt2", NodeGraph), ("mcqa", "qwen2.5", NeuronGraph)):
        folder = tmp_path / f"{task}_{model}"
        folder.mkdir()
        graph = kind(MODELS[model])
        score = np.random.default_rng(0).normal(size=graph.n_edges).astype(np.float32)
        Circuit.empty(graph).save(folder / "importances.pt", score)
    assert check_submission(tmp_path).accepted
    # Nine circuits: their edges count, those of neurons as the share of the neurons.
    folder = tmp_path / "ioi_gpt2"
    (folder / "importances.pt").unlink()
    neurons, plain = NeuronGraph(MODELS["gpt2"]), MODELS["gpt2"]
    for share in SHARES:
        mask = np.zeros((plain.n_sources, plain.d_model), bool)
        mask[:, : max(1, int(0.99 * share * plain.d_model))] = share >= 0.002
        Circuit(neurons, mask.ravel()).save(folder / f"{share:g}.pt")
    checked = check_submission(tmp_path)
    assert checked.accepted, checked
    Circuit.full(neurons).save(folder / "0.5.pt")
    assert "more than any size" in str(check_submission(tmp_path))
    assert isinstance(plain, Graph)
