"""Files: save and load are inverse; a file that isn't right is refused in words, and nothing is half-written."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.core.scores import fill_folder
from edgewise.io import eap_json
from edgewise.io.atomic import atomic_file, atomic_folder

GRAPH = Graph(2, 2, 6, parallel=True)


def some_circuit(seed=0):
    return Circuit(GRAPH, np.random.default_rng(seed).random(GRAPH.n_edges) < 0.3)


def some_scores(seed=1):
    return np.random.default_rng(seed).normal(size=GRAPH.n_edges)


def test_a_circuit_survives_its_file(tmp_path):
    path = tmp_path / "deep" / "circuit.json"
    some_circuit().save(path, some_scores(), {"method": "ILP"})
    assert Circuit.load(path) == some_circuit()
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], some_scores())
    data = json.loads(path.read_text())
    assert data["cfg"] == {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": True, "d_model": 6}
    assert list(data["nodes"]) == [*GRAPH.source_names, "logits"] and data["edgewise"]["method"] == "ILP"
    assert list(data["edges"]) == list(GRAPH.edge_names)
    assert path.read_text() == json.dumps(data)


def test_json_written_in_chunks_is_json(tmp_path, monkeypatch):
    path = tmp_path / "circuit.json"
    for chunk in (1, GRAPH.n_edges - 1, GRAPH.n_edges, GRAPH.n_edges + 1):
        monkeypatch.setattr(eap_json, "EDGES_PER_WRITE", chunk)
        some_circuit().save(path, some_scores().astype(np.float32), {})
        assert path.read_text() == json.dumps(json.loads(path.read_text()))
        np.testing.assert_array_equal(EdgeScores.load(path).values[0], some_scores().astype(np.float32))


def test_edges_may_be_listed_in_any_order(tmp_path):
    path = edited(tmp_path, lambda data: None)
    data = json.loads(path.read_text())
    edges = list(data["edges"].items())
    random.Random(0).shuffle(edges)
    path.write_text(json.dumps({"edges": dict(edges), "nodes": data["nodes"], "cfg": data["cfg"]}))
    assert Circuit.load(path) == some_circuit()
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], some_scores())


def test_scores_survive_their_folder(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, GRAPH.n_edges)).astype(np.float32)
    scores = EdgeScores(GRAPH, values, {"task": "ioi"})
    (tmp_path / "scores").mkdir()
    fill_folder(tmp_path / "scores", scores)
    for place in (tmp_path / "scores", tmp_path):
        again = EdgeScores.load(place)
        np.testing.assert_array_equal(again.values, values)
        assert again.graph == GRAPH and dict(again.provenance) == {"task": "ioi"}


def edited(tmp_path, change):
    path = tmp_path / "file.json"
    some_circuit().save(path, some_scores(), {})
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def one_edge(**changes):
    return lambda data: data["edges"]["input->logits"].update(changes)


@pytest.mark.parametrize(
    "change, words",
    [(lambda d: d.pop("cfg"), "keys cfg"), (lambda d: d.pop("nodes"), "keys cfg"),
     (lambda d: d["cfg"].pop("n_heads"), "cfg must map"), (lambda d: d["cfg"].update(n_heads=True), "n_heads"),
     (lambda d: d["cfg"].update(n_layers=0), "n_layers >= 1"), (lambda d: d["cfg"].update(n_layers=10**9), "larger"),
     (lambda d: d["cfg"].update(parallel_attn_mlp="false"), "'false'"),
     (lambda d: d["cfg"].update(n_layers=3), "of 94 edges have no score"),
     (lambda d: d["nodes"].update(m7={"in_graph": True}), "node 'm7'"),
     (lambda d: d["edges"].pop("input->logits"), "1 of 42 edges.*input->logits"),
     (lambda d: d["edges"]["input->logits"].pop("score"), "1 of 42 edges.*input->logits"),
     (lambda d: d["edges"].update({"a7.h0->logits": d["edges"].pop("input->logits")}), "'a7.h0->logits'"),
     (lambda d: d["edges"].update({"logits->input": d["edges"].pop("input->logits")}), "'logits->input'"),
     (lambda d: d["edges"].update({"m1->m0": {"score": 1.0, "in_graph": True}}), "'m1->m0'"),
     (lambda d: d["edges"].update({"a0.h0->m0": {"score": 1.0, "in_graph": True}}), "'a0.h0->m0'"),
     (lambda d: d["edges"].update({"input": {}}), "'input'"),
     (lambda d: d["edges"].update({"input->logits": 0.5}), "`object`, got `float`"),
     (one_edge(score="0.5"), "got `str`"), (one_edge(score=True), "got `bool`"),
     (one_edge(score=10**400), "out of range"),
     (one_edge(score=float("nan")), "NaN or infinite"), (one_edge(score=float("inf")), "infinite"),
     (one_edge(in_graph=1), "`bool.*got `int`")],
)  # fmt: skip
def test_scores_of_a_broken_json_raise(tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        EdgeScores.load(edited(tmp_path, change))


def test_scores_and_membership_are_required_only_by_their_readers(tmp_path):
    def without(key):
        return lambda data: [info.pop(key) for info in data["edges"].values()]

    path = edited(tmp_path, without("score"))
    assert Circuit.load(path) == some_circuit()
    with pytest.raises(InputError, match="no scores"):
        EdgeScores.load(path)
    path = edited(tmp_path, without("in_graph"))
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], some_scores())
    with pytest.raises(InputError, match="select a circuit"):
        Circuit.load(path)
    path = edited(tmp_path, lambda data: data.update(edges={"input->logits": {"in_graph": True}}))
    assert np.flatnonzero(Circuit.load(path).mask).tolist() == [GRAPH.blocks[-1].start]
    path = edited(tmp_path, lambda data: data.update(edges={}))
    assert Circuit.load(path) == Circuit.empty(GRAPH)
    path = edited(tmp_path, lambda data: data["nodes"]["m0"].update(neurons=[True] * 6))
    with pytest.raises(InputError, match="circuit of neurons"):
        Circuit.load(path)


@pytest.mark.parametrize(
    "text, words", [("{", "isn't JSON"), ("", "isn't JSON"), ("[]", "keys cfg"), ("[" * 10**5, "keys cfg")]
)
def test_other_json_raises(tmp_path, text, words):
    path = tmp_path / "not.json"
    path.write_text(text)
    for read in (EdgeScores.load, Circuit.load):
        with pytest.raises(InputError, match=words):
            read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="isn't JSON"):
        Circuit.load(path)


def test_broken_score_folders_raise(tmp_path):
    def refused(words):
        with pytest.raises(InputError, match=words):
            EdgeScores.load(tmp_path)

    refused("no scores")
    about = tmp_path / "scores.json"
    about.write_text(json.dumps({"format": "edgewise-scores", "version": 99}))
    refused("version 99")
    about.write_text("[]")
    refused("format None")
    about.write_text(json.dumps({"format": "edgewise-scores", "version": 1}))
    refused("lacks graph")
    about.write_text(json.dumps({"format": "edgewise-scores", "version": 1, "graph": {"layers": 2}}))
    refused("lacks examples, provenance")
    about.unlink()
    fill_folder(tmp_path, EdgeScores(GRAPH, some_scores()[None]))
    for content, words in (
        (some_scores()[None, 1:], r"\[1, 41\], but \[1, 42\]"),
        (np.full((1, GRAPH.n_edges), np.nan), "NaN"),
        (np.ones((1, GRAPH.n_edges), int), "floating-point"),
        (np.array([["a"] * GRAPH.n_edges]), "floating-point"),
    ):
        np.save(tmp_path / "scores.npy", content)
        refused(words)
    (tmp_path / "scores.npy").write_bytes(b"")
    refused("can't be read")
    (tmp_path / "scores.npy").unlink()
    refused("no file")


def test_paths_of_unknown_formats_raise(tmp_path):
    for read in (EdgeScores.load, Circuit.load):
        for name in ("none.json", "none.pt", "none.txt"):
            with pytest.raises(InputError, match="no file"):
                read(tmp_path / name)
        (tmp_path / "some.txt").write_text("some")
        with pytest.raises(InputError, match=r"\.json, \.pt or \.npz"):
            read(tmp_path / "some.txt")
    with pytest.raises(InputError, match="no scores"):
        EdgeScores.load(tmp_path / "none")
    with pytest.raises(InputError, match="is a folder"):
        Circuit.load(tmp_path)
    for name in ("circuit.txt", "circuit"):
        with pytest.raises(InputError, match=r"\.json, \.pt or \.npz"):
            some_circuit().save(tmp_path / name, some_scores(), {})


@pytest.mark.parametrize("name", ["circuit.json", "circuit.pt"])
def test_values_that_cannot_be_read_again_are_not_written(tmp_path, name):
    path = tmp_path / name
    nan = some_scores()
    nan[3] = np.nan
    for score, words in ((nan, "NaN"), (some_scores()[1:], "42 edges")):
        with pytest.raises(InputError, match=words):
            some_circuit().save(path, score, {})
    with pytest.raises(ValueError):
        some_circuit().save(path, some_scores(), {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


def test_json_and_folders_need_no_torch(tmp_path):
    some_circuit().save(tmp_path / "circuit.json", some_scores(), {})
    code = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
from pathlib import Path
from edgewise import Circuit
from edgewise.results import convert, convert_to_submission, result_folder, submission
folder = Path(sys.argv[1])
Circuit.load(folder / "circuit.json")
convert(folder / "circuit.json", folder / "scores")
convert(folder / "scores", folder / "again.json")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_failed_writes_leave_nothing(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    for write in (lambda: atomic_file(tmp_path / "old.txt"), lambda: atomic_folder(tmp_path / "folder")):
        with pytest.raises(RuntimeError), write() as draft:
            (draft / "part" if draft.is_dir() else draft).write_text("half")
            raise RuntimeError
    assert (tmp_path / "old.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.txt"]


def test_foreign_folders_are_never_replaced(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("...")
    with (
        pytest.raises(InputError, match="that aren't part of it"),
        atomic_folder(tmp_path / "precious", True),
    ):
        pass
    assert (tmp_path / "precious" / "thesis.tex").exists()
