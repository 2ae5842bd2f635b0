"""EAP-IG's json, edgewise's npz and score folders: save and load are inverse, wrong files raise InputError."""

import json
import random
import tracemalloc

import numpy as np
import pytest
from commands import refused
from hypothesis import given, settings, strategies as st

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.core.scores import fill_folder
from edgewise.io import formats
from edgewise.io.atomic import atomic_file
from edgewise.io.formats import read_edge_file
from edgewise.report.viewer.view import view_of
from edgewise.results import convert

GRAPH = Graph(2, 2, 6, parallel=True)


def random_circuit(graph: Graph, share: float = 0.3, seed: int = 0) -> tuple[Circuit, np.ndarray]:
    rng = np.random.default_rng(seed)
    return Circuit(graph, rng.random(graph.n_edges) < share), rng.normal(size=graph.n_edges)


CIRCUIT, SCORE = random_circuit(GRAPH)


def edited(tmp_path, change):
    """Return the path of a json whose data was changed."""
    path = tmp_path / "file.json"
    CIRCUIT.save(path, SCORE)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def test_a_circuit_survives_its_json(tmp_path):
    path = tmp_path / "deep" / "circuit.json"
    CIRCUIT.save(path, SCORE, {"method": "ILP"})
    assert Circuit.load(path) == CIRCUIT
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], SCORE)
    data = json.loads(path.read_text())
    assert data["cfg"] == {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": True, "d_model": 6}
    assert list(data["nodes"]) == [*GRAPH.source_names, "logits"] and data["edgewise"]["method"] == "ILP"
    assert list(data["edges"]) == list(GRAPH.edge_names)


def test_json_written_in_chunks_is_json(tmp_path, monkeypatch):
    path = tmp_path / "circuit.json"
    for chunk in (1, GRAPH.n_edges - 1, GRAPH.n_edges, GRAPH.n_edges + 1):
        monkeypatch.setattr(formats, "EDGES_PER_WRITE", chunk)
        CIRCUIT.save(path, SCORE.astype(np.float32))
        assert path.read_text() == json.dumps(json.loads(path.read_text()))
        np.testing.assert_array_equal(EdgeScores.load(path).values[0], SCORE.astype(np.float32))


def test_keys_and_edges_may_come_in_any_order_and_edges_may_be_missing(tmp_path):
    path = edited(tmp_path, lambda data: None)
    data = json.loads(path.read_text())
    edges = list(data["edges"].items())
    random.Random(0).shuffle(edges)
    path.write_text(json.dumps({"edges": dict(edges), "nodes": data["nodes"], "cfg": data["cfg"]}))
    assert Circuit.load(path) == CIRCUIT
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], SCORE)
    path = edited(tmp_path, lambda data: data.update(edges={"input->logits": {"in_graph": True}}))
    assert np.flatnonzero(Circuit.load(path).mask).tolist() == [GRAPH.blocks[-1].start]
    path = edited(tmp_path, lambda data: data.update(edges={}))
    assert read_edge_file(path).score is None and Circuit.load(path) == Circuit.empty(GRAPH)


def test_a_partial_json_of_a_large_model_is_read(tmp_path):
    """Edges that are outside may be left out, even nearly all of those of Llama 3 8B."""
    cfg = {"n_layers": 32, "n_heads": 32, "d_model": 4096}
    edges = {"a5.h3->a6.h31<k>": {"in_graph": True}, "input->logits": {"in_graph": True}}
    (tmp_path / "c.json").write_text(json.dumps({"cfg": cfg, "nodes": {"m3": {"in_graph": False}}, "edges": edges}))
    circuit = Circuit.load(tmp_path / "c.json")
    assert circuit.n_edges == 2 and set(circuit.edges) == set(edges)


def input_edge(**changes):
    return lambda data: data["edges"]["input->logits"].update(changes)


@pytest.mark.parametrize(
    "change, words",
    [(lambda d: d.pop("cfg"), "keys cfg"), (lambda d: d.pop("nodes"), "keys cfg"), (lambda d: d.pop("edges"), "cfg"),
     (lambda d: d.update(cfg=[]), "cfg must map"), (lambda d: d.update(nodes=[]), "Expected .object."),
     (lambda d: d.update(edges=[]), "keys cfg"), (lambda d: d.update(edgewise=3), "must be an object"),
     (lambda d: d.update(edgewise={"a": float("nan")}), "NaN or infinite"),
     (lambda d: d["cfg"].pop("n_heads"), "cfg must map"), (lambda d: d["cfg"].update(n_heads=True), "n_heads"),
     (lambda d: d["cfg"].update(n_layers=0), "at least 1"), (lambda d: d["cfg"].update(n_layers=10**9), "larger"),
     (lambda d: d["cfg"].update(n_layers=2.0), "whole"), (lambda d: d["cfg"].update(n_layers=3), "of 94 edges have no"),
     (lambda d: d["cfg"].update(parallel_attn_mlp="false"), "'false'"),
     (lambda d: d["nodes"].update(m7={"in_graph": True}), "node 'm7'"),
     (lambda d: d["nodes"]["m0"].update(in_graph="yes"), "in_graph"),
     (lambda d: d["edges"].pop("input->logits"), "1 of 42 edges.*input->logits"),
     (lambda d: d["edges"]["input->logits"].pop("score"), "1 of 42 edges.*input->logits"),
     (lambda d: d["edges"]["input->logits"].pop("in_graph"), "some edges say whether they are in_graph"),
     (lambda d: d["edges"].update({"a7.h0->logits": d["edges"].pop("input->logits")}), "'a7.h0->logits'"),
     (lambda d: d["edges"].update({"logits->input": d["edges"].pop("input->logits")}), "'logits->input'"),
     (lambda d: d["edges"].update({"m1->m0": {"score": 1.0, "in_graph": True}}), "'m1->m0'"),
     (lambda d: d["edges"].update({"a0.h0->m0": {"score": 1.0, "in_graph": True}}), "'a0.h0->m0'"),
     (lambda d: d["edges"].update({"input": {}}), "'input'|some edges say"),
     (lambda d: d["edges"].update({"input->logits": 0.5}), "`object`, got `float`"),
     (input_edge(score="0.5"), "got `str`"), (input_edge(score=True), "got `bool`"),
     (input_edge(score=10**400), "out of range"), (input_edge(weight=1), "unknown field `weight`"),
     (input_edge(score=float("nan")), "NaN or infinite"), (input_edge(score=float("inf")), "infinite"),
     (input_edge(in_graph=1), "`bool.*got `int`")],
)  # fmt: skip
def test_wrong_values_in_a_json_raise(tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        EdgeScores.load(edited(tmp_path, change))


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('"input->a0.h1<q>"', '"input->a0.h0<q>"', "an edge is there more than once"),
        ('"nodes": {', '"nodes": {"m0": {"in_graph": true}, "m0": {}, ', "the key 'm0' is there more than once"),
        ('"nodes"', '"cfg"', "missing required field `nodes`"),
        ('}, "edgewise"', ',}, "edgewise"', "isn't JSON"),
        ('}}, "edgewise"', '}, "edgewise"', "isn't JSON|Expected `object`"),
        ('"edgewise"', '"x": "\\ud800", "edgewise"', "isn't JSON"),
        ('"edges": {', '"edges": {"input->m0": 1, ', "Expected `object`, got `int`"),
        ('"edgewise": {}}', '"edgewise": {}}x', "isn't JSON"),
    ],
)
def test_text_that_is_no_json_of_edges_raises(tmp_path, old, new, words):
    path = edited(tmp_path, lambda data: None)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=words):
        Circuit.load(path)


@pytest.mark.parametrize(
    "content, words",
    [(b"{", "isn't JSON"), (b"", "isn't JSON"), (b"\xff\xfe\0", "isn't JSON"), (b"[]", "keys cfg"),
     (b"[" * 10**5, "keys cfg")],
)  # fmt: skip
def test_other_json_raises(tmp_path, content, words):
    path = tmp_path / "not.json"
    path.write_bytes(content)
    for read in (EdgeScores.load, Circuit.load):
        with pytest.raises(InputError, match=words):
            read(path)


@pytest.mark.parametrize("depth", range(900, 1000, 7))
def test_deeply_nested_json_raises_input_errors(tmp_path, depth):
    """Showing a value takes as many levels as reading it did, and a few are gone by then."""
    deep = "[" * depth + "]" * depth
    cfg = f'{{"n_layers": {deep}, "n_heads": 1, "d_model": 1, "parallel_attn_mlp": {deep}}}'
    edge = f'{{"input->logits": {{"score": {deep}, "in_graph": true}}}}'
    right = '{"n_layers": 1, "n_heads": 1, "d_model": 1}'
    for shape, edges in ((cfg, "{}"), (right, edge)):
        (tmp_path / "c.json").write_text(f'{{"cfg": {shape}, "nodes": {{}}, "edges": {edges}}}')
        with pytest.raises(InputError, match=r"c\.json"):
            Circuit.load(tmp_path / "c.json")
    (tmp_path / "scores.json").write_text(f'{{"format": {deep}, "version": {deep}}}')
    with pytest.raises(InputError, match=r"scores\.json"):
        EdgeScores.load(tmp_path)


def test_scores_and_membership_are_required_only_by_their_readers(tmp_path):
    def without(key):
        return lambda data: [edge.pop(key) for edge in data["edges"].values()]

    path = edited(tmp_path, without("score"))
    assert Circuit.load(path) == CIRCUIT
    with pytest.raises(InputError, match="no scores"):
        EdgeScores.load(path)
    path = edited(tmp_path, without("in_graph"))
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], SCORE)
    with pytest.raises(InputError, match="select a circuit"):
        Circuit.load(path)
    path = edited(tmp_path, lambda data: data["nodes"]["m0"].update(neurons=[True] * 6))
    with pytest.raises(InputError, match="circuit of neurons"):
        Circuit.load(path)


def test_scores_survive_their_folder(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, GRAPH.n_edges)).astype(np.float32)
    EdgeScores(GRAPH, values, {"task": "ioi"}).save(tmp_path / "scores")
    for place in (tmp_path / "scores", tmp_path):
        again = EdgeScores.load(place)
        np.testing.assert_array_equal(again.values, values)
        assert again.graph == GRAPH and dict(again.provenance) == {"task": "ioi"}


@pytest.mark.parametrize(
    "change, words",
    [({"version": 99}, "version 99"), ({"format": None}, "format None"), ({"graph": {"layers": 2}}, "field `n_layers`"),
     ({"graph": ...}, "lacks graph"), ({"graph": 3}, "graph"), ({"examples": 4}, r"\[3, 42\], but \[4, 42\]"),
     ({"examples": True}, "examples"), ({"provenance": None}, "provenance"), ({"more": 1}, "more")],
)  # fmt: skip
def test_a_wrong_record_of_scores_raises(tmp_path, change, words):
    fill_folder(tmp_path, EdgeScores(GRAPH, np.ones((3, GRAPH.n_edges))))
    record = json.loads((tmp_path / "scores.json").read_text()) | change
    (tmp_path / "scores.json").write_text(json.dumps({key: value for key, value in record.items() if value is not ...}))
    with pytest.raises(InputError, match=words):
        EdgeScores.load(tmp_path)


@pytest.mark.parametrize(
    "values, words",
    [(SCORE[None, 1:], r"\[1, 41\], but \[1, 42\]"), (SCORE[None] * np.nan, "NaN"),
     (SCORE[None].astype(int), "floating-point"), (SCORE[None].astype(str), "floating-point")],
)  # fmt: skip
def test_wrong_arrays_of_scores_raise(tmp_path, values, words):
    fill_folder(tmp_path, EdgeScores(GRAPH, SCORE[None]))
    np.save(tmp_path / "scores.npy", values)
    with pytest.raises(InputError, match=words):
        EdgeScores.load(tmp_path)
    (tmp_path / "scores.npy").unlink()
    with pytest.raises(InputError, match="no file"):
        EdgeScores.load(tmp_path)


def test_paths_of_unknown_formats_raise(tmp_path):
    for read in (EdgeScores.load, Circuit.load):
        for name in ("none.json", "none.pt", "none.txt"):
            with pytest.raises(InputError, match="no file"):
                read(tmp_path / name)
        (tmp_path / "some.txt").write_text("some")
        with pytest.raises(InputError, match=r"\.json, \.pt or \.npz"):
            read(tmp_path / "some.txt")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="no scores"):
            EdgeScores.load(folder)
    with pytest.raises(InputError, match="is a folder"):
        Circuit.load(tmp_path)
    for name in ("circuit.txt", "circuit"):
        with pytest.raises(InputError, match=r"\.json, \.pt or \.npz"):
            CIRCUIT.save(tmp_path / name, SCORE)


@pytest.mark.parametrize("name", ["circuit.json", "circuit.pt", "circuit.npz"])
def test_values_that_cannot_be_read_again_are_not_written(tmp_path, name):
    path = tmp_path / name
    for score, words in ((SCORE * np.nan, "NaN"), (SCORE[1:], "42 edges")):
        with pytest.raises(InputError, match=words):
            CIRCUIT.save(path, score)
    with pytest.raises(ValueError):
        CIRCUIT.save(path, SCORE, {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_failed_writes_leave_nothing(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "old.txt") as draft:
        draft.write_text("half")
        raise RuntimeError
    assert (tmp_path / "old.txt").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_reading_and_writing_take_little_more_memory_than_the_arrays(tmp_path, suffix):
    graph = Graph(16, 12, 4)
    circuit, score = random_circuit(graph)
    path = tmp_path / f"c{suffix}"
    assert graph.n_edges > 50_000 and graph.edge_target.size and graph.source_names  # made once for all
    for act in (lambda: circuit.save(path, score), lambda: read_edge_file(path)):
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (60e6 if suffix == ".json" else 3e6), f"{peak:,}"


def test_circuits_of_every_size_take_few_bytes(tmp_path):
    graph = Graph(24, 14, 896)  # Qwen2.5 0.5B
    for share in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        circuit, score = random_circuit(graph, share)
        circuit.save(tmp_path / f"{share}.npz", score, {"model": "large"})
        assert Circuit.load(tmp_path / f"{share}.npz") == circuit
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2e6


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.floats(0, 1), st.integers(0, 99))
def test_a_circuit_survives_npz(tmp_path_factory, layers, heads, parallel, share, seed):
    circuit, score = random_circuit(Graph(layers, heads, 4, parallel), share, seed)
    score = score.astype(np.float32).astype(np.float64)
    folder = tmp_path_factory.mktemp("packed")
    circuit.save(folder / "c.npz", score, {"origin": "ü"})
    file = read_edge_file(folder / "c.npz")
    assert Circuit(file.graph, file.require_mask()) == circuit and file.about == {"origin": "ü"}
    np.testing.assert_array_equal(file.score[circuit.mask], score[circuit.mask])
    assert np.isnan(file.score[~circuit.mask]).all()
    if circuit.n_edges:  # by way of the field's files, and back
        for suffix in (".json", ".pt"):
            convert(folder / "c.npz", folder / f"c{suffix}")
            convert(folder / f"c{suffix}", folder / "back.npz", overwrite=True)
            assert (folder / "back.npz").read_bytes() == (folder / "c.npz").read_bytes()


def test_an_npz_is_no_file_of_scores_and_scores_are_no_npz(tmp_path):
    CIRCUIT.save(tmp_path / "c.npz", SCORE)
    with pytest.raises(InputError, match="edges have no score"):
        EdgeScores.load(tmp_path / "c.npz")
    EdgeScores(GRAPH, SCORE[None]).save(tmp_path / "scores")
    with pytest.raises(InputError, match="select a circuit first"):
        convert(tmp_path / "scores", tmp_path / "s.npz")
    with pytest.raises(InputError, match="too large"):
        CIRCUIT.save(tmp_path / "d.npz", SCORE * 1e300)
    notes = convert(tmp_path / "c.npz", tmp_path / "c.json").notes
    assert notes == ("edges outside have score 0: the source has scores of those inside only",)
    CIRCUIT.save(tmp_path / "full.json", SCORE)
    assert convert(tmp_path / "full.json", tmp_path / "e.npz").notes == ("scores of edges outside aren't kept",)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda a: a | {"inside": a["inside"][:-1]}, "inside has"),
        (lambda a: a | {"score": a["score"][1:]}, "scores for"),
        (lambda a: a | {"score": a["score"] * np.float32("nan")}, "NaN or infinite"),
        (lambda a: a | {"about": a["about"][:-1]}, "about in .* can't be read"),
        (lambda a: a | {"more": a["about"]}, "must hold the arrays about, inside, score"),
        (lambda a: {"score": a["score"]}, "must hold the arrays about, inside, score"),
    ],
)
def test_damaged_npz_circuits_raise(tmp_path, change, words):
    CIRCUIT.save(tmp_path / "c.npz", SCORE)
    np.savez(tmp_path / "d.npz", **change(dict(np.load(tmp_path / "c.npz"))))
    with pytest.raises(InputError, match=words):
        read_edge_file(tmp_path / "d.npz")


def test_the_viewer_has_the_scores_of_every_circuit_in_a_folder(tmp_path):
    edges = np.arange(GRAPH.n_edges)
    for name, mask in (("c-0.2", edges < 9), ("c-0.5", edges >= 20)):  # neither holds the other
        Circuit(GRAPH, mask).save(tmp_path / f"{name}.npz", SCORE)
    (run,) = view_of([tmp_path]).runs
    np.testing.assert_array_equal(run.mean, np.where((edges >= 9) & (edges < 20), 0, SCORE.astype(np.float32)))


def test_a_folder_of_circuits_converts_to_eap_ig_files(edgewise, tmp_path):
    circuits = {f"cmd-{share}": random_circuit(GRAPH, share) for share in (0.3, 0.5)}
    (tmp_path / "circuits").mkdir()
    for name, (circuit, score) in circuits.items():
        circuit.save(tmp_path / "circuits" / f"{name}.npz", score)
    for words, suffix in (((), "json"), (("--format", "PT"), "pt")):
        target = tmp_path / f"as {suffix}"
        code, out, _ = edgewise("convert", tmp_path / "circuits", target, *words)
        assert code == 0 and out.count("wrote") == 2 and out.count("note:") == 1
        assert {path.name: Circuit.load(path) for path in target.iterdir()} == {
            f"{name}.{suffix}": circuit for name, (circuit, _) in circuits.items()
        }
    for words, message in (
        (("as json", "--format", "pt"), "with other content; choose another"),
        (("x", "--format", "npz"), "'pt', 'json'"),
    ):
        target, *options = words
        assert message in refused(edgewise, "convert", tmp_path / "circuits", tmp_path / target, *options)
